"""How many tokens of one golden solution are hidden. Pure.

A golden solution of L tokens with its last k hidden gives one state, prompt + golden[:-k], and one teacher token,
golden[-k]. k goes from 1 (only the last token is hidden) to L (everything is):

    state reward >= grow_above   `patience` visits in a row  ->  k = min(L, top + 1, max(k + 1, floor(k * growth)))
    state reward <= shrink_below `patience` visits in a row  ->  k = max(1, min(k - 1, ceil(k / growth)))
    anything between, or no label                            ->  k stays

This is hysteresis twice: the band between the two thresholds, in which k rests, and the patience, which a visit of the
other kind (or in the band) starts again. A visit without a label (every rollout met an infrastructure error) neither
counts nor interrupts. A reward that was measured under another k than the present one is stale and changes nothing.

`top` is how far the problem has come: every length up to it was visited, or decided when k passed over it. Beyond it k
grows by one, so no undecided token is left out; below it, after a fall, k comes back by the factor.

Most tokens of a solution are decided: the policy gives the teacher token more than `decided_above`, every rollout
begins with it, and there is nothing to compare. `settle` passes over such lengths, upwards after k grew and downwards
after it shrank, to the nearest one whose token is undecided; the log-probs of a whole golden solution cost one forward.
If all that is left above is decided, everything is hidden; if all below is, one token.

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
    """Hidden golden tokens of every problem at the start; all of a solution that is shorter."""

    grow_above: float = Field(default=0.75, gt=0, le=1)
    """State reward from which a problem's k grows."""

    shrink_below: float = Field(default=0.25, ge=0, lt=1)
    """State reward up to which it shrinks, below grow_above. Between the two it stays."""

    patience: int = Field(default=1, ge=1)
    """Visits in a row above (below) before k changes."""

    growth: float = Field(default=1.25, ge=1)
    """Factor by which k falls, and comes back over lengths that it has visited, by at least one token. Lengths that
    are new to a problem are never jumped over, whatever the factor. 1: one token at a time."""

    decided_above: float | None = Field(default=0.98, gt=0, lt=1)
    """Probability of the teacher token above which a length is passed over: the policy does it anyway, and no other
    token is sampled to compare it with. null: every length is visited."""

    retire_after: int | None = Field(default=3, ge=1)
    """Visits in a row with the whole solution hidden and a state reward of at least grow_above after which a problem
    is solved: it is visited only for checks, until one finds a lower reward. null: never."""

    check_after: int = Field(default=10, ge=1)
    """Turns of the other problems until a solved one is checked."""

    order: Literal["easy_to_hard", "random"] = "easy_to_hard"
    """Of the problems within a turn. easy_to_hard: that of verl_ext/arc/order.py. random: another one every turn, drawn
    from the seed."""

    seed: int = Field(default=0, ge=0)
    """Of the order=random in which problems are visited."""

    @model_validator(mode="after")
    def _agree(self) -> "RedactionSettings":
        if not self.shrink_below < self.grow_above:
            raise ValueError(
                f"grow_above must be above shrink_below, got {self.grow_above} and {self.shrink_below}: without a band "
                "between them k never rests"
            )
        return self


@dataclass(slots=True)
class Progress:
    """Of one problem.

    Attributes:
        length: Of its golden solution, in tokens.
        k: Hidden tokens.
        bottom, top: Every length from one to the other was visited, or decided when k passed over it.
        streak: Visits in a row: above 0 high ones, below 0 low ones.
        visits: So far.
        turn: In which the next visit is due.
        num_solved: Visits in a row with everything hidden and a high reward.
        last_reward: Of the last visit with a label.
        is_falling: k shrank at its last change.
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

    @classmethod
    def start(cls, length: int, k: int) -> "Progress":
        """Of a problem that was never visited."""
        return cls(length, k, bottom=k, top=k)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Progress":
        """From `dataclasses.asdict`, also of before there were turns: then all lengths up to k count as visited."""
        older: dict[str, Any] = {"bottom": 1, "top": values["k"], "turn": values["visits"]}
        return cls(**{**older, **values})

    def has_retired(self, settings: RedactionSettings) -> bool:
        """Whether the problem is solved."""
        return settings.retire_after is not None and self.num_solved >= settings.retire_after

    def settle(self, golden_log_probs: Sequence[float], decided_above: float) -> int:
        """Move k to the nearest length whose token is undecided; returns how many lengths were passed over.

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
        """Take in the state reward of a visit of k, from 0 to 1; returns by how much k changed."""
        k = self.k
        self.last_reward = float(state_reward)
        if k < self.bottom:  # what lies between was passed over on the way down
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
        """Continue at another length, as an earlier run did.

        Raises:
            ValueError: if it is not from 1 to the golden tokens.
        """
        if not 1 <= k <= self.length:
            raise ValueError(f"expected k from 1 to the {self.length} golden tokens, got {k}")
        if k != self.k:
            self.is_falling = k < self.k
            self.k, self.streak, self.num_solved = k, 0, 0
