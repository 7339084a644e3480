"""The actor's part: log-probs of a state's tokens, and the update that moves them. Adapter to verl's workers.

States are a few thousand numbers, so every rank gets all of them and takes its part; it returns log-probs.
W ranks: FSDP averages gradients over the ranks, so a rank's part of the loss is multiplied by W.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.device import get_device_id, get_device_name
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from recipe.golden_redaction.loss.forward import next_token_logits, plan_micro_batches
from recipe.golden_redaction.loss.loss import distance_loss, target_loss, token_log_probs
from recipe.golden_redaction.loss.tensor_statistics import StepStart, UpdateStatistics
from recipe.golden_redaction.method.inner_steps import WHOLE, Goals, shortened
from recipe.golden_redaction.method.labelled_states import LabelledState, StateTokens
from recipe.golden_redaction.method.targets import TargetSettings
from verl_ext.core.errors import ConfigError

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self.engine": "verl.workers.engine.fsdp.transformer_impl.FSDPEngineWithLMHead",
    "self.engine_config": "verl.workers.config.FSDPEngineConfig",
}

# Names that transformers uses for a layer's attention.
ATTENTION_NAMES = ("self_attn", "attention", "attn")


@dataclass(frozen=True)
class RankLogProbs:
    """Results for the states of one rank.

    Attributes:
        log_probs: K log-probs in nats, by index of the state.
        hidden_norms: See `forward.next_token_logits`, averaged over the rank's micro-batches; empty if not requested.
    """

    log_probs: dict[int, list[float]]
    hidden_norms: list[float]


@dataclass(frozen=True)
class RankUpdate:
    """Result of one mini-batch on one rank.

    Attributes:
        loss: This rank's part; the ranks' sum is the loss in nats before the update.
        grad_norm: Norm of the whole gradient in the first step, before clipping.
        statistics: Statistics of every trainable tensor; empty if not requested.
        num_steps: Optimizer steps.
    """

    loss: float
    grad_norm: float
    statistics: dict[str, dict[str, float]]
    num_steps: int = 1


class TokenTrainingWorker(TrainingWorker):
    """verl's training worker with `state_log_probs` and `train_states`."""

    def compute_attention_in(self, dtype: torch.dtype) -> None:
        """Run every attention module, its projections included, in `dtype` while the rest keeps its own.

        Raises:
            ConfigError: if the model has no module with such a name.
        """
        modules = [
            module for name, module in self.engine.module.named_modules() if name.rpartition(".")[2] in ATTENTION_NAMES
        ]
        if not modules:
            names = " or ".join(ATTENTION_NAMES)
            raise ConfigError(f"golden.attention_dtype: no module of the model is named {names}")
        for module in modules:
            module.forward = _in_dtype(module.forward, dtype)

    def state_log_probs(
        self, states: Sequence[StateTokens], without_adapter: bool, with_hidden_norms: bool
    ) -> RankLogProbs:
        """Log-probs of this rank's part of the states; one forward per state."""
        log_probs: dict[int, list[float]] = {}
        norms = []
        adapter: AbstractContextManager[Any] = self.engine.disable_adapter() if without_adapter else nullcontext()
        with self.engine.eval_mode(), adapter, torch.no_grad(), self._autocast():
            for part in self._my_parts(states, self.engine_config.infer_max_token_len_per_gpu):
                logits_SV, norms_L = next_token_logits(
                    self.engine.module, _ids(states, part), self._device, with_hidden_norms
                )
                if norms_L is not None:
                    norms.append(norms_L)
                if part:
                    values = token_log_probs(logits_SV, *_rows(states, part, self._device)).tolist()
                    for index in part:
                        log_probs[index] = [values.pop(0) for _ in states[index].tokens]
        return RankLogProbs(log_probs, torch.stack(norms).mean(dim=0).tolist() if norms else [])

    def train_states(
        self,
        mini_batches: Sequence[Sequence[LabelledState]],
        serving_dtype: torch.dtype | None,
        targets: TargetSettings | None = None,
    ) -> list[RankUpdate]:
        """One update per mini-batch, one forward and backward per state and step, one step of the learning-rate
        schedule.

        Args:
            mini_batches: Each with at least one labelled token: a zero gradient would still move the weights through
                momentum and weight decay.
            serving_dtype: For the statistics of tensors; None: none.
            targets: Its `steps`, `aim` and `scale_lr` are used. None: one step of `target_loss` per update.
        """
        updates = []
        with self.engine.train_mode():
            for states in mini_batches:
                follows = targets is not None and targets.scale_lr
                with self._scaled_lr(math.sqrt(len(states)) if follows else 1.0):
                    if targets is not None and targets.steps > 1:
                        updates.append(self._approach(states, serving_dtype, targets))
                    else:
                        updates.append(self._one_step(states, serving_dtype))
            self.engine.lr_scheduler_step()
        return updates

    @contextmanager
    def _scaled_lr(self, factor: float) -> Iterator[None]:
        """Multiply the learning rates within; the schedule changes what it finds, so they are restored exactly."""
        groups = self.engine.optimizer.param_groups
        before = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] *= factor
        try:
            yield
        finally:
            for group, lr in zip(groups, before, strict=True):
                group["lr"] = lr

    def _one_step(self, states: Sequence[LabelledState], serving_dtype: torch.dtype | None) -> RankUpdate:
        self.engine.optimizer_zero_grad()
        parts = self._my_parts(states, self.engine_config.max_token_len_per_gpu)
        loss = sum(self._backward(states, part) for part in parts)
        statistics = None
        if serving_dtype is not None:
            statistics = UpdateStatistics(self.engine.module.named_parameters(), serving_dtype)
        grad_norm = float(self.engine.optimizer_step())
        after = statistics.after_update() if statistics is not None else {}
        return RankUpdate(loss, grad_norm, after)

    def _approach(
        self, states: Sequence[LabelledState], serving_dtype: torch.dtype | None, settings: TargetSettings
    ) -> RankUpdate:
        """An update of several steps, as in `method/inner_steps.py`; all ranks know all log-probs and decide the
        same."""
        targets, advantages, weights = (
            np.array([value for state in states for value in getattr(state, name)])
            for name in ("targets", "advantages", "weights")
        )
        start = now = self._measured(states)
        way = np.maximum(advantages * (np.where(advantages == 0, 0.0, targets) - start), 0.0)
        goals = Goals.of(start, targets, advantages, weights, settings.aim)
        grad_norms: list[float] = []
        statistics, length = None, 1.0
        while len(grad_norms) < settings.steps and not goals.are_near(now):
            self.engine.optimizer_zero_grad()
            for part in self._my_parts(states, self.engine_config.max_token_len_per_gpu):
                self._backward(states, part, goals)
            if serving_dtype is not None and statistics is None:
                statistics = UpdateStatistics(self.engine.module.named_parameters(), serving_dtype)
            step = StepStart(self.engine.module.parameters())
            with self._scaled_lr(length):
                grad_norms.append(float(self.engine.optimizer_step()))
            before, now, share = now, self._measured(states), length
            while share and (best := goals.best_share(before, now)) < WHOLE:
                shorter = shortened(share, best)
                step.shorten(shorter / share)
                now, share = self._measured(states) if shorter else before, shorter
            if not share:
                break
            length = goals.next_share(share, before, now)
        after = statistics.after_update() if statistics is not None else {}
        loss = float((weights * way).sum()) / self.engine.get_data_parallel_size()
        return RankUpdate(loss, grad_norms[0] if grad_norms else 0.0, after, len(grad_norms))

    def _measured(self, states: Sequence[LabelledState]) -> np.ndarray:
        """(M,) log-probs of all tokens of all states, on every rank."""
        starts = np.cumsum([0, *(len(state.tokens) for state in states)])
        found = torch.zeros(int(starts[-1]), dtype=torch.float64, device=self._device)
        with torch.no_grad(), self._autocast():
            for part in self._my_parts(states, self.engine_config.infer_max_token_len_per_gpu):
                logits_SV, _ = next_token_logits(self.engine.module, _ids(states, part), self._device)
                if part:
                    values = token_log_probs(logits_SV, *_rows(states, part, self._device)).double()
                    places = [place for index in part for place in range(starts[index], starts[index + 1])]
                    found[torch.tensor(places, device=self._device)] = values
        if self.engine.get_data_parallel_size() > 1:
            torch.distributed.all_reduce(found, group=self.engine.get_data_parallel_group())
        return found.cpu().numpy()

    def _backward(self, states: Sequence[LabelledState], part: Sequence[int], goals: Goals | None = None) -> float:
        """This rank's part of `target_loss`, or of `distance_loss` where goals are given."""
        with self._autocast():
            logits_SV, _ = next_token_logits(self.engine.module, _ids(states, part), self._device)
        if not part:  # the collectives of FSDP's backward still need this rank
            (logits_SV.sum() * 0.0).backward()
            return 0.0
        log_probs_M = token_log_probs(logits_SV, *_rows(states, part, self._device))
        chosen = [states[index] for index in part]
        if goals is None:
            loss = target_loss(
                log_probs_M,
                self._column([state.targets for state in chosen], torch.float32),
                self._column([state.advantages for state in chosen], torch.int64),
                self._column([state.weights for state in chosen], torch.float32),
            )
        else:
            cuts = np.cumsum([len(state.tokens) for state in states])[:-1]
            goals_M, weights_M = (
                self._column([np.split(values, cuts)[index].tolist() for index in part], torch.float64)
                for values in (goals.log_probs, goals.weights)
            )
            loss = distance_loss(log_probs_M, goals_M, weights_M)
        (loss * self.engine.get_data_parallel_size()).backward()
        return loss.item()

    def _my_parts(self, states: Sequence[StateTokens], max_tokens: int) -> Iterator[list[int]]:
        lengths = [len(state.ids) for state in states]
        rank, num_ranks = self.engine.get_data_parallel_rank(), self.engine.get_data_parallel_size()
        for parts in plan_micro_batches(lengths, num_ranks, max_tokens):
            yield parts[rank]

    def _column(self, values: Sequence[Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([value for row in values for value in row], dtype=dtype, device=self._device)

    @property
    def _device(self) -> Any:
        return get_device_id()

    @contextmanager
    def _autocast(self) -> Iterator[None]:
        # As verl's own forward_step does it.
        dtype = self.engine._autocast_dtype
        with nullcontext() if dtype == torch.float32 else torch.autocast(get_device_name(), dtype=dtype):
            yield


def _ids(states: Sequence[StateTokens], part: Sequence[int]) -> list[tuple[int, ...]]:
    # A rank without its own state takes part with the shortest.
    return [states[index].ids for index in part] or [min((state.ids for state in states), key=len)]


def _rows(states: Sequence[StateTokens], part: Sequence[int], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [row for row, index in enumerate(part) for _ in states[index].tokens]
    tokens = [token for index in part for token in states[index].tokens]
    return torch.tensor(rows, device=device), torch.tensor(tokens, device=device)


def _in_dtype(forward: Any, dtype: torch.dtype) -> Any:
    @functools.wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(get_device_name(), dtype=dtype):
            return forward(*args, **kwargs)

    return wrapped


class GoldenWorker(ActorRolloutRefWorker):
    """verl's hybrid worker over `TokenTrainingWorker`; see its methods."""

    actor_worker_cls = TokenTrainingWorker
    ref_worker_cls = TokenTrainingWorker

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def compute_attention_in(self, dtype: torch.dtype) -> None:
        for worker in filter(None, (self.actor, self.ref)):
            worker.compute_attention_in(dtype)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def state_log_probs(self, states: Sequence[StateTokens], with_hidden_norms: bool = False) -> RankLogProbs:
        return self.actor.state_log_probs(states, without_adapter=False, with_hidden_norms=with_hidden_norms)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def reference_log_probs(self, states: Sequence[StateTokens]) -> RankLogProbs:
        """Log-probs of the reference policy: verl's reference worker, or with LoRA the actor without its adapter."""
        worker = self.actor if self.ref is None else self.ref
        return worker.state_log_probs(states, without_adapter=self.ref is None, with_hidden_norms=False)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def train_states(
        self,
        mini_batches: Sequence[Sequence[LabelledState]],
        serving_dtype: torch.dtype | None,
        targets: TargetSettings | None = None,
    ) -> list[RankUpdate]:
        return self.actor.train_states(mini_batches, serving_dtype, targets)
