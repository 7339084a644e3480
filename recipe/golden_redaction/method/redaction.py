"""How much of each golden solution is hidden, and whose turn it is. Pure.

A golden solution of L tokens with its last k hidden gives one state, prompt + golden[:-k], and one teacher token,
golden[-k]. Each problem has its own k from 1 (only the last token is hidden) to L (everything is):

    state reward >= grow_above   `patience` visits in a row  ->  k = min(L, max(k + 1, floor(k * growth)))
    state reward <= shrink_below `patience` visits in a row  ->  k = max(1, min(k - 1, ceil(k / growth)))
    anything between, or no label                            ->  k stays

This is hysteresis twice: the band between the two thresholds, in which k rests, and the patience, which a visit of the
other kind (or in the band) starts anew. A visit without a label (every rollout met an infrastructure error) neither
counts nor interrupts. A reward that was measured under another k than the present one is stale and changes nothing.

Most tokens of a solution are decided: the policy gives the teacher token more than `decided_above`, every rollout
begins with it, and there is nothing to compare. `settle` passes over such lengths, upwards after k grew and downwards
after it shrank, to the nearest one whose token is undecided; the log-probs of a whole golden solution cost one forward.
If all that is left above is decided, everything is hidden; if all below is, one token.

The turn goes to the problem with the fewest visits, equal ones in an order drawn from (seed, number of visits, problem
id). So problems are visited in epochs, each in an order of its own, and visits differ by at most one between problems
(an excluded problem, such as one in flight, catches up). An order depends on nothing but the seed and the ids: a
resumed run continues it.

P: problems.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field, model_validator

from verl_ext.core.settings import Settings

_STATE_VERSION = 1


class RedactionSettings(Settings):
    """Settings of `RedactionController`."""

    initial_k: int = Field(default=1, ge=1)
    """Hidden golden tokens of every problem at the start; all of a solution that is shorter."""

    grow_above: float = Field(default=0.75, gt=0, le=1)
    """State reward from which a problem's k grows."""

    shrink_below: float = Field(default=0.25, ge=0, lt=1)
    """State reward up to which it shrinks, below grow_above. Between the two it stays."""

    patience: int = Field(default=1, ge=1)
    """Visits in a row above (below) before k changes."""

    growth: float = Field(default=1.25, ge=1)
    """Factor of a change, by at least one token. 1: one token at a time."""

    decided_above: float | None = Field(default=0.98, gt=0, lt=1)
    """Probability of the teacher token above which a length is passed over: the policy does it anyway, and no other
    token is sampled to compare it with. null: every length is visited."""

    seed: int = Field(default=0, ge=0)
    """Of the order in which problems are visited."""

    @model_validator(mode="after")
    def _agree(self) -> "RedactionSettings":
        if not self.shrink_below < self.grow_above:
            raise ValueError(
                f"grow_above must be above shrink_below, got {self.grow_above} and {self.shrink_below}: without a band "
                "between them k never rests"
            )
        return self


@dataclass(frozen=True, slots=True)
class RedactedState:
    """One state to visit.

    Attributes:
        problem: Its id.
        k: Hidden tokens of its golden solution.
    """

    problem: str
    k: int


@dataclass(slots=True)
class _Progress:
    """Of one problem. `streak` counts visits in a row: above 0 high ones, below 0 low ones. `is_falling`: k shrank at
    its last change."""

    length: int
    k: int
    streak: int = 0
    visits: int = 0
    last_reward: float | None = None
    is_falling: bool = False


class RedactionController:
    """Redaction lengths of P problems.

    Args:
        golden_lengths: Tokens of each problem's golden solution, by problem id.
        settings: See there.

    Raises:
        ValueError: if there is no problem, or a golden solution has no tokens.
    """

    def __init__(self, golden_lengths: Mapping[str, int], settings: RedactionSettings) -> None:
        if not golden_lengths:
            raise ValueError("expected at least one problem with a golden solution, got none")
        empty = [problem for problem, length in golden_lengths.items() if length < 1]
        if empty:
            raise ValueError(f"golden solutions of at least one token are needed; empty: {', '.join(empty[:5])}")
        self.settings = settings
        self._problems = {
            problem: _Progress(length, min(settings.initial_k, length)) for problem, length in golden_lengths.items()
        }
        self._counts = {"grown": 0, "shrunk": 0, "stale": 0, "unlabelled": 0, "passed_over": 0}

    def __len__(self) -> int:
        return len(self._problems)

    def k(self, problem: str) -> int:
        """Hidden tokens of a problem now."""
        return self._progress(problem).k

    def next_states(self, count: int, exclude: Collection[str] = ()) -> list[RedactedState]:
        """The next states, of different problems; each counts as a visit.

        Args:
            count: How many; fewer come back only if fewer problems are left.
            exclude: Problems that must not be chosen, such as those in flight.
        """
        if count < 0:
            raise ValueError(f"count must be at least 0, got {count}")
        waiting = [problem for problem in self._problems if problem not in exclude]
        waiting.sort(key=lambda problem: (self._problems[problem].visits, self._draw(problem)))
        chosen = waiting[:count]
        for problem in chosen:
            self._problems[problem].visits += 1
        return [RedactedState(problem, self._problems[problem].k) for problem in chosen]

    def settle(self, state: RedactedState, golden_log_probs: Sequence[float]) -> RedactedState:
        """The state to visit instead of one whose teacher token is decided; its length is the problem's k from then on.

        Args:
            state: From `next_states`.
            golden_log_probs: (L,) log-probs of the golden tokens under the present policy, in nats.

        Raises:
            ValueError: if there is not one log-prob for each golden token.
        """
        progress, decided_above = self._progress(state.problem), self.settings.decided_above
        if len(golden_log_probs) != progress.length:
            raise ValueError(
                f"expected a log-prob for each of the {progress.length} golden tokens of {state.problem}, got "
                f"{len(golden_log_probs)}"
            )
        if decided_above is None:
            return state
        undecided = [k for k in range(1, progress.length + 1) if math.exp(golden_log_probs[-k]) <= decided_above]
        if progress.is_falling:
            k = max((k for k in undecided if k <= state.k), default=1)
        else:
            k = min((k for k in undecided if k >= state.k), default=progress.length)
        self._counts["passed_over"] += abs(k - state.k)
        if k != progress.k:
            progress.k, progress.streak = k, 0
        return RedactedState(state.problem, k)

    def observe(self, problem: str, k: int, state_reward: float | None) -> int:
        """Take in the state reward of a visit.

        Args:
            problem: Its id.
            k: Hidden tokens of the state that was visited.
            state_reward: From 0 to 1; None or NaN: no rollout had a label.

        Returns:
            The problem's k from now on.

        Raises:
            KeyError: if there is no such problem.
            ValueError: if the reward is not from 0 to 1.
        """
        progress, settings = self._progress(problem), self.settings
        if state_reward is None or math.isnan(state_reward):
            self._counts["unlabelled"] += 1
            return progress.k
        if not 0 <= state_reward <= 1:
            raise ValueError(f"a state reward is from 0 to 1, got {state_reward} of problem {problem}")
        if k != progress.k:
            self._counts["stale"] += 1
            return progress.k
        progress.last_reward = float(state_reward)
        side = (state_reward >= settings.grow_above) - (state_reward <= settings.shrink_below)
        progress.streak = progress.streak + side if side * progress.streak >= 0 and side else side
        if abs(progress.streak) < settings.patience:
            return progress.k
        if side > 0:
            changed = min(progress.length, max(progress.k + 1, math.floor(progress.k * settings.growth)))
        else:
            changed = max(1, min(progress.k - 1, math.ceil(progress.k / settings.growth)))
        progress.streak = 0
        progress.is_falling = changed < progress.k if changed != progress.k else progress.is_falling
        self._counts["grown"] += changed > progress.k
        self._counts["shrunk"] += changed < progress.k
        progress.k = changed
        return progress.k

    def metrics(self) -> dict[str, float]:
        """Of all problems now, and counts since the start.

        `golden/k/mean|min|max` in tokens, `golden/k/share` (mean of k / L), `golden/k/share_complete` (problems whose
        whole solution is hidden), `golden/k/num_grown|num_shrunk|num_stale|num_unlabelled` (visits),
        `golden/k/num_passed_over` (lengths), `golden/visits/min|max`, and `golden/state_reward/mean` of the last
        labelled visit of each problem (absent before the first).
        """
        problems = list(self._problems.values())
        lengths = [progress.k for progress in problems]
        metrics = {
            "golden/k/mean": sum(lengths) / len(problems),
            "golden/k/min": float(min(lengths)),
            "golden/k/max": float(max(lengths)),
            "golden/k/share": sum(progress.k / progress.length for progress in problems) / len(problems),
            "golden/k/share_complete": sum(progress.k == progress.length for progress in problems) / len(problems),
            "golden/visits/min": float(min(progress.visits for progress in problems)),
            "golden/visits/max": float(max(progress.visits for progress in problems)),
        }
        metrics |= {f"golden/k/num_{name}": float(count) for name, count in self._counts.items()}
        rewards = [progress.last_reward for progress in problems if progress.last_reward is not None]
        if rewards:
            metrics["golden/state_reward/mean"] = sum(rewards) / len(rewards)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, in containers that `json.dumps` takes."""
        return {
            "state_version": _STATE_VERSION,
            "problems": {problem: asdict(progress) for problem, progress in self._problems.items()},
            "counts": dict(self._counts),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; thresholds and seed are those of this run's settings.

        Raises:
            ValueError: if it is of another format, or of other problems or golden solutions. Nothing has changed then.
        """
        if state.get("state_version") != _STATE_VERSION:
            raise ValueError(f"expected state_version {_STATE_VERSION}, got {state.get('state_version')!r}")
        saved = {problem: _Progress(**values) for problem, values in state["problems"].items()}
        for ours, theirs, where in (
            (self._problems, saved, "the checkpoint"),
            (saved, self._problems, "this run"),
        ):
            missing = [problem for problem in ours if problem not in theirs]
            if missing:
                raise ValueError(
                    f"{where} lacks {len(missing)} problem(s) that the other has, such as {missing[0]}: resume with "
                    "the same golden solutions, or start a new run"
                )
        for problem, progress in saved.items():
            if progress.length != self._problems[problem].length:
                raise ValueError(
                    f"the golden solution of {problem} has {self._problems[problem].length} tokens, the checkpoint's "
                    f"had {progress.length}: resume with the same solutions and tokenizer, or start a new run"
                )
        self._problems = {problem: saved[problem] for problem in self._problems}
        self._counts = {name: int(state["counts"].get(name, 0)) for name in self._counts}

    def _progress(self, problem: str) -> _Progress:
        if problem not in self._problems:
            raise KeyError(f"there is no problem {problem!r} among {len(self)} with a golden solution")
        return self._problems[problem]

    def _draw(self, problem: str) -> bytes:
        visits = self._problems[problem].visits
        return hashlib.sha256(f"{self.settings.seed}\n{visits}\n{problem}".encode()).digest()
