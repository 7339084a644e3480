"""TracIn's scores for a page: distributions by reward and over time, and the extreme samples. Pure."""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verl_ext.report.curves import quantile, short

NUM_BINS = 41
NUM_EXTREMES = 100  # at each end, over the run
NUM_STEP_EXTREMES = 10  # at each end, of each step
MAX_CLASSES = 5  # of rewards; more are grouped into bins
MAX_CHARACTERS = 20_000  # of a text
QUANTILES = (0.05, 0.5, 0.95)

FIELDS = ("step", "index", "key", "reward", "advantage", "score", "weight")


def valid_samples(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The samples with a step and a finite score."""
    return [record for record in records if type(record.get("step")) is int and _is_number(record.get("score"))]


def reward_classes(rewards: Sequence[float | None]) -> list[tuple[str, float, float]]:
    """(name, low, high) of disjoint classes that hold every reward with low <= reward <= high, in order.

    If there are few distinct rewards, each is a class; otherwise `MAX_CLASSES` bins of equal width, open at their lower
    end.
    """
    known = sorted({reward for reward in rewards if reward is not None})
    if len(known) <= MAX_CLASSES:
        return [(f"reward {reward:g}", reward, reward) for reward in known]
    low, high = known[0], known[-1]
    edges = [low + (high - low) * place / MAX_CLASSES for place in range(MAX_CLASSES)] + [high]
    found = []
    for left, right in itertools.pairwise(edges):
        inside = [reward for reward in known if left <= reward <= right and (left == low or reward > left)]
        if inside:
            found.append((f"reward {inside[0]:.3g} to {inside[-1]:.3g}", inside[0], inside[-1]))
    return found


def class_of(reward: float | None, classes: Sequence[tuple[str, float, float]]) -> int | None:
    """Index of the reward's class; None for a reward in none."""
    if reward is None:
        return None
    return next((place for place, (_, low, high) in enumerate(classes) if low <= reward <= high), None)


def bin_edges(scores: Sequence[float], num_bins: int = NUM_BINS) -> list[float]:
    """Edges of bins of equal width over the middle 98 % of the scores, symmetric about 0 so that the sign is visible.

    Scores have long tails: over their whole range nearly all would fall into one bin. Outliers belong to the first and
    the last bin.
    """
    reach = max(abs(quantile(scores, 0.01)), abs(quantile(scores, 0.99)))
    # Nearly all scores may be 0.
    reach = reach or max(map(abs, scores)) or 1.0
    return [reach * (2 * place / num_bins - 1) for place in range(num_bins + 1)]


def histogram(scores: Iterable[float], edges: Sequence[float]) -> list[int]:
    """Number of scores per bin [left, right); those beyond the ends are in the end bins."""
    counts = [0] * (len(edges) - 1)
    for score in scores:
        counts[min(max(bisect_right(edges, score) - 1, 0), len(counts) - 1)] += 1
    return counts


def influence_data(records: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The content of the influence view; None without samples.

    Returns:
        `num`, `has_text`; `classes` (names); `edges` and `counts[class][bin]`; `steps` and
        `bands[class][quantile][step]` (None where a step has no such sample); `lowest` and `highest` samples of the
        run, and of each step under `by_step`, most extreme first. Samples without a reward are in the extremes only.
    """
    samples = valid_samples(records)
    if not samples:
        return None
    classes = reward_classes([_reward(sample) for sample in samples])
    places = [class_of(_reward(sample), classes) for sample in samples]
    edges = bin_edges([sample["score"] for sample in samples])
    steps = sorted({sample["step"] for sample in samples})
    parts: dict[tuple[int | None, int], list[float]] = {}
    for sample, place in zip(samples, places, strict=True):
        parts.setdefault((place, sample["step"]), []).append(sample["score"])
    of_step: dict[int, list[Mapping[str, Any]]] = {}
    for sample in samples:
        of_step.setdefault(sample["step"], []).append(sample)
    return {
        "num": len(samples),
        "has_text": any(_texts(sample) for sample in samples),
        "ends": list(reward_ends(samples)),
        "classes": [name for name, _, _ in classes],
        "edges": [short(edge) for edge in edges],
        "counts": [
            histogram((score for step in steps for score in parts.get((place, step), ())), edges)
            for place in range(len(classes))
        ],
        "steps": steps,
        "bands": [
            [[_quantile(parts.get((place, step)), share) for step in steps] for share in QUANTILES]
            for place in range(len(classes))
        ],
        **extremes(samples, NUM_EXTREMES),
        **disagreements(samples, reward_ends(samples), NUM_EXTREMES),
        "by_step": {
            str(step): extremes(of_step[step], NUM_STEP_EXTREMES)
            | disagreements(of_step[step], reward_ends(samples), NUM_STEP_EXTREMES)
            for step in steps
        },
    }


def reward_ends(samples: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """The lowest and the highest reward; None for both if all are equal."""
    rewards = {reward for sample in samples if (reward := _reward(sample)) is not None}
    return (min(rewards), max(rewards)) if len(rewards) > 1 else (None, None)


def disagreements(
    samples: Sequence[Mapping[str, Any]], ends: tuple[float | None, float | None], number: int
) -> dict[str, list[dict[str, Any]]]:
    """Where score and reward disagree, most extreme first.

    Args:
        samples: Samples with scores.
        ends: Result of `reward_ends`.
        number: Maximum number of samples.

    Returns:
        `failed_high`: lowest reward and score above 0; `passed_low`: highest reward and score below 0.
    """
    low, high = ends
    failed = [sample for sample in samples if low is not None and _reward(sample) == low and sample["score"] > 0]
    passed = [sample for sample in samples if high is not None and _reward(sample) == high and sample["score"] < 0]
    return {
        "failed_high": [_shown(one) for one in sorted(failed, key=lambda one: -one["score"])[:number]],
        "passed_low": [_shown(one) for one in sorted(passed, key=lambda one: one["score"])[:number]],
    }


def extremes(samples: Sequence[Mapping[str, Any]], number: int) -> dict[str, list[dict[str, Any]]]:
    """`lowest` and `highest`: `number` samples each (no sample is in both), most extreme first."""
    ordered = sorted(samples, key=lambda sample: sample["score"])
    number = min(number, len(ordered) // 2 or 1)
    return {
        "lowest": [_shown(sample) for sample in ordered[:number]],
        "highest": [_shown(sample) for sample in ordered[number:][-number:][::-1]],
    }


def _shown(sample: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: sample[name] for name in FIELDS if _is_plain(sample.get(name))}
    return shown | _texts(sample)


def _texts(sample: Mapping[str, Any]) -> dict[str, str]:
    """`prompt` and `response`, as far as they were recorded."""
    return {
        name: value[:MAX_CHARACTERS] for name in ("prompt", "response") if isinstance(value := sample.get(name), str)
    }


def _reward(sample: Mapping[str, Any]) -> float | None:
    return sample["reward"] if _is_number(sample.get("reward")) else None


def _quantile(scores: Sequence[float] | None, share: float) -> float | None:
    return short(quantile(scores, share)) if scores else None


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) or type(value) is int or _is_number(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
