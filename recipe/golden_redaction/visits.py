"""A state that was visited: its actions, and what became of their rollouts. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recipe.golden_redaction.credit import INFRASTRUCTURE_ERROR, StateCredit


@dataclass(frozen=True)
class Visit:
    """One state with K actions.

    Attributes:
        problem: Id of the problem.
        k: Hidden golden tokens.
        ids: Token ids of the state.
        teacher: golden[-k], one of `tokens`.
        tokens: K actions.
        rollouts: For each action its rollouts, as `record_schema.py` describes them.
        weight_version: Of the policy that made the rollouts.
    """

    problem: str
    k: int
    ids: tuple[int, ...]
    teacher: int
    tokens: tuple[int, ...]
    rollouts: tuple[tuple[Mapping[str, Any], ...], ...]
    weight_version: int

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> "Visit":
        """The visit that a training entry records."""
        return cls(
            problem=entry["problem"],
            k=entry["k"],
            ids=tuple(entry["prompt_ids"]),
            teacher=entry["teacher"],
            tokens=tuple(action["token"] for action in entry["actions"]),
            rollouts=tuple(tuple(action["rollouts"]) for action in entry["actions"]),
            weight_version=entry["weight_version"],
        )

    @property
    def labels(self) -> list[list[float | None]]:
        """Of each action's rollouts: 1, 0, or None after an infrastructure error."""
        return [[rollout["reward"] for rollout in action] for action in self.rollouts]

    @property
    def num_rollouts(self) -> int:
        """Of all actions."""
        return sum(len(action) for action in self.rollouts)


def visit_metrics(visits: Sequence[Visit], credits: Sequence[StateCredit]) -> dict[str, float]:
    """Of the visits of one step; a mean over nothing has no key.

    `golden/visits/num_actions` (mean of a state), `/undecided_share` (states with more than one action),
    `/labelled_share` (states with an advantage that is not 0), `golden/visits/state_reward` (mean),
    `golden/actions/num_preferred|num_dispreferred` (sums), `golden/actions/teacher_preferred` (share of the preferred
    that are the teacher's), `golden/rollouts/num`, `/no_label`, and `golden/sandbox/{status}` (shares of the rollouts
    by the status that decided).
    """
    metrics: dict[str, float] = {}
    count = len(visits)
    rewards = [credit.state_reward for credit in credits if not math.isnan(credit.state_reward)]
    advantages = np.concatenate([credit.advantages for credit in credits])
    is_teacher = np.concatenate([np.array(visit.tokens) == visit.teacher for visit in visits])
    metrics["golden/visits/num_actions"] = sum(len(visit.tokens) for visit in visits) / count
    metrics["golden/visits/undecided_share"] = sum(len(visit.tokens) > 1 for visit in visits) / count
    metrics["golden/visits/labelled_share"] = sum(bool(credit.advantages.any()) for credit in credits) / count
    if rewards:
        metrics["golden/visits/state_reward"] = sum(rewards) / len(rewards)
    metrics["golden/actions/num_preferred"] = float((advantages > 0).sum())
    metrics["golden/actions/num_dispreferred"] = float((advantages < 0).sum())
    if (advantages > 0).any():
        metrics["golden/actions/teacher_preferred"] = float(is_teacher[advantages > 0].mean())
    rollouts = [rollout for visit in visits for action in visit.rollouts for rollout in action]
    metrics["golden/rollouts/num"] = float(len(rollouts))
    metrics["golden/rollouts/no_label"] = float(sum(rollout["reward"] is None for rollout in rollouts))
    for status, number in Counter(deciding_status(rollout["statuses"]) for rollout in rollouts).items():
        metrics[f"golden/sandbox/{status}"] = number / len(rollouts)
    return metrics


def deciding_status(statuses: Iterable[str]) -> str:
    """What a rollout's label comes from: an infrastructure error, else the first pair that failed, else ok."""
    statuses = list(statuses)
    if INFRASTRUCTURE_ERROR in statuses:
        return INFRASTRUCTURE_ERROR
    return next((status for status in statuses if status != "ok"), "ok")


def mean_label(labels: Iterable[float | None]) -> float | None:
    """Mean of the labels that are there; None without any."""
    known = [label for label in labels if label is not None]
    return sum(known) / len(known) if known else None
