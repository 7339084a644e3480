"""How an update moved the log-probs of a state's tokens, in the trainer or in the serving engine. Pure: numpy.

A labelled token has moved along by A * (after - before) nats and its target distance is A * (target - before). It is
exactly one of

    wrong_way   moved along by less than -tolerance
    still       by at most tolerance, in either direction
    overshot    past its target by more than tolerance
    intended    everything else: towards the target, or onto it

`intended_way` counts intended and overshot ones: the direction was right. Tokens of the state without a label should
not move; how far they moved, and the change in probability of all untried tokens, is drift.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

KINDS = ("intended", "overshot", "wrong_way", "still")


@dataclass(frozen=True, eq=False)
class Movement:
    """Movement of one state's K tokens.

    Attributes:
        kinds: K strings, from `KINDS`, or "" for a token without a label.
        moved: (K,) float64, along the advantage in nats; NaN without a label.
        asked: (K,) float64, the distance to the target, likewise.
        drift: (K,) float64, after - before in nats of tokens without a label; NaN for the others.
        others: Change of the probability of all tokens outside the state's K.
    """

    kinds: tuple[str, ...]
    moved: np.ndarray
    asked: np.ndarray
    drift: np.ndarray
    others: float


def movement(
    before: Sequence[float] | np.ndarray,
    after: Sequence[float] | np.ndarray,
    targets: Sequence[float] | np.ndarray,
    advantages: Sequence[int] | np.ndarray,
    tolerance: float = 1e-4,
) -> Movement:
    """Compare the log-probs of one state's tokens before and after an update.

    Args:
        before, after: (K,) in nats, measured the same way (both in the trainer, or both in the engine).
        targets: (K,); ignored where the advantage is 0.
        advantages: (K,) in {+1, 0, -1}.
        tolerance: In nats, at least 0: noise of the measurement.

    Raises:
        ValueError: if shapes differ, the tolerance is negative, or a labelled token has a number that is not finite.
    """
    before, after, targets = (np.asarray(values, dtype=np.float64) for values in (before, after, targets))
    advantages = np.asarray(advantages, dtype=np.int64)
    if before.ndim != 1 or not before.shape == after.shape == targets.shape == advantages.shape:
        raise ValueError(
            "expected before, after, targets and advantages of one shape (K,), got "
            f"{[array.shape for array in (before, after, targets, advantages)]}"
        )
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0 nats, got {tolerance}")
    labelled = advantages != 0
    for name, values in (("before", before), ("after", after), ("targets", targets)):
        if not np.isfinite(values[labelled]).all():
            raise ValueError(f"{name} must be finite for every labelled token, got {values[labelled].tolist()}")
    moved = np.where(labelled, advantages * (after - before), np.nan)
    asked = np.where(labelled, advantages * (targets - before), np.nan)
    kinds = tuple(
        _kind(float(way), float(goal), tolerance) if is_labelled else ""
        for way, goal, is_labelled in zip(moved, asked, labelled, strict=True)
    )
    others = float(np.exp(before).sum() - np.exp(after).sum())
    return Movement(kinds, moved, asked, np.where(labelled, np.nan, after - before), others)


def _kind(moved: float, asked: float, tolerance: float) -> str:
    if moved < -tolerance:
        return "wrong_way"
    if moved <= tolerance:
        return "still"
    return "overshot" if moved > asked + tolerance else "intended"


def movement_metrics(movements: Iterable[Movement], where: str) -> dict[str, float]:
    """Metrics of an update; a share or mean over zero tokens has no key.

    `golden/movement/{where}/{kind}` and `/intended_way`: shares of the labelled tokens; `/num_tokens`: those tokens;
    `/moved` and `/asked`: mean nats along the advantage; `/drift_mean` and `/drift_max`: |nats| of the tokens without a
    label; `/others`: mean |change| of the probability of the untried tokens.

    Args:
        movements: Movements of the update's states.
        where: Where log-probs were measured: trainer or engine.
    """
    movements = list(movements)
    prefix = f"golden/movement/{where}"
    kinds = [kind for movement in movements for kind in movement.kinds if kind]
    metrics = {f"{prefix}/num_tokens": float(len(kinds))}
    if kinds:
        metrics |= {f"{prefix}/{kind}": kinds.count(kind) / len(kinds) for kind in KINDS}
        metrics[f"{prefix}/intended_way"] = (kinds.count("intended") + kinds.count("overshot")) / len(kinds)
        metrics[f"{prefix}/moved"] = float(np.nanmean(np.concatenate([movement.moved for movement in movements])))
        metrics[f"{prefix}/asked"] = float(np.nanmean(np.concatenate([movement.asked for movement in movements])))
    drift = [np.abs(movement.drift[np.isfinite(movement.drift)]) for movement in movements]
    if any(len(values) for values in drift):
        metrics[f"{prefix}/drift_mean"] = float(np.concatenate(drift).mean())
        metrics[f"{prefix}/drift_max"] = float(np.concatenate(drift).max())
    if movements:
        metrics[f"{prefix}/others"] = float(np.mean([abs(movement.others) for movement in movements]))
    return metrics
