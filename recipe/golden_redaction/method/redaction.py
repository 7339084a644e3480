"""Which problems are visited next, and with how much of their golden solutions hidden. Pure.

`progress.py` moves each problem's k. This module schedules the turns: each visit is one turn, and the problems with the
fewest turns come first. Within a turn they come from easy to hard, which is the order of `golden_lengths`, or in an
order drawn from (seed, turn, problem id). So turns differ by at most one between problems (an excluded problem, such as
one in flight,
catches up), except for those that have retired: the next turn of a solved problem, a check, is `check_after` turns of
the others later. A check with a high reward sends it away again, any other reward brings it back. Where a step asks for
more problems than are waiting, the checks that are due next come early.

The order depends only on the settings and the ids, so a resumed run continues it.

P: problems.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from recipe.golden_redaction.method.progress import Progress, RedactionSettings

_STATE_VERSION = 2
# State version without turns; `Progress.read` fills in the missing fields.
_OLDER_VERSION = 1

# Counters since the start, and their metrics.
_COUNTS = {
    "grown": "golden/k/num_grown",
    "shrunk": "golden/k/num_shrunk",
    "stale": "golden/k/num_stale",
    "unlabelled": "golden/k/num_unlabelled",
    "passed_over": "golden/k/num_passed_over",
    "checks": "golden/retired/num_checks",
    "returned": "golden/retired/num_returned",
}


@dataclass(frozen=True, slots=True)
class RedactedState:
    """One state to visit.

    Attributes:
        problem: Its id.
        k: Hidden tokens of its golden solution.
        prompt: Number of the prompt that shows the task, of `Problem.prompts`.
    """

    problem: str
    k: int
    prompt: int = 0


class RedactionController:
    """Redaction lengths of P problems.

    Args:
        golden_lengths: Tokens of each problem's golden solution, by problem id, from easy to hard.
        settings: See `RedactionSettings`.
        num_prompts: Prompts of each problem, of which visits take turns; problems that it lacks have one.

    Raises:
        ValueError: if there is no problem, or a golden solution has no tokens.
    """

    def __init__(
        self,
        golden_lengths: Mapping[str, int],
        settings: RedactionSettings,
        num_prompts: Mapping[str, int] | None = None,
    ) -> None:
        if not golden_lengths:
            raise ValueError("expected at least one problem with a golden solution, got none")
        empty = [problem for problem, length in golden_lengths.items() if length < 1]
        if empty:
            raise ValueError(f"golden solutions of at least one token are needed; empty: {', '.join(empty[:5])}")
        self.settings = settings
        self._problems = {
            problem: Progress.start(length, min(settings.initial_k, length))
            for problem, length in golden_lengths.items()
        }
        self._num_prompts = dict.fromkeys(golden_lengths, 1) | dict(num_prompts or {})
        self._ranks = {problem: rank for rank, problem in enumerate(golden_lengths)}
        self._counts = dict.fromkeys(_COUNTS, 0)

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
        waiting.sort(key=self._place)
        chosen = waiting[:count]
        states = []
        for problem in chosen:
            progress = self._problems[problem]
            states.append(RedactedState(problem, progress.k, progress.visits % self._num_prompts[problem]))
            progress.visits += 1
            progress.turn += 1
        return states

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
        progress.k = state.k
        self._counts["passed_over"] += progress.settle(golden_log_probs, decided_above)
        return replace(state, k=progress.k)

    def observe(self, problem: str, k: int, state_reward: float | None) -> int:
        """Record the state reward of a visit.

        Args:
            problem: Its id.
            k: Hidden tokens of the state that was visited.
            state_reward: From 0 to 1; None or NaN: no rollout had a label.

        Returns:
            The problem's k from now on.

        Raises:
            KeyError: if the problem is unknown.
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
        is_check = progress.has_retired(settings)
        change = progress.observe(state_reward, settings)
        self._counts["grown"] += change > 0
        self._counts["shrunk"] += change < 0
        self._counts["checks"] += is_check
        if progress.has_retired(settings):
            progress.turn += settings.check_after
        else:
            self._counts["returned"] += is_check
        return progress.k

    def restore(self, problem: str, visits: Sequence[tuple[int, float | None]]) -> int:
        """Continue a problem where an earlier run stopped; turns and counts are not taken over.

        Args:
            problem: Its id.
            visits: k and state reward of its visits there, in order.

        Returns:
            The problem's k from now on.

        Raises:
            KeyError, ValueError: see `observe`; also if a length is not from 1 to the golden tokens.
        """
        progress, counts = self._progress(problem), dict(self._counts)
        for k, state_reward in visits:
            progress.jump(k)
            self.observe(problem, k, state_reward)
        self._counts = counts
        progress.turn = self.settings.check_after if progress.has_retired(self.settings) else 0
        return progress.k

    def metrics(self) -> dict[str, float]:
        """Metrics of all problems now, and counts since the start.

        `golden/k/mean|min|max` in tokens, `golden/k/share` (mean of k / L), `golden/k/share_complete` (problems whose
        whole solution is hidden), `golden/k/share_reached` (those whose whole solution was hidden in a visit),
        `golden/k/num_grown|num_shrunk|num_stale|num_unlabelled` (visits),
        `golden/k/num_passed_over` (lengths), `golden/visits/min|max`, `golden/retired/share` (solved problems),
        `golden/retired/num_checks|num_returned` (visits of these, and those that brought one back), and
        `golden/state_reward/mean` of the last labelled visit of each problem (absent before the first).
        """
        problems = list(self._problems.values())
        lengths = [progress.k for progress in problems]
        metrics = {
            "golden/k/mean": sum(lengths) / len(problems),
            "golden/k/min": float(min(lengths)),
            "golden/k/max": float(max(lengths)),
            "golden/k/share": sum(progress.k / progress.length for progress in problems) / len(problems),
            "golden/k/share_complete": sum(progress.k == progress.length for progress in problems) / len(problems),
            "golden/k/share_reached": sum(progress.longest == progress.length for progress in problems) / len(problems),
            "golden/visits/min": float(min(progress.visits for progress in problems)),
            "golden/visits/max": float(max(progress.visits for progress in problems)),
            "golden/retired/share": sum(progress.has_retired(self.settings) for progress in problems) / len(problems),
        }
        metrics |= {_COUNTS[name]: float(count) for name, count in self._counts.items()}
        rewards = [progress.last_reward for progress in problems if progress.last_reward is not None]
        if rewards:
            metrics["golden/state_reward/mean"] = sum(rewards) / len(rewards)
        return metrics

    def state_dict(self, in_flight: Collection[str] = ()) -> dict[str, Any]:
        """The state that a resumed run needs, in containers that `json.dumps` accepts.

        Args:
            in_flight: Problems whose last visit will be lost, and is not counted.
        """
        problems = {problem: asdict(progress) for problem, progress in self._problems.items()}
        for problem in in_flight:
            problems[problem]["visits"] -= 1
            problems[problem]["turn"] -= 1
        return {
            "state_version": _STATE_VERSION,
            "problems": problems,
            "counts": dict(self._counts),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; thresholds and seed are those of this run's settings.

        Raises:
            ValueError: if its format, problems or golden solutions differ. Nothing is changed then.
        """
        if state.get("state_version") not in (_OLDER_VERSION, _STATE_VERSION):
            raise ValueError(
                f"expected state_version {_OLDER_VERSION} or {_STATE_VERSION}, got {state.get('state_version')!r}: "
                "resume with the version of verl-signal that wrote the checkpoint, or start a new run"
            )
        saved = {problem: Progress.read(values) for problem, values in state["problems"].items()}
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

    def _progress(self, problem: str) -> Progress:
        if problem not in self._problems:
            raise KeyError(f"there is no problem {problem!r} among {len(self)} with a golden solution")
        return self._problems[problem]

    def _place(self, problem: str) -> tuple[int, int | bytes]:
        """Sort key of problems: the lowest comes first."""
        turn = self._problems[problem].turn
        if self.settings.order == "easy_to_hard":
            return turn, self._ranks[problem]
        return turn, hashlib.sha256(f"{self.settings.seed}\n{turn}\n{problem}".encode()).digest()
