"""How the optimizer steps of one update move labelled tokens to their targets and no further. Pure: numpy.

With one step the learning rate decides how far log-probs move: far past a near target, hardly towards a far one. So an
update takes several steps. Each descends

    1/2 sum_t w_t (goal_t - l_t)^2,    goal_t = l_t + aim * A_t * max(0, A_t * (target_t - l_t))  when the update begins

in which the pull on a token is its remaining distance, and a token pushed past its goal by others is pulled back. The
goal is slightly before the target, to leave room for the tokens' effect on each other. A step moves the log-probs from
l by r, as measured; to first order the best share of it is

    share = sum_t w_t (goal_t - l_t) r_t / sum_t w_t r_t^2

and a step that was too long is shortened to this share. Then every step lowers the sum. One that was too short is not
lengthened: where tokens pull against each other, little movement comes with a long way of the weights, and everything
else drifts (docs/benchmarks/golden_redaction.md). The next step is as long as the rest of the way takes at the pace of
this one, and at most whole, which saves most measurements of steps that are too long. The update ends when all are near
their goals.

M: tokens of all states of an update.
"""

import numpy as np

# Share of a token's distance to its goal that may remain when the update ends.
NEAR = 0.1
# A step whose best share is above this is kept whole.
WHOLE = 0.8
# A step is shortened at most this much at once, and dropped if shorter than `SHORTEST`.
_MOST_AT_ONCE = 0.1
SHORTEST = 1e-4


def goals(log_probs: np.ndarray, targets: np.ndarray, advantages: np.ndarray, aim: float) -> np.ndarray:
    """(M,) log-probs to reach; NaN for a token without a label, the current log-prob for one past its target.

    Args:
        log_probs: (M,) in nats, when the update begins.
        targets: (M,); ignored where the advantage is 0.
        advantages: (M,) in {+1, 0, -1}.
        aim: Share of the distance to the target, above 0 and at most 1.
    """
    way = np.maximum(advantages * (np.where(advantages == 0, 0.0, targets) - log_probs), 0.0)
    return np.where(advantages == 0, np.nan, log_probs + aim * advantages * way)


def are_near(log_probs: np.ndarray, wanted: np.ndarray, start: np.ndarray) -> bool:
    """Whether every token has at most `NEAR` of its distance from `start` to its goal left, on either side.

    Args:
        log_probs: (M,) now.
        wanted: (M,) of `goals`.
        start: (M,) when the update began.
    """
    labelled = np.isfinite(wanted)
    left = np.abs(wanted - log_probs)[labelled]
    # A token that began past its target has no distance to go; the others' steps decide where it ends.
    return bool((left <= NEAR * np.abs(wanted - start)[labelled])[(wanted != start)[labelled]].all())


def best_share(before: np.ndarray, after: np.ndarray, wanted: np.ndarray, weights: np.ndarray) -> float:
    """The factor that a step from `before` to `after` should be scaled by; above 1 if it was too short, 1 for no move.

    Args:
        before, after: (M,) log-probs around the step.
        wanted: (M,) of `goals`.
        weights: (M,) in the loss.
    """
    labelled = np.isfinite(wanted)
    moved, weights = (after - before)[labelled], weights[labelled]
    length = float((weights * moved**2).sum())
    return float((weights * (wanted - before)[labelled] * moved).sum()) / length if length else 1.0


def next_share(share: float, before: np.ndarray, after: np.ndarray, wanted: np.ndarray, weights: np.ndarray) -> float:
    """The share of a whole step that the next one is made with: the rest of the way at the pace of the last step.

    Args:
        share: Of the last step, above 0.
        before, after: (M,) log-probs around it.
        wanted: (M,) of `goals`.
        weights: (M,) in the loss.
    """
    labelled = np.isfinite(wanted)
    weights = weights[labelled]
    moved = float((weights * (after - before)[labelled] ** 2).sum()) ** 0.5
    left = float((weights * (wanted - after)[labelled] ** 2).sum()) ** 0.5
    return min(1.0, max(SHORTEST, share * left / moved)) if moved else 1.0


def shortened(share: float, best: float) -> float:
    """The share of a whole step to try next, after `share` of it gave `best`; 0: no step helps."""
    tried = share * max(best, _MOST_AT_ONCE)
    return tried if tried >= SHORTEST else 0.0
