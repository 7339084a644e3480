"""Wrong rewards, and how well influence scores identify them. Pure: numpy and scipy.

B: samples of a step.
"""

from collections.abc import Mapping

import numpy as np
from scipy.stats import mannwhitneyu


def flip(rewards: np.ndarray, share: float, seed: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """0/1 rewards of which each is reversed with probability `share`; (B,) rewards and (B,) bool: which were.

    Drawn from (seed, step): every method of a seed has the same places of its batches reversed.
    """
    flipped = np.random.default_rng([seed, step]).random(len(rewards)) < share
    return np.where(flipped, 1.0 - rewards, rewards), flipped


def auroc(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Chance that a draw of `high` exceeds one of `low` (ties count half), and the p-value of "it does no more often".

    Mann-Whitney U, one-sided. (nan, nan) where a side is empty.

    Example:
        >>> auroc(np.array([0.0, 1.0]), np.array([1.0, 2.0]))[0]
        0.875
    """
    if not len(low) or not len(high):
        return float("nan"), float("nan")
    test = mannwhitneyu(high, low, alternative="greater")
    return float(test.statistic / (len(low) * len(high))), float(test.pvalue)


def is_mixed(rewards: np.ndarray, group: int) -> np.ndarray:
    """(B,) bool: the rewards of the sample's group differ; groups are `group` samples in a row."""
    groups = rewards.reshape(-1, group)
    return np.repeat(groups.min(1) < groups.max(1), group)


def describe_samples(table: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The share kept, and how well scores identify reversed rewards, over all samples of a run.

    Args:
        table: Columns flipped, informative (its advantage is not 0), learnable (its group's true rewards differ), kept:
            bool; reported: the reward after reversal; score: in units that make steps comparable, nan where there is
            none.
    """
    flipped, informative, kept = table["flipped"], table["informative"], table["kept"]
    described = {
        "selection_ratio": float(kept.mean()),
        "informative_share": float(informative.mean()),
        "informative_kept": float(kept[informative].mean()),
        "flipped_among_kept": float(flipped[kept & informative].mean()),
    }
    scored = np.isfinite(table["score"])
    if not scored.any() or not flipped.any():
        return described
    for name, rows in (("flipped", flipped), ("unflipped", ~flipped)):
        described[f"positive_share_{name}"] = float((table["score"][scored & informative & rows] > 0).mean())
    for name, rows in (
        ("all", scored),
        ("informative", scored & informative),
        ("learnable", scored & table["learnable"]),
        ("reported_1", scored & informative & (table["reported"] > 0.5)),
        ("reported_0", scored & informative & (table["reported"] < 0.5)),
    ):
        area, p_value = auroc(table["score"][rows & flipped], table["score"][rows & ~flipped])
        described |= {f"auroc_{name}": area, f"p_{name}": p_value}
    return described
