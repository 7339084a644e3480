"""`ghost_check.check_scores` on verl's batches and sharded parameters, once per worker."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from verl_ext.influence.batches import SAMPLE_POSITION, sample_index, whole
from verl_ext.influence.engine_passes import EnginePasses
from verl_ext.influence.fsdp import without_gradient_sync
from verl_ext.influence.method.ghost import GhostInfluence
from verl_ext.influence.method.ghost_check import check_scores

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "worker.engine": "verl.workers.engine.fsdp.transformer_impl.FSDPEngineWithLMHead",
    "worker.engine_config": "verl.workers.config.FSDPEngineConfig",
}

MASKS = ("response_mask", "loss_mask")


class FirstCheck:
    """Three passes over one micro-batch, in the first step that has a gradient; all ranks take part."""

    def __init__(self) -> None:
        self._is_done = False

    def __call__(
        self,
        worker: EnginePasses,
        ghost: GhostInfluence,
        micro_batches: Sequence[TensorDict],
        loss_function: Callable[..., Any],
    ) -> None:
        """Reject a model whose scores would be wrong; clears the scores of `ghost`.

        Raises:
            InfluenceError: see `check_scores`.
        """
        if self._is_done:
            return
        # A sample that is alone in its micro-batch owns all tokens, in any order.
        micro_batch = max(micro_batches, key=lambda micro_batch: len(_rows_that_teach(micro_batch)))
        muted = _rows_that_teach(micro_batch)[1::2]

        def backward(without: Sequence[int]) -> None:
            worker._forward_backward(_without(micro_batch, without) if without else micro_batch, loss_function)

        has_gradient = check_scores(
            ghost,
            sample_index(micro_batch, worker._pad_size(micro_batch)),
            backward,
            muted,
            around=partial(without_gradient_sync, worker.engine.module),
            whole=whole,
            mean=worker._whole_mean,
        )
        has_muted = torch.tensor(float(bool(muted)))
        is_complete = worker._mean_over_ranks(has_muted.to(worker.device_name)) > 0
        self._is_done = has_gradient and (bool(is_complete) or not worker.engine_config.use_dynamic_bsz)


def _rows_that_teach(micro_batch: TensorDict) -> list[int]:
    """Positions of the rows that have a token with an advantage; of all rows with a token, if fewer than two have."""
    tokens = [row.bool() for row in micro_batch["response_mask"].unbind()]
    advantages = micro_batch["advantages"].unbind()
    positions = micro_batch[SAMPLE_POSITION].reshape(-1).tolist()
    teaching = [
        position for position, row, mask in zip(positions, advantages, tokens, strict=True) if (row * mask).any()
    ]
    return teaching if len(teaching) > 1 else [p for p, mask in zip(positions, tokens, strict=True) if mask.any()]


def _without(micro_batch: TensorDict, positions: Sequence[int]) -> TensorDict:
    """The same rows, with the losses of these masked."""
    muted, without = micro_batch.copy(), set(positions)
    places = micro_batch[SAMPLE_POSITION].reshape(-1).tolist()
    for name in MASKS:
        rows = zip(places, micro_batch[name].unbind(), strict=True)
        masks = [torch.zeros_like(mask) if place in without else mask for place, mask in rows]
        muted[name] = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    return muted
