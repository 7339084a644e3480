"""A run's metrics as curves: columns, groups, axes, smoothing. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verl_ext.core.metric_glossary import VERLS_METRICS, find_entry, is_verls
from verl_ext.launch.recipe import glossaries, recipes
from verl_ext.report.recipe_pages import all_pages
from verl_ext.run.metrics_stream import STEP
from verl_ext.run.trainer_metrics import is_accuracy

AXES = {
    "step": (STEP, "step"),
    "seconds": ("training/total/seconds", "seconds of training"),
    "rollouts": ("training/total/rollouts_generated", "rollouts generated"),
}
"""Choice of the horizontal axis -> (metric, title)."""

# Groups that show whether it learns come before verl's many details; those of recipes are in between.
_FIRST_GROUPS = ("val-core", "val-aux")
_NEXT_GROUPS = ("engine_guard", "critic", "actor")

# The metrics to show first, in this order; a name that ends with `*` stands for all with this prefix. Those of recipes
# are in between.
_FIRST_HEADLINES = ("critic/score/mean",)
_NEXT_HEADLINES = (
    "actor/entropy",
    "actor/grad_norm",
    "response_length/mean",
    "engine_guard/probs_diff_mean*",
    "timing_s/step",
)
NUM_HEADLINES = 8
NUM_ACCURACIES = 3  # with several validation sets, the overview has all of them in one chart


def columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Each metric that has a number anywhere, with one value per record; None where it is missing or was NaN."""
    numbers = {name for record in records for name, value in record.items() if _is_number(value)}
    return {
        name: [value if _is_number(value := record.get(name)) else None for record in records]
        for name in sorted(numbers)
    }


def groups(names: Iterable[str]) -> dict[str, list[str]]:
    """Metrics by the part before the first slash, the recipes' groups first."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(name.partition("/")[0] if "/" in name else "other", []).append(name)
    own = [recipe.groups for recipe in recipes()]
    # A recipe's other groups are details of its first.
    first = [*_FIRST_GROUPS, *(part[0] for part in own if part), *(group for part in own for group in part[1:])]
    order = {group: place for place, group in enumerate((*first, *_NEXT_GROUPS))}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def headlines(names: Iterable[str]) -> list[str]:
    """The metrics that are shown when none was chosen: at most `NUM_HEADLINES`."""
    known = sorted(names)
    chosen = accuracies(known)[:NUM_ACCURACIES]
    own = (pattern for pages in all_pages() for pattern in pages.headlines)
    for pattern in (*_FIRST_HEADLINES, *own, *_NEXT_HEADLINES):
        if pattern.endswith("*"):
            chosen += [name for name in known if name.startswith(pattern[:-1])]
        elif pattern in known:
            chosen.append(pattern)
    return (chosen or known)[:NUM_HEADLINES]


def accuracies(names: Iterable[str]) -> list[str]:
    """The mean accuracy of each validation set; without any, another metric of `val-core/`.

    With several samples per prompt, verl also has best@n and maj@n.
    """
    core = sorted(name for name in names if name.startswith("val-core/"))
    return [name for name in core if is_accuracy(name)] or core[:1]


def explained(names: Iterable[str]) -> dict[str, str]:
    """Metric -> its meaning and unit, if a glossary has it."""
    found: dict[str, str] = {}
    for name in names:
        for glossary in (*glossaries().values(), VERLS_METRICS):
            if (entry := find_entry(name, glossary)) is not None:
                unit, meaning = glossary[entry]
                found[name] = f"{meaning} [{unit}]"
                break
    return found


def verls_own(names: Iterable[str]) -> list[str]:
    """verl's metrics that no glossary describes."""
    names = list(names)
    known = explained(names)
    return [name for name in names if is_verls(name) and name not in known]


def smooth(values: Sequence[float | None], weight: float) -> list[float | None]:
    """Exponential moving average without bias towards 0 at its start (Adam's correction); a None stays None.

    Args:
        values: One per step.
        weight: Weight of the past at each value, 0 <= weight < 1; 0 changes nothing.

    Raises:
        ValueError: The weight is out of range.
    """
    if not 0 <= weight < 1:
        raise ValueError(f"the smoothing weight must be at least 0 and below 1, got {weight!r}: try 0.6")
    average, known, result = 0.0, 0, []
    for value in values:
        if value is None:
            result.append(None)
            continue
        average = weight * average + (1 - weight) * value
        known += 1
        result.append(average / (1 - weight**known))
    return result


def axis(table: Mapping[str, Sequence[float | None]], choice: str) -> list[float | None]:
    """Positions of the records on one of `AXES`; empty if the run has no such metric."""
    return list(table.get(AXES[choice][0], ()))


def short(value: float | None, digits: int = 6) -> float | None:
    """The value with this many significant digits: more than a chart shows, but shorter."""
    if value is None or not math.isfinite(value):
        return None
    return value if type(value) is int else float(f"{value:.{digits}g}")


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, by linear interpolation.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("a quantile of no values: give at least one")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    # This form stays between the two despite rounding.
    part = place - low
    return ordered[low] if part == 0 else ordered[low] * (1 - part) + ordered[high] * part


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
