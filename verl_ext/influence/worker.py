"""Influence scores in verl's actor worker: the gradient of a validation set, then each sample's product with it.

Both passes are verl's own forward, loss, micro-batches and normalisation on the same mini-batches that are updated, so
that the scores of a mini-batch add up to <its gradient, G>. W ranks: verl multiplies its loss by W and averages
gradients over the ranks, so G is the mean of the ranks' sums, and a sample's score 1/W of its rank's.

Simplification: all mini-batches of a step are scored with the weights from before its first update, like the old
log-probs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine.utils import postprocess_batch_func
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_ext.influence.batches import (
    SAMPLE_POSITION,
    flat,
    norm_and_agreement,
    replaced,
    sample_index,
    sharded_like,
    unflat,
    validation_loss,
)
from verl_ext.influence.engine_passes import EnginePasses
from verl_ext.influence.first_check import FirstCheck
from verl_ext.influence.fsdp import ShardedStorage, without_gradient_sync
from verl_ext.influence.method.denominators import denominator_factor
from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError
from verl_ext.influence.method.preconditioner import adam_factors

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self.engine": "verl.workers.engine.fsdp.transformer_impl.FSDPEngineWithLMHead",
    "self.engine_config": "verl.workers.config.FSDPEngineConfig",
    "forward_backward_batch": "verl.workers.engine.fsdp.transformer_impl.FSDPEngineWithLMHead.forward_backward_batch",
}


@dataclass(frozen=True)
class RankScores:
    """Scores of one rank's rows.

    Attributes:
        rank: Rank among the data-parallel ranks.
        scores: float64, in the order of the rank's rows.
        identity_error: Error of "sum of scores = <sum of gradients, G>" on this rank; None if not requested.
    """

    rank: int
    scores: np.ndarray
    identity_error: float | None


class InfluenceTrainingWorker(EnginePasses):
    """verl's training worker with `compute_validation_gradient`, `compute_influence` and `train_one_pass`."""

    _ghost: GhostInfluence | None = None
    _first_check: FirstCheck
    _scores: torch.Tensor | None = None
    _identity_error: float | None = None
    _anything_selected = True
    _preconditioner = "none"

    def set_up_influence(self, parameters: str, preconditioner: str = "none") -> float:
        """Choose the scored parameters (see `GhostInfluence`) and the direction of G.

        Args:
            parameters: lora, or a regular expression.
            preconditioner: none: G itself; adam: AdamW's direction, see `preconditioner.py`.

        Returns:
            Their share of the trained parameters.

        Raises:
            InfluenceError: the engine cannot be scored exactly.
        """
        if self.engine_config.strategy != "fsdp2":
            raise InfluenceError(
                f"influence scores need actor_rollout_ref.actor.strategy=fsdp2, got {self.engine_config.strategy!r}"
            )
        if self.engine.use_ulysses_sp:
            raise InfluenceError(
                "influence scores need whole sequences on a rank: set ulysses_sequence_parallel_size=1"
            )
        if getattr(self.engine, "scaler", None) is not None:
            raise InfluenceError("float16 with a gradient scaler has no exact scores: set param_dtype to bf16 or fp32")
        self._preconditioner = preconditioner
        storage = ShardedStorage(self.engine.module)
        self._ghost, self._first_check = GhostInfluence(self.engine.module, parameters, storage), FirstCheck()
        return self._ghost.share_scored

    # ------------------------------ two passes ------------------------------

    def compute_validation_gradient(self, data: TensorDict) -> dict[str, float]:
        """Set G to the gradient of `validation_loss` over a validation set, averaged over the ranks.

        Memory: G and the gradient of one half, sharded like large parameters (`ShardedStorage`), and one whole layer.

        Args:
            data: Rows of this rank, with the fields of a training batch and `validation_advantage`; rows beyond the
                set's own have advantage 0. Every other row belongs to the first half.

        Returns:
            The norm of G, the cosine of the gradients of two halves of the set (how much of G is noise), both without
            a preconditioner, and whether there is one.
        """
        ghost = self._require_ghost()
        loss = partial(validation_loss, config=self._actor_config)
        ghost.reset_validation()
        with self._engine_ready(data):
            self._add_normalisation(data)
            first: dict[str, torch.Tensor] = {}
            for half in (slice(0, None, 2), slice(1, None, 2)):
                rows = list(range(len(data)))[half]
                for micro_batch in self._split_unevenly(tu.index_select_tensor_dict(data, rows)) if rows else ():
                    with without_gradient_sync(self.engine.module), ghost.validation():
                        self._forward_backward(micro_batch, loss)
                first = first or {name: gradient.clone() for name, gradient in ghost.validation_gradients().items()}
            factors = self._optimizer_factors()
        total = ghost.validation_gradients()
        for gradients in (total, first):
            self._average_over_ranks(gradients)
        # One row per rank has no second half: nan.
        norm, agreement = norm_and_agreement(total, first)
        del first
        return {"validation_gradient_norm": norm, "validation_half_agreement": agreement} | self._precondition(factors)

    def compute_influence(self, data: TensorDict) -> dict[str, float]:
        """Score this rank's rows against G, or with `in_batch` against all other rows of the step; without
        communication of gradients. `take_influence_scores` returns the scores.

        Args:
            data: The arguments of `train_mini_batch`, and the non-tensors `in_batch` and `check_identity`.

        Returns:
            With `in_batch`, the norm of G, and whether it has a preconditioner.
        """
        ghost = self._require_ghost()
        in_batch = tu.pop(data, "in_batch", default=False)
        check_identity = tu.pop(data, "check_identity", default=False)
        num_rows, world = len(data), self.engine.get_data_parallel_size()
        metrics = {}
        with self._engine_ready(data):
            mini_batches = list(self._mini_batches(data))
            if in_batch:
                metrics |= self._in_batch_gradient(mini_batches)
            split = [micro_batch for mini_batch in mini_batches for micro_batch in self._split(mini_batch)]
            self._first_check(self, ghost, split, self.loss_fn)
            ghost.reset_scores()
            for micro_batch in split:
                with without_gradient_sync(self.engine.module), self._scoring(micro_batch, in_batch, check_identity):
                    self._forward_backward(micro_batch, self.loss_fn)
                ghost.drop_kept_gradients()
        scores = ghost.scores(num_rows)
        if in_batch:
            # G is the mean over the ranks, so a sample's own part of it is 1/W of its gradient.
            scores = scores - ghost.self_influence(num_rows) / world
        self._keep_scores(scores, check_identity)
        return metrics

    def take_influence_scores(self) -> RankScores:
        """The scores of this rank's rows from the last `compute_influence` or `train_one_pass`."""
        assert self._scores is not None, "call compute_influence or train_one_pass first"
        scores, self._scores = self._scores, None
        return RankScores(self.engine.get_data_parallel_rank(), scores.numpy(), self._identity_error)

    def _scoring(self, micro_batch: TensorDict, keep_gradients: bool, check_identity: bool) -> Any:
        index = sample_index(micro_batch, self._pad_size(micro_batch))
        return self._require_ghost().scoring(index, keep_gradients, check_identity)

    def _keep_scores(self, scores: torch.Tensor, check_identity: bool) -> None:
        ghost = self._require_ghost()
        self._scores = (scores / self.engine.get_data_parallel_size()).cpu()
        self._identity_error = ghost.identity_error() if check_identity else None
        limit = ghost.limit
        ghost.reset_scores()
        if self._identity_error is not None and not self._identity_error <= limit:
            raise InfluenceError(
                f"the scores of this step add up to something else than <its gradient, the validation gradient>: the "
                f"identity error is {self._identity_error:.2g}, rounding is below {limit:g}. Tokens were lost, so "
                "scores are not those of the update: please report it with the model and the configuration, and "
                "train without the selection by influence"
            )

    def _in_batch_gradient(self, mini_batches: list[TensorDict]) -> dict[str, float]:
        ghost = self._require_ghost()
        ghost.reset_validation()
        for mini_batch in mini_batches:
            for micro_batch in self._split(mini_batch):
                with without_gradient_sync(self.engine.module), ghost.validation():
                    self._forward_backward(micro_batch, self.loss_fn)
        total = ghost.validation_gradients()
        self._average_over_ranks(total)
        norm, _ = norm_and_agreement(total, total)
        return {"validation_gradient_norm": norm} | self._precondition(self._optimizer_factors(), keep=True)

    def forget_validation_gradient(self) -> None:
        """Free G, which is as large as its parameters and not needed while rollouts are generated."""
        if self._ghost is not None:
            self._ghost.reset_validation()

    def _optimizer_factors(self) -> dict[str, torch.Tensor] | None:
        """Preconditioner of this rank's shards; called when the engine is ready, because an offloaded state is then on
        the device."""
        if self._preconditioner == "none":
            return None
        parameters = dict(self.engine.module.named_parameters())
        return adam_factors(self.engine.optimizer, {name: parameters[name] for name in self._require_ghost().names})

    def _precondition(self, factors: dict[str, torch.Tensor] | None, *, keep: bool = False) -> dict[str, float]:
        if factors is not None:
            self._require_ghost().precondition(factors, keep=keep)
        return {"preconditioned": float(factors is not None)}

    # ------------------------------ one pass ------------------------------

    def train_one_pass(self, data: TensorDict, *, rule: str, denominator: str, check_identity: bool) -> TensorDict:
        """`train_mini_batch` on the samples that `rule` selects, each mini-batch scored and selected in its own pass.

        The selected sum of per-sample gradients is the update's gradient. Needs one epoch, scores over all trainable
        parameters, and G, which stays as it is: samples of a later mini-batch are scored with the weights that it
        updates. If no rank selects anything of a mini-batch, the weights and the optimizer are unchanged.

        Args:
            data: As in `train_mini_batch`.
            rule: positive (a score above 0) | none (every sample).
            denominator: kept | all, see `denominators.py`.
            check_identity: Also check that the scores add up.
        """
        ghost = self._require_ghost()
        if (epochs := tu.get(data, "epochs", default=1)) != 1:
            raise InfluenceError(f"one_pass scores each row once: expected one epoch per step, got {epochs}")
        trainable = {name for name, p in self.engine.module.named_parameters() if p.requires_grad}
        if trainable != set(ghost.names):
            raise InfluenceError(
                f"one_pass needs scores over all {len(trainable)} trainable parameters, got {len(ghost.names)}: "
                f"{min(trainable ^ set(ghost.names))} differs. Score all of them, or set one_pass=false"
            )
        data[SAMPLE_POSITION] = torch.arange(len(data))
        ghost.reset_scores()
        is_first = True

        def is_selected() -> torch.Tensor:
            scores = ghost.scores(len(data))
            return torch.ones_like(scores, dtype=torch.bool) if rule == "none" else scores > 0

        def forward_backward_batch(
            mini_batch: TensorDict, loss_function: Callable[..., Any], forward_only: bool = False
        ) -> dict[str, Any]:
            nonlocal is_first
            self._add_normalisation(mini_batch)
            outputs = []
            micro_batches, indices = self._split_with_indices(mini_batch)
            if is_first:  # the check clears the scores
                self._first_check(self, ghost, micro_batches, loss_function)
            is_first = False
            for micro_batch in micro_batches:
                with without_gradient_sync(self.engine.module), self._scoring(micro_batch, True, check_identity):
                    outputs.append(self._forward_backward(micro_batch, loss_function))
                ghost.accumulate_selected(is_selected().to(torch.float64))
            factor = self._denominator_factor(mini_batch, is_selected().cpu().numpy(), denominator)
            selected = ghost.take_selected_gradients()
            mean = self._mean_over_ranks(flat(selected)) * factor
            parameters = dict(self.engine.module.named_parameters())
            for name, gradient in unflat(mean, selected).items():
                parameters[name].grad = sharded_like(gradient, parameters[name])
            self._anything_selected = factor > 0
            return postprocess_batch_func(output_lst=outputs, indices=indices, data=mini_batch)

        step = self.engine.optimizer_step
        with (
            replaced(self.engine, "forward_backward_batch", forward_backward_batch),
            # A zero gradient would still move the weights through momentum and weight decay.
            replaced(self.engine, "optimizer_step", lambda: step() if self._anything_selected else 0.0),
        ):
            output = self.train_mini_batch(data)
        self._keep_scores(ghost.scores(len(data)), check_identity)
        return output

    def _denominator_factor(self, data: TensorDict, positive: np.ndarray, denominator: str) -> float:
        """The factor for the selected sum, which was divided by the total of all samples."""
        lengths = np.array([int(mask.sum()) for mask in data["loss_mask"].unbind()])
        kept = positive[data[SAMPLE_POSITION].reshape(-1).numpy()]
        parts: list[Any] = [None] * self.engine.get_data_parallel_size()
        torch.distributed.all_gather_object(parts, (lengths, kept), self.engine.get_data_parallel_group())
        lengths, kept = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        if not lengths[kept].any():
            return 0.0
        factor = partial(
            denominator_factor,
            loss_agg_mode=self._actor_config.loss_agg_mode,
            response_lengths=lengths,
            kept=kept,
            global_batch_size=data["global_batch_size"],
        )
        return factor(denominator) / factor("all")

    def _require_ghost(self) -> GhostInfluence:
        if self._ghost is None:
            raise InfluenceError("call set_up_influence first")
        return self._ghost


class InfluenceWorker(ActorRolloutRefWorker):
    """verl's hybrid worker whose actor scores samples; see the methods of `InfluenceTrainingWorker`."""

    actor_worker_cls = InfluenceTrainingWorker

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_up_influence(self, parameters: str, preconditioner: str = "none") -> float:
        return self.actor.set_up_influence(parameters, preconditioner)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_validation_gradient(self, data: TensorDict) -> TensorDict:
        return _metrics_only(self.actor.compute_validation_gradient(data))

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_influence(self, data: TensorDict) -> TensorDict:
        return _metrics_only(self.actor.compute_influence(data))

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: TensorDict) -> TensorDict:
        """verl's update; the one-pass update for a batch with `one_pass`, the arguments of `train_one_pass`."""
        one_pass = tu.pop(data, "one_pass", default=None)
        if one_pass is None:
            self.actor.forget_validation_gradient()  # the scores exist
            return super().update_actor(data)
        output = self.actor.train_one_pass(data, **one_pass)
        self.actor.forget_validation_gradient()
        return output.cpu() if output is not None else None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def take_influence_scores(self) -> RankScores:
        return self.actor.take_influence_scores()


def _metrics_only(metrics: dict[str, float]) -> TensorDict:
    return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": metrics})
