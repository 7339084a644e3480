"""A visit of a state: one record that grows from the query to the trained result. Pure.

    asked         the state, and K next tokens that the policy may continue it with: the actions
      | rollouts
    rolled out    each action has its rollouts, and these their rewards
      | assign_credit(log_probs, ...)
    credited      each action has its reward, advantage and target under the weights that are about to be updated
      | trainer["after"], engine["after"]
    trained       log-probs are known under the updated weights, in the trainer and as they are served

Fields of a later stage do not exist before: reading one raises AttributeError, or KeyError for a log-prob.
`records/records.py` writes a visit down and reads it back as one that is rolled out.

K: actions of the state.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from recipe.golden_redaction.method.credit import CreditSettings, StateCredit, assign_credit
from recipe.golden_redaction.method.movement import Movement, movement
from recipe.golden_redaction.method.targets import Targets, TargetSettings, target_log_probs
from verl_ext.data.arc_tasks import Grid
from verl_ext.sandbox.results import deciding_status

Moment = Literal["before", "after"]  # of the update
Place = Literal["trainer", "engine"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout of an action.

    Attributes:
        text: The text, starting with the action's token.
        reward: 1 if its program maps every input to its output, of the examples and the held-out pairs, 0 if not,
            None: unknown, no label.
        statuses: Sandbox statuses of the pairs that the program was run on, the examples first.
        outputs: Outputs of the program for each of them; None: not kept.
    """

    text: str
    reward: float | None
    statuses: tuple[str, ...]
    outputs: tuple[Grid | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Data of a visit from an earlier run's records, besides its rollouts.

    Attributes:
        log_probs: K, in nats, under the policy that the rollouts were credited with.
        state_reward: From 0 to 1; None: no rollout had a label.
    """

    log_probs: tuple[float, ...]
    state_reward: float | None


@dataclass
class StateVisit:
    """One state with K actions; the module's docstring says which fields exist when.

    Attributes:
        problem: Id of the problem.
        k: Hidden golden tokens.
        ids: Token ids of the state.
        teacher: golden[-k], one of `tokens`.
        tokens: K actions.
        weight_version: Version of the policy that made the rollouts.
        rollouts: Rollouts of each action.
        trainer, engine: K log-probs in nats by moment, as the trainer computes and as the engine serves them.
        reference: K log-probs under the weights that the run began with; None: not requested.
        own_log_probs: Log-probs of the state's own tokens, for the records; None: not measured.
        prompt: Number of the state's prompt in `Problem.prompts`.
        golden_start: Number of tokens of this prompt; None: recorded before there were several.
        recorded: Recorded data of an earlier run's visit; None: a visit of this run.
        credit, targets: Credit and targets of the actions.
    """

    problem: str
    k: int
    ids: tuple[int, ...]
    teacher: int
    tokens: tuple[int, ...]
    weight_version: int
    rollouts: tuple[tuple[Rollout, ...], ...] = ()
    trainer: dict[Moment, Sequence[float]] = field(default_factory=dict[Moment, Sequence[float]])
    engine: dict[Moment, Sequence[float]] = field(default_factory=dict[Moment, Sequence[float]])
    reference: Sequence[float] | None = None
    own_log_probs: dict[str, list[float | None]] | None = None
    prompt: int = 0
    golden_start: int | None = None
    recorded: Recorded | None = field(default=None, compare=False)
    credit: StateCredit = field(init=False, repr=False, compare=False)
    targets: Targets = field(init=False, repr=False, compare=False)

    @property
    def labels(self) -> list[list[float | None]]:
        """Labels of each action's rollouts: 1, 0, or None."""
        return [[rollout.reward for rollout in action] for action in self.rollouts]

    @property
    def num_rollouts(self) -> int:
        """Number of rollouts of all actions."""
        return sum(len(action) for action in self.rollouts)

    def assign_credit(
        self, log_probs: Sequence[float], credit_settings: CreditSettings, target_settings: TargetSettings
    ) -> None:
        """Compute rewards, advantages and targets under the weights that are about to be updated.

        Args:
            log_probs: K log-probs in nats, from the trainer.
            credit_settings: See `credit.assign_credit`.
            target_settings: See `targets.target_log_probs`.
        """
        self.trainer["before"] = log_probs
        self.credit = assign_credit(self.labels, log_probs, credit_settings)
        self.targets = target_log_probs(log_probs, self.credit.advantages, target_settings)

    def movement(self, place: Place, tolerance: float) -> Movement:
        """How the update moved the tokens; `tolerance` in nats."""
        log_probs = self.trainer if place == "trainer" else self.engine
        return movement(
            log_probs["before"], log_probs["after"], self.targets.log_probs, self.credit.advantages, tolerance
        )


def probability_gaps(visits: Sequence[StateVisit], moment: Moment) -> np.ndarray:
    """Difference between the trainer's and the engine's probability of each token of all visits."""
    trainer, engine = (
        np.exp(np.concatenate(columns))
        for columns in ([visit.trainer[moment] for visit in visits], [visit.engine[moment] for visit in visits])
    )
    return np.abs(engine - trainer)


def visit_metrics(visits: Sequence[StateVisit]) -> dict[str, float]:
    """Metrics of the credited visits of one step; a mean over zero values has no key.

    `golden/visits/num_actions` (mean of a state), `/undecided_share` (states with more than one action),
    `/labelled_share` (states with an advantage that is not 0), `golden/visits/state_reward` (mean),
    `golden/actions/num_preferred|num_dispreferred` (sums), `golden/actions/teacher_preferred` (share of the preferred
    that are the teacher's), `golden/rollouts/num`, `/no_label`, and `golden/sandbox/{status}` (shares of the rollouts
    by the status that decided).
    """
    metrics: dict[str, float] = {}
    count = len(visits)
    rewards = [visit.credit.state_reward for visit in visits if not math.isnan(visit.credit.state_reward)]
    advantages = np.concatenate([visit.credit.advantages for visit in visits])
    is_teacher = np.concatenate([np.array(visit.tokens) == visit.teacher for visit in visits])
    metrics["golden/visits/num_actions"] = sum(len(visit.tokens) for visit in visits) / count
    metrics["golden/visits/undecided_share"] = sum(len(visit.tokens) > 1 for visit in visits) / count
    metrics["golden/visits/labelled_share"] = sum(bool(visit.credit.advantages.any()) for visit in visits) / count
    if rewards:
        metrics["golden/visits/state_reward"] = sum(rewards) / len(rewards)
    metrics["golden/actions/num_preferred"] = float((advantages > 0).sum())
    metrics["golden/actions/num_dispreferred"] = float((advantages < 0).sum())
    if (advantages > 0).any():
        metrics["golden/actions/teacher_preferred"] = float(is_teacher[advantages > 0].mean())
    rollouts = [rollout for visit in visits for action in visit.rollouts for rollout in action]
    metrics["golden/rollouts/num"] = float(len(rollouts))
    metrics["golden/rollouts/no_label"] = float(sum(rollout.reward is None for rollout in rollouts))
    for status, number in Counter(deciding_status(rollout.statuses) for rollout in rollouts).items():
        metrics[f"golden/sandbox/{status}"] = number / len(rollouts)
    return metrics


def copying_metrics(visits: Sequence[StateVisit], num_examples: Mapping[str, int]) -> dict[str, float]:
    """Metric of one step: `golden/rollouts/examples_only`, the share of rollouts that are right on all examples, which
    the prompt shows, and wrong on a pair that it does not.

    Args:
        visits: The step's.
        num_examples: Number of examples by problem.
    """
    rollouts = [(visit.problem, rollout) for visit in visits for action in visit.rollouts for rollout in action]
    if not rollouts:
        return {}
    # Programs are not run past the first pair that they get wrong.
    found = sum(rollout.reward == 0.0 and len(rollout.statuses) > num_examples[name] for name, rollout in rollouts)
    return {"golden/rollouts/examples_only": found / len(rollouts)}


def mean_label(labels: Iterable[float | None]) -> float | None:
    """Mean of the labels that exist; None without any."""
    known = [label for label in labels if label is not None]
    return sum(known) / len(known) if known else None
