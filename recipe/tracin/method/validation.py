"""Which rollouts form TracIn's validation gradient, and with which advantages. Pure: numpy.

The validation gradient is that of verl's policy loss over a few rollouts of prompts that are never trained on. A
strategy decides on prompts, then on rollouts, then on advantages:

| strategy | prompts rolled out | rollouts used | advantages |
|---|---|---|---|
| quality | `pool_size`, others at every refresh | the `k` with the highest reward | 1 |
| contrast | as quality | the k/2 highest and the k/2 lowest | +1 and -1 |
| fixed | all, the same every time | all | centred reward |
| random | `k`, others at every refresh | all | centred reward |
| top | the `k` with the highest (lowest) `field` | all | centred reward |
| in_batch | none: each sample against the others of its batch (leave-one-out) | | |

*Advantages.* The best rollouts of a pool are mostly all correct, and centring equal rewards would give 0: under
`quality` each has advantage 1, and the gradient is that of the likelihood of good answers. It says what good answers
look like, not how they differ from bad ones; `contrast` does (equal numbers on both sides, so mean 0 and size 1). The
others estimate the policy gradient of the set's reward: centred within a prompt's rollouts where
`rollouts_per_prompt` is above 1, over the whole set otherwise. A rollout whose advantage is 0 adds nothing to the
gradient and is left out. When nothing remains (all rewards equal, or no reward above `min_reward`) the choice
`is_degenerate`: that step keeps every sample.

*Variety.* `quality` and each side of `contrast` take one rollout per prompt, second ones only when prompts run out: k
rollouts of one easy prompt would be less informative. Equal rewards are ordered at random. See `rollout_choice.py`.

*Randomness.* Every draw is from (seed, refresh number), and the refresh number is (step - 1) // refresh_every: the
choice depends on the settings, the step and the rewards, not on history. Prompts come from a permutation of the data
set split into equal draws, so none is drawn twice per epoch; a remainder smaller than a draw waits for the next
permutation.

P: prompts of the validation data set, by position 0 .. P-1. N: rollouts made.

Source: Pruthi et al. (2020), arXiv:2002.08484; the pool, k and refresh of `quality` are this method's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field, model_validator

from recipe.tracin.method.rollout_choice import all_centred, best_and_worst, best_rollouts
from verl_ext.core.settings import Settings

Strategy = Literal["quality", "fixed", "random", "top", "contrast", "in_batch"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Ties = Literal["random", "least_likely"]
# These choose among rollouts, so the rollouts are used until the next refresh.
POOL_STRATEGIES = ("quality", "contrast")

_STATE_VERSION = 1
_PROMPTS, _TIES = 0, 1  # streams of random numbers


class ValidationSettings(Settings):
    """Settings of `ValidationSet`."""

    strategy: Strategy = "quality"
    """quality: roll out a pool, take the k rollouts of highest reward with advantage 1.
    contrast: the k/2 best with advantage 1 and the k/2 worst with -1; harmful with 0/1 rewards, see recipe/tracin.
    fixed | random | top: all validation prompts, k drawn ones, or the k highest by field; advantages: centred rewards.
    in_batch: each sample against the rest of its batch; no rollouts."""

    pool_size: int = Field(default=500, ge=1)
    """Prompts per pool (quality, contrast), new ones at every refresh; all, if there are fewer."""

    k: int = Field(default=64, ge=1)
    """Rollouts taken from a pool (contrast: even); prompts of random and top. Fewer give a noisier gradient."""

    refresh_every: int = Field(default=10, ge=1)
    """Steps for which a choice is used."""

    rollouts_per_prompt: int = Field(default=1, ge=1)
    """Rollouts per validation prompt. Above 1, centred rewards are centred within a prompt."""

    cached: bool = False
    """fixed, random, top. true: the same rollouts are used until the next refresh. false: new rollouts at every
    step."""

    field: str | None = Field(default=None, min_length=1)
    """Number in extra_info that top sorts prompts by, such as toxicity."""

    descending: bool = True
    """top: true for the highest values, false for the lowest."""

    ties: Ties = "least_likely"
    """quality, which of equal rewards come first. least_likely: those of whose tokens the policy was the least sure, as
    the others have hardly a gradient. random: drawn."""

    min_reward: float | None = 0.0
    """quality takes only rollouts whose reward exceeds this; if there is none, the step keeps every sample. null: any
    reward."""

    seed: int = Field(default=0, ge=0)
    """Random seed of the draws of prompts and between equal rewards."""

    @property
    def orders_by_surprise(self) -> bool:
        """Whether `ValidationSet.choose` needs the rollouts' surprises."""
        return self.strategy == "quality" and self.ties == "least_likely"

    @model_validator(mode="after")
    def _agree(self) -> "ValidationSettings":
        if self.strategy == "contrast" and self.k % 2:
            raise ValueError(f"k must be even for strategy=contrast, got {self.k}: half is best, half is worst")
        if self.strategy in POOL_STRATEGIES and self.k > self.pool_size * self.rollouts_per_prompt:
            raise ValueError(
                f"k={self.k} rollouts cannot be chosen from pool_size x rollouts_per_prompt = "
                f"{self.pool_size * self.rollouts_per_prompt}: raise pool_size or lower k"
            )
        if self.strategy == "top" and self.field is None:
            raise ValueError("strategy=top needs field, the number in extra_info that prompts are sorted by")
        return self


@dataclass(frozen=True, eq=False)
class Choice:
    """The rollouts of a validation gradient.

    Attributes:
        indices: (C,) int64, among the N rollouts given to `ValidationSet.choose`.
        advantages: (C,) float64, none of them 0.
    """

    indices: np.ndarray
    advantages: np.ndarray

    @property
    def is_degenerate(self) -> bool:
        """Whether there is no validation gradient: nothing is scored, and every sample is trained on."""
        return not len(self.indices)


class ValidationSet:
    """Chooses a validation set's prompts and rollouts, step by step.

    Args:
        settings: See there.
        num_prompts: P.
        field_values: (P,) numbers of `settings.field`; only needed by `top`.

    Raises:
        ValueError: if there are no prompts, or `top` lacks a finite value for each.
    """

    def __init__(
        self, settings: ValidationSettings, num_prompts: int, field_values: Sequence[float] | np.ndarray | None = None
    ) -> None:
        if num_prompts < 1 and settings.strategy != "in_batch":
            raise ValueError(f"strategy={settings.strategy} needs at least one validation prompt, got {num_prompts}")
        self.settings = settings
        self.num_prompts = num_prompts
        self._top = np.empty(0, dtype=np.int64)
        if settings.strategy == "top":
            values = np.asarray([] if field_values is None else field_values, dtype=np.float64)
            if values.shape != (num_prompts,) or not np.isfinite(values).all():
                raise ValueError(
                    f"strategy=top needs a finite extra_info.{settings.field} for each of {num_prompts} prompts, got "
                    f"{int(np.isfinite(values).sum())}: add it to the data set, or choose another field or strategy"
                )
            order = np.argsort(-values if settings.descending else values, kind="stable")
            self._top = np.sort(order[: settings.k])
        self.choice: Choice | None = None
        self._step = 0  # state of the last choice
        self._is_lost = False
        self._rewards = {"pool": 0.0, "chosen": 0.0}

    # ------------------------------ prompts ------------------------------

    def needs_refresh(self, step: int) -> bool:
        """Whether rollouts must be made before this step's gradient can be computed; steps count from 1."""
        refresh = self._refresh(step)
        if self.settings.strategy == "in_batch":
            return False
        if self.choice is None or self._is_lost:
            return True
        if self.settings.cached or self.settings.strategy in POOL_STRATEGIES:
            return refresh != self._refresh(self._step)
        return step != self._step

    def prompts_to_roll_out(self, step: int) -> np.ndarray:
        """Positions in the validation data set, int64, distinct, to roll out `rollouts_per_prompt` times each."""
        refresh, settings = self._refresh(step), self.settings
        if settings.strategy == "in_batch":
            return np.empty(0, dtype=np.int64)
        if settings.strategy == "fixed":
            return np.arange(self.num_prompts)
        if settings.strategy == "top":
            return self._top.copy()
        size = min(settings.k if settings.strategy == "random" else settings.pool_size, self.num_prompts)
        epoch, draw = divmod(refresh, self.num_prompts // size)
        permutation = np.random.default_rng([settings.seed, _PROMPTS, epoch]).permutation(self.num_prompts)
        return permutation[draw * size : (draw + 1) * size]

    def forget_rollouts(self) -> None:
        """Forget the chosen rollouts (a resumed run without them): `needs_refresh` until the next choice."""
        self._is_lost = True

    # ------------------------------ rollouts ------------------------------

    def choose(
        self,
        step: int,
        rewards: Sequence[float] | np.ndarray,
        prompts: Sequence[int] | np.ndarray,
        surprises: Sequence[float] | np.ndarray | None = None,
    ) -> Choice:
        """Choose among the rollouts of `prompts_to_roll_out`, in any order; failed ones may be missing.

        Args:
            step: The training step, from 1 on.
            rewards: (N,) by rollout; one that is not finite (a failed reward) is never chosen.
            prompts: (N,) position of each rollout's prompt.
            surprises: (N,) mean of 1 - p over each rollout's tokens, p of the policy that sampled them; only needed by
                `ValidationSettings.orders_by_surprise`.

        Returns:
            The choice, also kept as `choice` until the next one.

        Raises:
            ValueError: under `in_batch`, if the lengths differ, if a prompt is not in the data set, or without
                surprises that are needed.
        """
        refresh = self._refresh(step)
        if self.settings.strategy == "in_batch":
            raise ValueError("strategy=in_batch has no rollouts of its own to choose from")
        rewards, prompts = np.asarray(rewards, dtype=np.float64), np.asarray(prompts, dtype=np.int64)
        if rewards.ndim != 1 or rewards.shape != prompts.shape:
            raise ValueError(f"expected one reward and one prompt per rollout, got {rewards.shape} and {prompts.shape}")
        if not ((prompts >= 0) & (prompts < self.num_prompts)).all():
            raise ValueError(
                f"expected prompts from 0 to {self.num_prompts - 1}, got {prompts.min()} to {prompts.max()}"
            )
        finite = np.flatnonzero(np.isfinite(rewards))
        known, group = rewards[finite], prompts[finite]
        if self.settings.strategy in POOL_STRATEGIES:
            # By prompt, not by position: rollouts return in any order.
            rng = np.random.default_rng([self.settings.seed, _TIES, refresh])
            ties = rng.permutation(self.num_prompts)[group]
            if self.settings.orders_by_surprise:
                ties = -self._surprises(surprises, len(rewards))[finite]
            if self.settings.strategy == "quality":
                chosen, advantages = best_rollouts(known, group, ties, self.settings.k, self.settings.min_reward)
            else:
                chosen, advantages = best_and_worst(known, group, ties, self.settings.k)
        else:
            chosen, advantages = all_centred(known, group if self.settings.rollouts_per_prompt > 1 else 0 * group)
        self.choice = Choice(finite[chosen], advantages)
        self._step, self._is_lost = step, False
        self._rewards = {"pool": _mean(known), "chosen": _mean(known[chosen])}
        return self.choice

    def _surprises(self, surprises: Sequence[float] | np.ndarray | None, num_rollouts: int) -> np.ndarray:
        """(N,) float64."""
        known = np.asarray([] if surprises is None else surprises, dtype=np.float64)
        if known.shape != (num_rollouts,):
            raise ValueError(f"expected a surprise for each of {num_rollouts} rollouts, got {known.size}")
        return known

    def _refresh(self, step: int) -> int:
        if step < 1:
            raise ValueError(f"steps count from 1, got {step}")
        return (step - 1) // self.settings.refresh_every

    # ------------------------------ metrics and state ------------------------------

    def metrics(self) -> dict[str, float]:
        """Metrics of the current choice: rollouts, whether it is degenerate, and mean rewards (of the pool and of the
        chosen)."""
        if self.choice is None:
            return {}
        metrics = {
            "tracin/validation/num_rollouts": float(len(self.choice.indices)),
            "tracin/validation/is_degenerate": float(self.choice.is_degenerate),
            "tracin/validation/chosen_at_step": float(self._step),
        }
        rewards = {f"tracin/validation/reward_{name}": mean for name, mean in self._rewards.items()}
        return metrics | {name: mean for name, mean in rewards.items() if np.isfinite(mean)}

    def state_dict(self) -> dict[str, Any]:
        """The current choice, in containers that `json.dumps` accepts; draws need no state."""
        chosen = None
        if self.choice is not None:
            chosen = {
                "indices": self.choice.indices.tolist(),
                "advantages": self.choice.advantages.tolist(),
                "rewards": {name: mean if np.isfinite(mean) else None for name, mean in self._rewards.items()},
            }
        return {
            "state_version": _STATE_VERSION,
            "strategy": self.settings.strategy,
            "num_prompts": self.num_prompts,
            "step": self._step,
            "is_lost": self._is_lost,
            "choice": chosen,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the choice by a saved one.

        Raises:
            ValueError: if its format, strategy or data set differs. Nothing is changed then.
        """
        if state.get("state_version") != _STATE_VERSION:
            raise ValueError(f"expected state_version {_STATE_VERSION}, got {state.get('state_version')!r}")
        for name, ours in (("strategy", self.settings.strategy), ("num_prompts", self.num_prompts)):
            if state[name] != ours:
                raise ValueError(
                    f"the checkpoint's validation set has {name}={state[name]}, this run has {ours}: resume with the "
                    "same settings and data, or start a new run"
                )
        chosen = state["choice"]
        self.choice = chosen and Choice(
            np.array(chosen["indices"], dtype=np.int64), np.array(chosen["advantages"], dtype=np.float64)
        )
        self._step, self._is_lost = int(state["step"]), bool(state["is_lost"])
        if chosen:
            self._rewards = {name: np.nan if mean is None else mean for name, mean in chosen["rewards"].items()}


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
