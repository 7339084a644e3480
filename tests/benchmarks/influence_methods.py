"""Training on rewards that lie, with and without TracIn, over the policy of `learning_lab.py` with LoRA.

The scores, the validation set, the selection and the denominators are the product's files; estimator and loss are
verl's. The differences from a run are those in `learning_lab.py`, and that the adapter is PEFT's own, outside verl.

Shapes: B samples of a step, T response tokens, C rollouts of a validation set.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from learning_lab import Policy, Rollout, task_of_rows
from learning_tasks import Task
from peft import LoraConfig, get_peft_model
from verl.trainer.ppo.core_algos import agg_loss, compute_policy_loss_vanilla

from data_preprocess.arithmetic import POOLS, PoolSettings, build_rows
from recipe.tracin.method.disjoint import check_disjoint
from recipe.tracin.method.selection import Selection, SelectionSettings, Unit, keep_all, select_samples
from recipe.tracin.method.validation import ValidationSettings
from recipe.tracin.settings import Preconditioner
from verl_ext.influence.batches import MAX_WEIGHT
from verl_ext.influence.method.denominators import row_factors, rows_to_mask
from verl_ext.influence.method.ghost import GhostInfluence

AGGREGATION = "token-mean"


@dataclass(frozen=True)
class InfluenceTask:
    """Training prompts come first in `task.prompts`, then those of the validation set."""

    task: Task
    num_train: int
    num_validation: int


def make_influence_task(
    num_train: int, num_validation: int, *, pool: str = "E", held_out: int = 512, seed: int = 0
) -> InfluenceTask:
    """A pool with prompts for TracIn's validation set, and held-out core prompts that are in neither."""
    files = build_rows(PoolSettings(num_train, 1, num_validation, POOLS[pool], seed))
    texts = {name: [row["prompt"][0]["content"] for row in rows] for name, rows in files.items()}
    check_disjoint(texts["train"], texts["influence"])
    task = task_of_rows(files["train"] + files["influence"], held_out, seed)
    return InfluenceTask(task, num_train, num_validation)


@dataclass(frozen=True)
class Samples:
    """Rollouts as tensors.

    Attributes:
        prompts: (B,) int64, rows of the task's prompts.
        responses: (B, T) int64, padded on the right.
        mask: (B, T) float32, 1 for tokens of the response.
        rollout_log_probs: (B, T) float32, of the policy that sampled them; 0 where they are not known.
    """

    prompts: torch.Tensor
    responses: torch.Tensor
    mask: torch.Tensor
    rollout_log_probs: torch.Tensor

    def part(self, rows: slice | np.ndarray) -> "Samples":
        return Samples(self.prompts[rows], self.responses[rows], self.mask[rows], self.rollout_log_probs[rows])

    @property
    def lengths(self) -> np.ndarray:
        return self.mask.sum(1).long().numpy()


class InfluencePolicy(Policy):
    """The base model with LoRA on all linear layers, as in configs/experiment/tracin_arithmetic.yaml, and ghost passes.

    One on-policy step per batch: old log-probs are those of the forward pass itself.
    """

    def __init__(self, base: Path, task: Task, *, learning_rate: float, seed: int, rank: int = 8) -> None:
        super().__init__(base, task, learning_rate=learning_rate, estimator="grpo", seed=seed)
        torch.manual_seed(seed)  # of lora_A
        lora = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")
        self.model = get_peft_model(self.model, lora).eval()
        self.trainable = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trainable, lr=learning_rate, weight_decay=0.0)
        self.ghost = GhostInfluence(self.model)

    def tensors(self, rollouts: Sequence[Rollout]) -> Samples:
        width = max(len(rollout.response) for rollout in rollouts)
        responses, mask = torch.full((len(rollouts), width), self.task.pad), torch.zeros(len(rollouts), width)
        log_probs = torch.zeros(len(rollouts), width)
        for row, rollout in enumerate(rollouts):
            responses[row, : len(rollout.response)] = torch.tensor(rollout.response)
            mask[row, : len(rollout.response)] = 1.0
            log_probs[row, : len(rollout.log_probs)] = rollout.log_probs
        return Samples(torch.tensor([rollout.prompt for rollout in rollouts]), responses, mask, log_probs)

    def log_probs(self, samples: Samples) -> torch.Tensor:
        """(B, T) of the responses' tokens; those of padding mean nothing."""
        return self._log_probs(samples.prompts, samples.responses)

    def advantages(self, samples: Samples, rewards: np.ndarray) -> torch.Tensor:
        """(B, T) by verl's estimator, groups by prompt."""
        token_rewards = torch.zeros_like(samples.mask)
        token_rewards[torch.arange(len(rewards)), samples.mask.sum(1).long() - 1] = torch.from_numpy(rewards).float()
        groups = samples.prompts.numpy().astype(object)
        return self.estimator(token_level_rewards=token_rewards, response_mask=samples.mask, index=groups)[0]

    def loss(self, samples: Samples, advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        log_probs = self.log_probs(samples)
        return compute_policy_loss_vanilla(
            old_log_prob=log_probs.detach(),
            log_prob=log_probs,
            advantages=advantages,
            response_mask=mask,
            loss_agg_mode=AGGREGATION,
            config=self.loss_config,
        )[0]

    def validation_loss(self, samples: Samples, advantages: np.ndarray, *, weighted: bool) -> torch.Tensor:
        """`verl_ext.influence.batches.validation_loss` without verl's batches; its importance weights if `weighted`."""
        log_probs = self.log_probs(samples)
        ratio = torch.exp(log_probs - log_probs.detach())
        if weighted:
            ratio = ratio * torch.exp(log_probs.detach() - samples.rollout_log_probs).clamp_max(MAX_WEIGHT)
        loss = -torch.from_numpy(advantages).float()[:, None] * ratio
        return agg_loss(loss_mat=loss, loss_mask=samples.mask, loss_agg_mode=AGGREGATION)

    def sample_index(self, samples: Samples) -> torch.Tensor:
        ids = torch.cat([self.task.prompts[samples.prompts], samples.responses], 1)
        return torch.where(ids != self.task.pad, torch.arange(len(ids))[:, None], -1)

    def step(self, samples: Samples, advantages: torch.Tensor, selection: Selection) -> None:
        """One update on what is selected; the rows left out are masked (`divisibility: pad`, `denominator: kept`)."""
        if selection.is_empty:
            return
        one = np.zeros(len(selection.weights), dtype=np.int64)  # a single mini-batch
        factors = row_factors(
            "kept",
            AGGREGATION,
            samples.lengths,
            selection.weights,
            scored_in=one,
            updated_in=one,
            global_batch_size=len(one),
        )
        masked = torch.from_numpy(rows_to_mask(selection.kept, one))
        mask = samples.mask.masked_fill(masked[:, None], 0.0)
        loss = self.loss(samples, advantages * torch.from_numpy(factors).float()[:, None], mask)
        self.optimizer.zero_grad()
        loss.backward()
        self._optimize()

    def step_on_tokens(self, samples: Samples, advantages: torch.Tensor, kept_BT: torch.Tensor) -> None:
        """One update on some tokens, the mean over those; none without any."""
        if not kept_BT.any():
            return
        self.optimizer.zero_grad()
        self.loss(samples, advantages, samples.mask * kept_BT).backward()
        self._optimize()

    def step_along_validation_gradient(self) -> None:
        """One update by G itself."""
        gradients = self.ghost.validation_gradients()
        for name, parameter in self.model.named_parameters():
            if name in gradients:
                parameter.grad = gradients[name].clone()
        self._optimize()

    def _optimize(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.trainable, 1.0)
        self.optimizer.step()


@dataclass(frozen=True)
class Method:
    """How samples are chosen.

    Attributes:
        name: Display name.
        rule: A rule of `SelectionSettings`; reward_filter: a reported reward of 1; validation_only: none are used;
            tokens: those with a positive share (`token_influence.py`).
        validation: Of the scores; None where none are needed.
        exact, weighted, sequence, preconditioner, cosine: See `Scorer`.
        lies: Whether rewards are flipped.
        unit: Of `SelectionSettings`.
    """

    name: str
    rule: str = "none"
    validation: ValidationSettings | None = None
    exact: bool = False
    lies: bool = True
    weighted: bool = False
    sequence: bool = False
    preconditioner: Preconditioner | Literal["lora"] = "none"
    cosine: bool = False
    unit: Unit = "rollout"


def choose_samples(
    method: Method,
    scores: np.ndarray | None,
    rewards: np.ndarray,
    prompts: Sequence[int],
    seed: int,
    step: int,
) -> Selection:
    """The samples of a step that are trained on; all, if scores are needed and there are none."""
    if method.rule == "reward_filter":
        return Selection((rewards > 0.5).astype(np.float64), np.argsort(-rewards, kind="stable"))
    if scores is None or method.rule in ("validation_only", "tokens"):
        return keep_all(len(rewards))
    settings = SelectionSettings(rule=method.rule, unit=method.unit, seed=seed)
    return select_samples(scores, prompts, settings, step)


class PromptOrder:
    """Epochs over the training prompts; the same for all methods of a seed."""

    def __init__(self, num_prompts: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._prompts = itertools.chain.from_iterable(rng.permutation(num_prompts).tolist() for _ in itertools.count())

    def next(self, count: int) -> list[int]:
        return list(itertools.islice(self._prompts, count))
