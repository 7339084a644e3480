"""Helpers of influence scores for verl's batches, losses and sharded parameters, independent of a worker."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.tensor import DTensor, Replicate
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import no_padding_2_padding

# Fields of a batch: a row's position among the rank's samples; the advantage of a row of the validation set.
SAMPLE_POSITION = "sample_position"
VALIDATION_ADVANTAGE = "validation_advantage"
ROLLOUT_LOG_PROBS = "rollout_log_probs"

# Clip of the importance weights of validation rollouts.
MAX_WEIGHT = 2.0


def sample_index(micro_batch: TensorDict, pad_size: int = 0) -> torch.Tensor:
    """Which sample each position of the engine's token grid belongs to, -1 for padding.

    Args:
        micro_batch: With nested `input_ids` of R rows, `sample_position` (R,), and `use_remove_padding`.
        pad_size: Positions that the engine adds at the end of a packed sequence.

    Returns:
        int64, (1, total + pad_size) packed, (R, longest) padded.
    """
    positions = micro_batch[SAMPLE_POSITION].reshape(-1)
    lengths = micro_batch["input_ids"].offsets().diff()
    if tu.get_non_tensor_data(micro_batch, "use_remove_padding", default=True):
        packed = torch.repeat_interleave(positions, lengths)
        return torch.nn.functional.pad(packed, (0, pad_size), value=-1).unsqueeze(0)
    filled = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
    return torch.where(filled, positions[:, None], -1)


def rows_to_compute(rows: Sequence[tuple[int, bool]], count: int) -> list[int]:
    """The rows of an update that have a loss, and the shortest of the others up to `count`.

    Args:
        rows: Tokens of each row, and whether it has a loss.
        count: At least as many as have a loss, and at most as many as there are.

    Returns:
        Positions, ascending.
    """
    first_with_loss = sorted(range(len(rows)), key=lambda position: (not rows[position][1], rows[position][0]))
    return sorted(first_with_loss[:count])


def validation_loss(config: Any, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None):
    """Policy gradient loss of the validation set at the current weights, aggregated like the actor's own loss.

    Its gradient is -A * w * grad log pi per token, with w = min(pi / pi_rollout, 2): rollouts are reused until the next
    refresh while the policy changes (truncated importance sampling). Without w, the gradient of a bad rollout would
    grow as the policy moves away from it, and dominate all others. Nothing is clipped, there is no entropy or KL term.
    Without the field `rollout_log_probs` w is 1.
    """
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    mask = data.select("response_mask").to_padded_tensor()["response_mask"].to(bool)
    advantages = data[VALIDATION_ADVANTAGE].reshape(-1, 1).to(log_probs.dtype)
    weights = torch.ones_like(log_probs)
    if ROLLOUT_LOG_PROBS in data:
        rollout_log_probs = data.select(ROLLOUT_LOG_PROBS).to_padded_tensor()[ROLLOUT_LOG_PROBS]
        weights = torch.exp(log_probs.detach() - rollout_log_probs).clamp_max(MAX_WEIGHT)
    # Its value is 1 and its gradient that of log pi.
    ratio = torch.exp(log_probs - log_probs.detach())
    loss = agg_loss(
        loss_mat=-advantages * weights * ratio,
        loss_mask=mask,
        loss_agg_mode=config.loss_agg_mode,
        dp_size=data["dp_size"],
        batch_num_tokens=data["batch_num_tokens"],
        global_batch_size=data["global_batch_size"],
        loss_scale_factor=config.loss_scale_factor,
    )
    return loss, {}


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors.values()])


def unflat(flat: torch.Tensor, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    parts = flat.split([tensor.numel() for tensor in like.values()])
    return {name: part.view_as(tensor) for (name, tensor), part in zip(like.items(), parts, strict=True)}


def buckets(tensors: Iterable[torch.Tensor], most_bytes: int) -> Iterator[list[torch.Tensor]]:
    """The tensors in order, in lists of at most this many bytes; a larger tensor gets its own list."""
    bucket: list[torch.Tensor] = []
    room = most_bytes
    for tensor in tensors:
        if bucket and tensor.nbytes > room:
            yield bucket
            bucket, room = [], most_bytes
        bucket.append(tensor)
        room -= tensor.nbytes
    if bucket:
        yield bucket


def norm_and_agreement(total: dict[str, torch.Tensor], first: dict[str, torch.Tensor]) -> tuple[float, float]:
    """The norm of a gradient, and the cosine of one half of it with the other; gathers one parameter at a time.

    Returns:
        nan as the cosine if a half is 0.
    """
    products = []
    for name, gradient in total.items():
        half, both = whole(first[name]).flatten(), whole(gradient).flatten()
        rest = both - half  # the only copy: of a single parameter, in its own type
        products.append(torch.stack([both.dot(both), half.dot(rest), half.dot(half), rest.dot(rest)]))
    # One transfer from the device for all.
    square, across, *squares = torch.stack(products).double().sum(0).tolist()
    scale = math.sqrt(math.prod(squares))
    return math.sqrt(square), across / scale if scale > 0 else math.nan


def sharded_like(gradient: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """This rank's shard of a gradient that every rank has in full."""
    gradient = gradient.to(parameter.dtype)
    if not isinstance(parameter, DTensor):
        return gradient
    mesh = parameter.device_mesh
    whole = DTensor.from_local(gradient, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return whole.redistribute(mesh, parameter.placements)


def whole(tensor: torch.Tensor, device: torch.device | str | None = None) -> torch.Tensor:
    """A sharded tensor gathered on every rank, on a device; an offloaded state is gathered on NCCL's device."""
    if not isinstance(tensor, DTensor):
        return tensor.to(device)
    mesh = tensor.device_mesh
    shard = tensor.to_local().to(device or mesh.device_type)
    sharded = DTensor.from_local(
        shard, mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )
    return sharded.full_tensor()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of an instance temporarily."""
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
