"""How many tokens of one golden solution are hidden. Pure.

A golden solution of L tokens with its last k hidden gives one state, prompt + golden[:-k], and one teacher token,
golden[-k]. k goes from 1 (only the last token is hidden) to L (everything is):

    state reward >= grow_above   `patience` visits in a row  ->  k = min(L, top + 1, max(k + 1, floor(k * growth)))
    state reward <= shrink_below `patience` visits in a row  ->  k = max(1, min(k - 1, ceil(k / growth)))
    anything between, or no label                            ->  k stays

This has two kinds of hysteresis: the band between the two thresholds, in which k stays, and the patience, whose count
any other visit resets. A visit without a label (every rollout met an infrastructure error) neither counts nor
interrupts. A reward that was measured with another k than the current one is stale and is ignored.

`top` is the furthest length reached: every length up to it was visited, or decided when k skipped it. Beyond it k grows
by one, so no undecided token is left out; below it, after shrinking, k grows by the factor.

Most tokens of a solution are decided: the policy gives the teacher token more than `decided_above`, every rollout
begins with it, and there is nothing to compare. `settle` skips such lengths, upwards after k grew and downwards after
it shrank, to the nearest one whose token is undecided; the log-probs of a whole golden solution cost one forward. If
all lengths above are decided, everything is hidden; if all below are, one token.

A problem is solved, and retires, after `retire_after` visits in a row with the whole solution hidden and a high state
reward. Any other reward brings it back.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from verl_ext.core.settings import Settings


class RedactionSettings(Settings):
    """Settings of `redaction.RedactionController`."""

    initial_k: int = Field(default=1, ge=1)
    """Hidden golden tokens of each problem at the start; shorter solutions are hidden completely."""

    grow_above: float = Field(default=0.75, gt=0, le=1)
    """State reward from which a problem's k grows."""

    shrink_below: float = Field(default=0.25, ge=0, lt=1)
    """State reward up to which k shrinks; must be below grow_above. Between the two k stays."""

    patience: int = Field(default=1, ge=1)
    """Visits in a row above (below) before k changes."""

    growth: float = Field(default=1.25, ge=1)
    """Factor by which k shrinks, and grows back over lengths already visited, by at least one token. New lengths of a
    problem are never skipped, whatever the factor. 1: one token at a time."""

    decided_above: float | None = Field(default=0.98, gt=0, lt=1)
    """Probability of the teacher token above which a length is skipped: the policy already chooses this token, and no
    other is sampled to compare it with. null: every length is visited."""

    retire_after: int | None = Field(default=3, ge=1)
    """Visits in a row with the whole solution hidden and a state reward of at least grow_above after which a problem
    is solved: from then on it is only visited for checks, until one finds a lower reward. null: never."""

    check_after: int = Field(default=10, ge=1)
    """Turns of the other problems before a solved one is checked."""

    order: Literal["easy_to_hard", "random"] = "easy_to_hard"
    """Order of the problems within a turn. easy_to_hard: the order of verl_ext/arc/order.py. random: a new one every
    turn, drawn from the seed."""

    seed: int = Field(default=0, ge=0)
    """Random seed of order=random."""

    @model_validator(mode="after")
    def _agree(self) -> "RedactionSettings":
        if not self.shrink_below < self.grow_above:
            raise ValueError(
                f"grow_above must be above shrink_below, got {self.grow_above} and {self.shrink_below}: without a band "
                "between them k never stays"
            )
        return self


@dataclass(slots=True)
class Progress:
    """Progress of one problem.

    Attributes:
        length: Tokens of its golden solution.
        k: Hidden tokens.
        bottom, top: Every length between them was visited, or decided when k skipped it.
        streak: Consecutive visits: positive for high rewards, negative for low ones.
        visits: Number of visits so far.
        turn: Turn of the next visit.
        num_solved: Visits in a row with everything hidden and a high reward.
        last_reward: Reward of the last visit with a label.
        is_falling: k shrank at its last change.
        longest: The most hidden tokens of a visit.
    """

    length: int
    k: int
    bottom: int
    top: int
    streak: int = 0
    visits: int = 0
    turn: int = 0
    num_solved: int = 0
    last_reward: float | None = None
    is_falling: bool = False
    longest: int = 0

    @classmethod
    def start(cls, length: int, k: int) -> "Progress":
        """Progress of a problem that was never visited."""
        return cls(length, k, bottom=k, top=k)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Progress":
        """Restore from `dataclasses.asdict`. In older states without turns, all lengths up to k count as visited."""
        older: dict[str, Any] = {"bottom": 1, "top": values["k"], "turn": values["visits"], "longest": values["k"]}
        return cls(**{**older, **values})

    def has_retired(self, settings: RedactionSettings) -> bool:
        """Whether the problem is solved."""
        return settings.retire_after is not None and self.num_solved >= settings.retire_after

    def settle(self, golden_log_probs: Sequence[float], decided_above: float) -> int:
        """Move k to the nearest length whose token is undecided; returns how many lengths were skipped.

        Args:
            golden_log_probs: (L,) in nats.
            decided_above: Probability of the teacher token above which a length is decided.
        """
        undecided = [k for k in range(1, self.length + 1) if math.exp(golden_log_probs[-k]) <= decided_above]
        if self.is_falling:
            k = max((k for k in undecided if k <= self.k), default=1)
        else:
            k = min((k for k in undecided if k >= self.k), default=self.length)
        passed_over = abs(k - self.k)
        if passed_over:
            self.k, self.streak = k, 0
        return passed_over

    def observe(self, state_reward: float, settings: RedactionSettings) -> int:
        """Record the state reward (0 to 1) of a visit with this k; returns the change of k."""
        k = self.k
        self.last_reward = float(state_reward)
        self.longest = max(self.longest, k)
        if k < self.bottom:  # the lengths between were skipped on the way down
            self.bottom = self.top = k
        self.top = max(self.top, k)
        side = (state_reward >= settings.grow_above) - (state_reward <= settings.shrink_below)
        self.num_solved = self.num_solved + 1 if side > 0 and k == self.length else 0
        self.streak = self.streak + side if side * self.streak >= 0 and side else side
        if abs(self.streak) < settings.patience:
            return 0
        self.streak = 0
        if side > 0:
            by_factor = max(k + 1, math.floor(k * settings.growth))
            self.k = min(self.length, self.top + 1, by_factor)
        else:
            self.k = max(1, min(k - 1, math.ceil(k / settings.growth)))
        if self.k != k:
            self.is_falling = self.k < k
        return self.k - k

    def jump(self, k: int) -> None:
        """Continue at the length that an earlier run reached.

        Raises:
            ValueError: if it is not from 1 to the golden tokens.
        """
        if not 1 <= k <= self.length:
            raise ValueError(f"expected k from 1 to the {self.length} golden tokens, got {k}")
        if k != self.k:
            self.is_falling = k < self.k
            self.k, self.streak, self.num_solved = k, 0, 0
