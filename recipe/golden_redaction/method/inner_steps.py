"""How the optimizer steps of one update bring labelled tokens to their targets and no further. Pure: numpy.

One step moves log-probs by whatever the learning rate makes of them: far past a near target, hardly toward a far one.
So an update takes several. Each descends

    1/2 sum_t w_t (goal_t - l_t)^2,    goal_t = l_t + aim * A_t * max(0, A_t * (target_t - l_t))  when the update begins

in which the pull on a token is the distance that it has left, and one that others have pushed past its goal is drawn
back. The goal is a little before the target, which leaves room for what the tokens do to each other. A step moves the
log-probs from l by r, as measured; to first order the share of it that serves best is

    share = sum_t w_t (goal_t - l_t) r_t / sum_t w_t r_t^2

and a step that was too long is shortened to that. Taken so, every step lowers the sum. The update ends when all are
near their goals.

M: tokens of all states of an update.
"""

import numpy as np

# Of a token's way to its goal, what may be left when the update ends.
NEAR = 0.1
# A step whose best share is above this is kept whole.
WHOLE = 0.8
# No guess shortens a step further than this at once, and none is kept that is shorter than `SHORTEST`.
_MOST_AT_ONCE = 0.1
SHORTEST = 1e-4


def goals(log_probs: np.ndarray, targets: np.ndarray, advantages: np.ndarray, aim: float) -> np.ndarray:
    """(M,) log-probs to reach; NaN for a token without a label, and where it is for one past its target.

    Args:
        log_probs: (M,) in nats, when the update begins.
        targets: (M,); not looked at where the advantage is 0.
        advantages: (M,) in {+1, 0, -1}.
        aim: Share of the way to the target, above 0 and at most 1.
    """
    way = np.maximum(advantages * (np.where(advantages == 0, 0.0, targets) - log_probs), 0.0)
    return np.where(advantages == 0, np.nan, log_probs + aim * advantages * way)


def are_near(log_probs: np.ndarray, wanted: np.ndarray, start: np.ndarray) -> bool:
    """Whether every token has at most `NEAR` of its way from `start` to its goal left, on either side of it.

    Args:
        log_probs: (M,) now.
        wanted: (M,) of `goals`.
        start: (M,) when the update began.
    """
    labelled = np.isfinite(wanted)
    left = np.abs(wanted - log_probs)[labelled]
    # One that began past its target has no way; the others' steps decide where it ends.
    return bool((left <= NEAR * np.abs(wanted - start)[labelled])[(wanted != start)[labelled]].all())


def best_share(before: np.ndarray, after: np.ndarray, wanted: np.ndarray, weights: np.ndarray) -> float:
    """What a step from `before` to `after` should be multiplied with; above 1 where it was too short, 1 for no move.

    Args:
        before, after: (M,) log-probs around the step.
        wanted: (M,) of `goals`.
        weights: (M,) in the loss.
    """
    labelled = np.isfinite(wanted)
    moved, weights = (after - before)[labelled], weights[labelled]
    length = float((weights * moved**2).sum())
    return float((weights * (wanted - before)[labelled] * moved).sum()) / length if length else 1.0


def shortened(share: float, best: float) -> float:
    """The share of a whole step to try next, after `share` of it had `best`; 0: none of it helps."""
    tried = share * max(best, _MOST_AT_ONCE)
    return tried if tried >= SHORTEST else 0.0
