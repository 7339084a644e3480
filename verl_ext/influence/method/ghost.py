"""Influence scores of training samples, without per-sample gradients: s_i = <gradient of sample i, G>.

G is the gradient of a validation loss (TracIn: Pruthi et al. 2020, arXiv:2002.08484, with one checkpoint; inner
products without per-sample gradients: Goodfellow 2015, arXiv:1510.01799, and Wang et al. 2024, arXiv:2406.11011).

    ghost = GhostInfluence(model, parameters="lora")
    with ghost.validation():
        validation_loss.backward()          # forward and backward inside
    with ghost.scoring(sample_index):       # [B, T], the sample of each token, -1 for padding
        training_loss.backward()            # forward and backward inside
    scores = ghost.scores(num_samples)

Simplification: terms of a whole batch (such as a router's balancing loss) have no per-sample gradient and no score.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from verl_ext.influence.method.ghost_functions import (
    LIMITS,
    GhostPass,
    add_vectors,
    fit_vector,
    kept_products,
    read_sample_index,
)
from verl_ext.influence.method.ghost_hooks import check_reached, hooked
from verl_ext.influence.method.ghost_layers import find_layers
from verl_ext.influence.method.ghost_parameters import InfluenceError, Storage

__all__ = ["GhostInfluence", "InfluenceError"]


class GhostInfluence:
    """Hooks a model's Linear layers while one of its contexts is open, and removes the hooks afterwards.

    `share_scored` is the share of the trained weights that scores cover: the rest does not affect them.

    Inside a context every parameter is frozen, so no gradient is computed, written or reduced for any of them: `.grad`,
    `requires_grad`, optimizer state and the random generators are bit for bit what they were, also after an
    exception. Extra memory: G, and one number per token (with `keep_gradients`, a micro-batch's per-sample gradients).

    The accumulators are float32 (float64 for float64 parameters), scores float64; products are computed in the dtype
    that the layer itself runs in. float16 is refused: G would overflow or vanish in it.

    FSDP2: put each context inside `verl_ext.influence.fsdp.without_gradient_sync(model)`. FSDP2 reads its dtypes from
    the parameters that are trainable at its first forward, so that must happen before a context freezes them; it would
    reduce gradients that do not exist; and it would leave frozen parameters in a root that stays gathered. All sums are
    of this rank only (but see `ShardedStorage`): the caller reduces `validation_gradients()` in place, and the scores.

    Gradient checkpointing is exact, because sums are only updated in backward, which runs once.
    """

    def __init__(self, model: nn.Module, parameters: str = "lora", storage: Storage | None = None):
        """Chooses the layers that are trainable now.

        Args:
            model: Any module; it is not changed.
            parameters: "lora" for the `lora_A` and `lora_B` Linear modules (PEFT's names), otherwise a regular
                expression that is searched for in the names of `nn.Linear` modules.
            storage: How G is stored; by default whole.

        Raises:
            InfluenceError: Nothing matches, nothing that matches is trainable, or a match has no exact score.
        """
        self._model = model
        self._layers = find_layers(model, parameters)
        self._parameters = {p.name: p for layer in self._layers for p, _ in layer.parts(None)}
        self._storage = storage or Storage()
        for parameter in self._parameters.values():
            parameter.storage = self._storage
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.share_scored = sum(p.shape.numel() for p in self._parameters.values()) / trained
        self._anchor = torch.zeros((), requires_grad=True)
        self._pass: GhostPass | None = None
        self._closed = False
        self.reset_validation()
        self.reset_scores()

    @property
    def model(self) -> nn.Module:
        """The hooked module."""
        return self._model

    @property
    def limit(self) -> float:
        """The largest identity error that can be rounding, for the precision of the passes since `reset_scores`."""
        return max((LIMITS.get(dtype, 0.0) for dtype in self._dtypes), default=min(LIMITS.values()))

    @property
    def names(self) -> list[str]:
        """Names of the scored parameters, in the model's order."""
        return list(self._parameters)

    # ---- validation

    @contextmanager
    def validation(self) -> Generator[None]:
        """Adds the gradients backpropagated inside the context to G."""
        if self._validation_torn:
            raise InfluenceError(
                "an earlier validation pass failed half-way and G contains a part of it: call reset_validation()"
            )
        ghost_pass = GhostPass()
        with self._ghost_mode(ghost_pass):
            self._validation_torn = True
            yield
        check_reached(self._layers, ghost_pass)
        self._validation_torn = False

    def validation_gradients(self) -> dict[str, torch.Tensor]:
        """G by parameter name, as stored: the live tensors, so a caller may all-reduce or scale them in place."""
        self._check_validation()
        return self._buffers("validation")

    def set_validation_gradients(self, gradients: dict[str, torch.Tensor]) -> None:
        """Replaces G, for every parameter in `names`; shapes are those of the unsharded parameters."""
        if gradients.keys() != self._parameters.keys():
            odd = sorted(gradients.keys() ^ self._parameters.keys())
            raise InfluenceError(
                f"validation gradients must be for the {len(self._parameters)} parameters in `names`; "
                f"missing or unknown: {', '.join(odd[:5])}"
            )
        for name, gradient in gradients.items():
            expected, got = tuple(self._parameters[name].shape), tuple(gradient.shape)
            if got != expected:
                raise InfluenceError(f"the validation gradient of {name} must be {expected}, got {got}")
        for name, gradient in gradients.items():
            self._parameters[name].validation = gradient.detach().to(self._parameters[name].dtype, copy=True)
        self._drop("metric")
        self._validation_torn, self._has_norms = False, True

    @torch.no_grad()
    def precondition(self, factors: Mapping[str, torch.Tensor], *, keep: bool = False) -> None:
        """Multiplies G by a diagonal P, so that scores become <g_i, P G>: see `preconditioner.py`.

        Args:
            factors: The diagonal, by parameter name, for every parameter in `names`; sharded like the parameter.
            keep: Keep P for `self_influence`, which then is <g_i, P g_i>; this takes as much memory as G.
        """
        for name, gradient in self.validation_gradients().items():
            factor = self._storage.like(factors[name], gradient)
            gradient *= factor
            self._parameters[name].metric = factor if keep else None
        self._has_norms = keep

    def reset_validation(self) -> None:
        """Clears G and its preconditioner."""
        self._check_idle()
        self._validation_torn, self._has_norms = False, True
        self._drop("validation")
        self._drop("metric")

    # ---- scoring

    @contextmanager
    def scoring(
        self,
        sample_index: torch.Tensor,
        keep_gradients: bool = False,
        check_identity: bool = False,
        sum_gradients: bool = False,
    ) -> Generator[None]:
        """Adds the gradients backpropagated inside the context to the samples' scores; adds nothing if the pass fails.

        Args:
            sample_index: Integers of the token grid's shape ([B, T] padded, [1, total] packed): each token's sample, -1
                for padding. Prompt tokens also belong to their sample: the loss depends on their activations.
            keep_gradients: Keep this micro-batch's per-sample gradients until `accumulate_selected`. Meant for LoRA.
            check_identity: Also compute the product of the gradient of all tokens, for `identity_error`.
            sum_gradients: Also keep the sum of all tokens' gradients, for `total_gradients`.
        """
        self._check_idle()
        self._check_validation()
        if any(p.per_sample is not None for p in self._parameters.values()):
            raise InfluenceError(
                "the last micro-batch's per-sample gradients are still kept: call accumulate_selected(weights), "
                "or drop_kept_gradients() to continue without them"
            )
        ghost_pass = read_sample_index(sample_index, keep_gradients)
        ghost_pass.check_identity, ghost_pass.sum_gradients = check_identity, sum_gradients
        torn = self._totals_torn
        try:
            with self._ghost_mode(ghost_pass):
                self._totals_torn |= sum_gradients
                yield
            check_reached(self._layers, ghost_pass)
            self._finish_scoring(ghost_pass)
        except BaseException:
            self.drop_kept_gradients()
            raise
        self._totals_torn = torn

    def scores(self, num_samples: int) -> torch.Tensor:
        """Float64 scores of samples 0 to num_samples - 1; 0 for a sample without tokens."""
        return fit_vector(self._scores, num_samples)

    def self_influence(self, num_samples: int) -> torch.Tensor:
        """Float64 squared norms <g_i, g_i>, or <g_i, P g_i> after `precondition`, from passes with `keep_gradients`.

        Norms do not add up: all tokens of a sample must be in the same micro-batch.
        In-batch leave-one-out is `scores - self_influence` when G is the sum over the same samples' gradients.
        """
        if not self._kept_all:
            raise InfluenceError("self_influence needs keep_gradients=True in every scoring pass since reset_scores()")
        if not self._has_norms:
            raise InfluenceError("self_influence of a preconditioned G needs P: call precondition(factors, keep=True)")
        return fit_vector(self._self_influence, num_samples)

    def reset_scores(self) -> None:
        """Clears scores, and the gradients kept, summed or selected while scoring."""
        self._check_idle()
        self._scores = self._self_influence = torch.zeros(0, dtype=torch.float64)
        self._kept_all = self._checked_all = self._summed_all = True
        self._num_passes, self._totals_torn, self._expected = 0, False, 0.0
        self._dtypes: set[torch.dtype] = set()
        self._samples: list[int] = []
        for buffer in ("per_sample", "total", "selected"):
            self._drop(buffer)

    # ---- one pass: the update's gradient from the scoring pass

    @torch.no_grad()
    def accumulate_selected(self, weights: torch.Tensor) -> None:
        """Adds sum_i weights_i g_i over the last micro-batch's samples, and frees its per-sample gradients.

        Args:
            weights: One per sample of the mini-batch, (num_samples,), indexed by `sample_index`.
        """
        if all(p.per_sample is None for p in self._parameters.values()):
            raise InfluenceError("no per-sample gradients are kept: use scoring(sample_index, keep_gradients=True)")
        needed = max(self._samples, default=-1) + 1
        if weights.dim() != 1 or len(weights) < needed:
            raise InfluenceError(f"weights must be a vector of at least {needed}, got shape {tuple(weights.shape)}")
        chosen = weights.detach()[self._samples]
        if not chosen.isfinite().all():
            raise InfluenceError("weights must be finite")
        for parameter in self._parameters.values():
            kept = parameter.per_sample
            assert kept is not None
            with torch.autocast(kept.device.type, enabled=False):
                weighted = chosen.to(kept.device, parameter.dtype) @ kept.flatten(1).to(parameter.dtype)
            parameter.add("selected", weighted.view(parameter.shape))
            parameter.per_sample = None

    def take_selected_gradients(self) -> dict[str, torch.Tensor]:
        """The weighted sum since it was last taken by parameter name, of the unsharded shapes."""
        if any(p.selected is None for p in self._parameters.values()):
            raise InfluenceError("nothing was selected yet: call accumulate_selected(weights) after a scoring pass")
        selected = self._buffers("selected")
        self._drop("selected")
        return selected

    def drop_kept_gradients(self) -> None:
        """Frees the last micro-batch's per-sample gradients without using them."""
        self._drop("per_sample")

    # ---- identity

    def total_gradients(self) -> dict[str, torch.Tensor]:
        """Sum of all scored tokens' gradients by parameter name, g^T x at once: equal to plain `.grad`; as stored."""
        if self._totals_torn or not (self._summed_all and self._num_passes):
            raise InfluenceError(
                "total_gradients needs sum_gradients=True in every scoring pass since reset_scores(), none failed"
            )
        return self._buffers("total")

    def identity_error(self) -> float:
        """|sum of scores - <sum of gradients, G>| / (sum of |scores|): rounding, unless a token was lost.

        A token credited to another sample is not detected. The sum of gradients includes the padding tokens of
        `sample_index`: theirs must be 0.
        """
        if not (self._checked_all and self._num_passes):
            raise InfluenceError("the identity check needs check_identity=True in every scoring pass")
        scale = float(self._scores.abs().sum()) + torch.finfo(torch.float64).tiny
        return abs(float(self._scores.sum()) - self._expected) / scale

    def close(self) -> None:
        """Frees every tensor; the object cannot be used afterwards."""
        self.reset_validation()
        self.reset_scores()
        self._closed = True

    # ---- the machinery

    @contextmanager
    def _ghost_mode(self, ghost_pass: GhostPass) -> Generator[None]:
        self._check_idle()
        if self._closed:
            raise InfluenceError("this GhostInfluence was closed: create another one")
        self._pass = ghost_pass
        try:
            with hooked(self._model, self._layers, ghost_pass, self._anchor):
                yield
        finally:
            self._pass = None

    @torch.no_grad()
    def _finish_scoring(self, ghost_pass: GhostPass) -> None:
        """Reduces one micro-batch to its samples' scores; the only synchronisation with the device."""
        index, norms = ghost_pass.sample_index, None
        assert index is not None
        if ghost_pass.keep_gradients:
            scores, norms = kept_products(list(self._parameters.values()), ghost_pass.samples)
        else:
            tokens = ghost_pass.token_scores
            assert tokens is not None
            index = index.to(tokens.device)
            scores = tokens.new_zeros(max(ghost_pass.samples, default=-1) + 1)
            scores.index_add_(0, index[index >= 0], tokens[index >= 0])
        if not scores.isfinite().all():
            bad = (~scores.isfinite()).nonzero().flatten().tolist()
            finite = all(self._storage.local(g).isfinite().all() for g in self._buffers("validation").values())
            raise InfluenceError(
                f"the scores of samples {bad[:8]} are not finite; the validation gradient is {'' if finite else 'not '}"
                "finite: look at the loss, and at its log-probs, of these samples" + ("" if finite else " and of G's")
            )
        self._scores = add_vectors(self._scores, scores)
        if norms is not None:
            self._self_influence = add_vectors(self._self_influence, norms)
        self._samples, self._dtypes = ghost_pass.samples, self._dtypes | ghost_pass.dtypes
        self._num_passes += 1
        self._kept_all &= ghost_pass.keep_gradients
        self._checked_all &= ghost_pass.check_identity
        self._summed_all &= ghost_pass.sum_gradients
        if ghost_pass.expected is not None:
            self._expected += float(ghost_pass.expected)

    def _check_validation(self) -> None:
        if self._validation_torn:
            raise InfluenceError("the validation pass failed half-way: call reset_validation() and run it again")
        if any(p.validation is None for p in self._parameters.values()):
            raise InfluenceError(
                "there is no validation gradient: run a pass in validation(), or call set_validation_gradients()"
            )

    def _check_idle(self) -> None:
        if self._pass is not None:
            raise InfluenceError("a ghost context is open: contexts cannot be nested, or reset from inside")

    def _buffers(self, buffer: str) -> dict[str, torch.Tensor]:
        return {name: getattr(parameter, buffer) for name, parameter in self._parameters.items()}

    def _drop(self, buffer: str) -> None:
        for parameter in self._parameters.values():
            setattr(parameter, buffer, None)
