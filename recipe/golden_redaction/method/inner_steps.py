"""How the optimizer steps of one update move labelled tokens to their targets and no further. Pure: numpy.

With one step the learning rate decides how far log-probs move: far past a near target, hardly towards a far one. So an
update takes several steps. Each descends

    1/2 sum_t w_t / d_t (goal_t - l_t)^2,    goal_t = l_t + A_t d_t  when the update begins,
                                             d_t = aim * max(0, A_t * (target_t - l_t))

The pull on a token is its weight times the share of its way that remains. At the start it is that of `target_loss`; a
token pushed past its goal, or the wrong way, by others is pulled back the harder the shorter its way. Plain squares
would let one token with ten nats to go push those with a hundredth the wrong way
(docs/benchmarks/golden_redaction.md). The goal is slightly before the target, to leave room for the tokens' effect on
each other.

With v_t = w_t / d_t, a step moves the log-probs from l by r, as measured; to first order the best share of it is

    share = sum_t v_t (goal_t - l_t) r_t / sum_t v_t r_t^2

and a step that was too long is shortened to this share. Then every step lowers the sum. One that was too short is not
lengthened: where tokens pull against each other, little movement comes with a long way of the weights, and everything
else drifts. The next step is as long as the rest of the way takes at the pace of this one, and at most whole, which
saves most measurements of steps that are too long. The update ends when all are near their goals.

M: tokens of all states of an update.
"""

from dataclasses import dataclass

import numpy as np

# Share of a token's distance to its goal that may remain when the update ends.
NEAR = 0.1
# A step whose best share is above this is kept whole.
WHOLE = 0.8
# A step is shortened at most this much at once, and dropped if shorter than `SHORTEST`.
_MOST_AT_ONCE = 0.1
SHORTEST = 1e-4
# Nats. A shorter way counts as this long: the noise of a log-prob should not decide the steps.
SHORTEST_WAY = 0.03


@dataclass(frozen=True, eq=False)
class Goals:
    """Where the tokens of an update should end.

    Attributes:
        start: (M,) log-probs in nats when the update began.
        log_probs: (M,) to reach; NaN for a token without a label, `start` for one past its target.
        weights: (M,) of the squared distances, per nat: the loss's own divided by the token's way.
    """

    start: np.ndarray
    log_probs: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(
        cls, start: np.ndarray, targets: np.ndarray, advantages: np.ndarray, weights: np.ndarray, aim: float
    ) -> "Goals":
        """The goals of an update.

        Args:
            start: (M,) log-probs in nats.
            targets: (M,); ignored where the advantage is 0.
            advantages: (M,) in {+1, 0, -1}.
            weights: (M,) in the loss; see `targets.token_weights`.
            aim: Share of the distance to the target, above 0 and at most 1.
        """
        way = aim * np.maximum(advantages * (np.where(advantages == 0, 0.0, targets) - start), 0.0)
        goals = np.where(advantages == 0, np.nan, start + advantages * way)
        return cls(start, goals, weights / np.maximum(way, SHORTEST_WAY))

    def are_near(self, log_probs: np.ndarray) -> bool:
        """Whether every token has at most `NEAR` of its way left, on either side.

        Args:
            log_probs: (M,) now.
        """
        labelled = np.isfinite(self.log_probs)
        left = np.abs(self.log_probs - log_probs)[labelled]
        way = np.abs(self.log_probs - self.start)[labelled]
        # A token that began past its target has no way to go; the others' steps decide where it ends.
        return bool((left <= NEAR * way)[way > 0].all())

    def best_share(self, before: np.ndarray, after: np.ndarray) -> float:
        """The factor that a step should be scaled by; above 1 if it was too short, 1 for no move.

        Args:
            before, after: (M,) log-probs around the step.
        """
        labelled = np.isfinite(self.log_probs)
        moved, weights = (after - before)[labelled], self.weights[labelled]
        length = float((weights * moved**2).sum())
        return float((weights * (self.log_probs - before)[labelled] * moved).sum()) / length if length else 1.0

    def next_share(self, share: float, before: np.ndarray, after: np.ndarray) -> float:
        """The share of a whole step that the next one is made with: the rest of the way at the pace of the last step.

        Args:
            share: Of the last step, above 0.
            before, after: (M,) log-probs around it.
        """
        labelled = np.isfinite(self.log_probs)
        weights = self.weights[labelled]
        moved = float((weights * (after - before)[labelled] ** 2).sum()) ** 0.5
        left = float((weights * (self.log_probs - after)[labelled] ** 2).sum()) ** 0.5
        return min(1.0, max(SHORTEST, share * left / moved)) if moved else 1.0


def shortened(share: float, best: float) -> float:
    """The share of a whole step to try next, after `share` of it gave `best`; 0: no step helps."""
    tried = share * max(best, _MOST_AT_ONCE)
    return tried if tried >= SHORTEST else 0.0
