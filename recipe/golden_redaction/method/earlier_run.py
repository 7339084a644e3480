"""State taken over from an earlier run: the progress of its problems, and visits to train on. Pure.

A recorded visit is fresh if its policy is near the current one, by two measures: how many weight versions it is behind
the newest of its file, and how far the log-probs of its actions have moved since. The second queries the current
policy, so it also detects whether the run starts from other weights than the earlier run's last. For the K actions of a
state it is

    gap = sum_t w_t |log p_t now - log p_t then|,   w_t = (p_t now + p_t then) / sum of these over t

in nats: a mean weighted by how often a token is sampled. A policy that has trained on the visit and brought the
tokens to their targets is far from the one that made it: that visit is used up.

K: actions of a state.
"""

from collections.abc import Callable, Sequence

import numpy as np

from recipe.golden_redaction.method.visits import Recorded, StateVisit

Ask = Callable[[Sequence[StateVisit]], Sequence[Sequence[float]]]
"""Maps visits to the log-probs of their K actions under the current policy, in nats."""


def log_prob_gap(then: Sequence[float], now: Sequence[float]) -> float:
    """How far two policies are from each other in a state; see the module's docstring.

    Args:
        then, now: K log-probs in nats.

    Raises:
        ValueError: if the lengths differ or are 0.
    """
    if len(then) != len(now) or not len(then):
        raise ValueError(f"expected log-probs of the same tokens, at least one, got {len(then)} and {len(now)}")
    log_probs = np.array([then, now], dtype=float)
    weights = np.exp(log_probs).sum(axis=0)
    if weights.sum() == 0:  # probabilities that underflow to 0 in float64
        weights += 1.0
    return float((weights * np.abs(log_probs[1] - log_probs[0])).sum() / weights.sum())


class EarlierRun:
    """The recorded visits of an earlier run.

    Args:
        history: All recorded visits of this run's states, in order.
        recent: The visits that are fresh by version, to train on.
        max_gap: See `log_prob_gap`; None: any.
    """

    def __init__(self, history: Sequence[StateVisit], recent: Sequence[StateVisit], max_gap: float | None) -> None:
        self._history: dict[str, list[StateVisit]] = {}
        for visit in history:
            self._history.setdefault(visit.problem, []).append(visit)
        self._recent = list(recent)
        self._max_gap = max_gap
        self.num_used = 0
        """Number of recent visits that `take` has examined."""
        self.num_far = 0
        """Number of visits in its last call that were too far from the current policy."""

    @property
    def num_problems(self) -> int:
        """Number of problems with at least one visit."""
        return len(self._history)

    @property
    def is_used_up(self) -> bool:
        """Whether `take` has nothing left."""
        return self.num_used >= len(self._recent)

    def lengths(self, ask: Ask) -> dict[str, list[tuple[int, float | None]]]:
        """Progress of each problem: (k, state reward) of its visits, up to the last one near the current policy.
        Problems without one are absent.

        The last visits of all problems are checked first; earlier ones only if the policy is far.
        """
        found: dict[str, list[tuple[int, float | None]]] = {}
        ends = {problem: len(visits) for problem, visits in self._history.items()}
        while ends:
            last = [self._history[problem][end - 1] for problem, end in ends.items()]
            for visit, is_near in zip(last, self._are_near(last, ask), strict=True):
                end = ends.pop(visit.problem)
                if is_near:
                    until = self._history[visit.problem][:end]
                    found[visit.problem] = [(earlier.k, _recorded(earlier).state_reward) for earlier in until]
                elif end > 1:
                    ends[visit.problem] = end - 1
        return found

    def take(self, count: int, ask: Ask) -> list[StateVisit]:
        """The next recent visits near the current policy; fewer than `count` if there are no more."""
        taken: list[StateVisit] = []
        self.num_far = 0
        while len(taken) < count and not self.is_used_up:
            part = self._recent[self.num_used : self.num_used + count - len(taken)]
            self.num_used += len(part)
            near = [visit for visit, is_near in zip(part, self._are_near(part, ask), strict=True) if is_near]
            self.num_far += len(part) - len(near)
            taken += near
        return taken

    def _are_near(self, visits: Sequence[StateVisit], ask: Ask) -> list[bool]:
        if self._max_gap is None:
            return [True] * len(visits)
        return [
            log_prob_gap(_recorded(visit).log_probs, now) <= self._max_gap
            for visit, now in zip(visits, ask(visits), strict=True)
        ]


def _recorded(visit: StateVisit) -> Recorded:
    assert visit.recorded is not None, "only visits read from records can be taken"
    return visit.recorded
