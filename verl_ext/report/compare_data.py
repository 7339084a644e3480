"""Several runs side by side: names, curves, numbers with differences, cost of an accuracy, seeds. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_ext.report import curves
from verl_ext.report.blocks import pack
from verl_ext.run.trainer_metrics import is_accuracy

# Keys that differ between runs of one configuration with several seeds.
_OF_ONE_RUN = re.compile(r"seed|run_dir|experiment_name|local_dir", re.IGNORECASE)
_NUM_LEVELS = 5
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)

Point = tuple[float, float | None, float | None]
"""(accuracy, rollouts generated, seconds) at a validation."""

Table = Mapping[str, Sequence[float | None]]


def names_of(paths: Sequence[Path]) -> list[str]:
    """The shortest unique ends of the paths; a duplicated path gets a number."""
    parts = [path.resolve().parts for path in paths]
    names = []
    for place, own in enumerate(parts):
        length = next(
            (
                length
                for length in range(1, len(own))
                if all(other[-length:] != own[-length:] for other in parts if other != own)
            ),
            len(own),
        )
        name = "/".join(own[-length:])
        repeats = parts[:place].count(own)
        names.append(f"{name} ({repeats + 1})" if repeats else name)
    return names


def compare_curve_blocks(tables: Sequence[Table]) -> dict[str, str]:
    """`curves-{group}`: metric -> one list of values per run; None for a run without that metric."""
    names = {name for table in tables for name in table}
    return {
        f"curves-{group}": pack(
            {
                name: [[curves.short(value) for value in table[name]] if name in table else None for table in tables]
                for name in own
            }
        )
        for group, own in curves.groups(names).items()
    }


def number_rows(numbers: Sequence[Mapping[str, float]]) -> list[list[Any]]:
    """[name, [value of each run or None], [difference to the first run or None]], in the order of first appearance."""
    names = list(dict.fromkeys(name for own in numbers for name in own))
    rows = []
    for name in names:
        values = [own.get(name) for own in numbers]
        rows.append([name, values, [_difference(value, values[0]) for value in values]])
    return rows


def _difference(value: float | None, first: float | None) -> float | None:
    return None if value is None or first is None else curves.short(value - first)


# ------------------------------ cost of an accuracy ------------------------------


def accuracy_points(table: Table) -> list[Point]:
    """For every validation, in order: the mean over the validation sets, and the cost until then."""
    names = [name for name in table if is_accuracy(name)]
    rows = zip(
        zip(*(table[name] for name in names), strict=True) if names else (),
        curves.axis(table, "rollouts") or [None] * len(table[names[0]] if names else ()),
        curves.axis(table, "seconds") or [None] * len(table[names[0]] if names else ()),
        strict=False,
    )
    found: list[Point] = []
    for values, rollouts, seconds in rows:
        known = [value for value in values if value is not None]
        if known:
            found.append((sum(known) / len(known), rollouts, seconds))
    return found


def accuracy_levels(runs: Sequence[Sequence[Point]]) -> list[float]:
    """At most `_NUM_LEVELS` round accuracies that at least one run reached during training."""
    known = [points for points in runs if points]
    if not known:
        return []
    low = max(points[0][0] for points in known)
    high = max(point[0] for points in known for point in points)
    step = next((step for step in _STEPS if (high - low) / step <= _NUM_LEVELS), _STEPS[-1])
    rounded = [round(number * step, 2) for number in range(math.ceil(1 / step) + 1)]
    return [level for level in rounded if low < level <= high][-_NUM_LEVELS:]


def reached(points: Sequence[Point], level: float) -> tuple[float | None, float | None] | None:
    """Rollouts and seconds until the first validation with at least this accuracy; None if there was none."""
    return next(((rollouts, seconds) for accuracy, rollouts, seconds in points if accuracy >= level), None)


def level_rows(runs: Sequence[Sequence[Point]]) -> list[list[Any]]:
    """[accuracy, [[rollouts, seconds] or None for each run]] of `accuracy_levels`."""
    return [[level, [reached(points, level) for points in runs]] for level in accuracy_levels(runs)]


# ------------------------------ seeds ------------------------------


def seed_groups(names: Sequence[str], configs: Sequence[Mapping[str, str]]) -> list[int]:
    """For each run the number of its group: runs whose configurations differ in seeds and names only.

    For runs without a configuration, those whose names differ in a number at the end.
    """
    numbers: dict[Any, int] = {}
    found = []
    for name, config in zip(names, configs, strict=True):
        kept = frozenset((key, value) for key, value in config.items() if not _OF_ONE_RUN.search(key))
        key = kept or re.sub(r"[-_.]?(seed|s)?[-_.]?\d+$", "", name)
        found.append(numbers.setdefault(key, len(numbers)))
    return found
