"""Warnings to show before anyone trusts a run's curves, each with a remedy. Pure.

A rule checks whole columns and reports the steps where it applies. Bounds mark where a look is worthwhile, not where a
run is lost.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_ext.report.recipe_pages import all_pages
from verl_ext.report.warning_rules import RULES
from verl_ext.run.metrics_stream import STEP

Columns = Mapping[str, Sequence[float | None]]
Found = list[tuple[int, float]]  # (step, value)

_NUM_NAMED = 3  # metrics that a warning names

NEAR = 0.5  # share of the engine guard's bound that counts as near it


@dataclass(frozen=True)
class RunWarning:
    """One finding.

    Attributes:
        level: `problem`: numbers of the run cannot be trusted or work was lost; `look`: it may be as intended.
        title: The finding in a few words.
        what: The finding in a sentence.
        remedy: What to do.
        steps: Steps where it applies, in order.
        metric: The curve that shows it; empty if none does.
    """

    level: str
    title: str
    what: str
    remedy: str
    steps: tuple[int, ...] = ()
    metric: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For a page."""
        return asdict(self)


def find_warnings(
    columns: Columns,
    *,
    nulls: Mapping[str, Sequence[int]],
    superseded: Sequence[int] = (),
    num_broken: int = 0,
    max_probs_diff: float | None = None,
) -> list[RunWarning]:
    """All warnings, problems first.

    Args:
        columns: Result of `curves.columns`, with `training/global_step`.
        nulls: Metric -> steps at which its record has a null, which stands for NaN.
        superseded: Steps that were trained again.
        num_broken: Lines of the stream that cannot be read.
        max_probs_diff: The engine guard's bound.
    """
    steps = [int(step) for step in columns.get(STEP, ()) if step is not None]
    found = [
        *_stream(steps, superseded, num_broken),
        *_nulls(nulls, steps),
        *_engine(columns, max_probs_diff),
        *_rules(columns),
        *_no_informative_group(columns),
        *_shapes(columns),
    ]
    return sorted(found, key=lambda one: one.level != "problem")


def null_steps(records: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Metric -> steps whose record has a null there."""
    found: dict[str, list[int]] = {}
    for record in records:
        for name, value in record.items():
            if value is None:
                found.setdefault(name, []).append(record[STEP])
    return found


def _stream(steps: Sequence[int], superseded: Sequence[int], num_broken: int) -> Iterator[RunWarning]:
    missing = sorted(set(range(steps[0], steps[-1] + 1)) - set(steps)) if steps else []
    if missing:
        text = f"{len(missing)} steps between {steps[0]} and {steps[-1]} have no record"
        yield RunWarning(
            "problem",
            "gaps in the metrics",
            text,
            "lines were lost: curves are joined across the gaps, and sums over steps are too small",
            tuple(missing),
        )
    back = [after for before, after in itertools.pairwise(steps) if after <= before]
    if back:
        yield RunWarning(
            "problem",
            "steps written twice",
            f"{len(back)} records do not follow the one before",
            "two runs wrote into this folder: give each its own run_dir",
            tuple(back),
        )
    if superseded:
        yield RunWarning(
            "look",
            "resumed run",
            f"{len(superseded)} steps were trained again after a resume; their "
            "first records are in metrics.superseded.jsonl",
            "lower trainer.save_freq if the repeated work is too expensive",
            tuple(superseded),
        )
    if num_broken:
        yield RunWarning(
            "problem",
            "broken lines",
            f"{num_broken} lines of metrics.jsonl are not a record of a step",
            "the disk may have been full, or two runs wrote at once",
        )


def _nulls(nulls: Mapping[str, Sequence[int]], recorded: Sequence[int]) -> Iterator[RunWarning]:
    """One warning for all metrics with the same cause: those that are NaN where a loss or a gradient is."""
    left = {name: list(steps) for name, steps in sorted(nulls.items()) if steps}
    while left:
        # The metric with the most steps, among the serious ones if there are any.
        leader = max(left, key=lambda name: (_is_grave(name), len(left[name])))
        steps = left[leader]
        together = [name for name, own in left.items() if set(own) <= set(steps)]
        together.sort(key=lambda name: (name != leader, not _is_grave(name)))
        left = {name: own for name, own in left.items() if name not in together}
        more = f" and {len(together) - _NUM_NAMED} more" if len(together) > _NUM_NAMED else ""
        lasts = steps == [step for step in recorded if step >= steps[0]] and len(steps) > 1
        where = f"from step {steps[0]} on" if lasts else f"at step {steps[0]}" if len(steps) == 1 else "at some steps"
        remedy = (
            f"inspect the batch and the gradient of step {steps[0]}"
            if _is_grave(leader)
            else "the metric may be undefined there (a mean over zero values), or a sign of overflow"
        )
        what = f"{', '.join(together[:_NUM_NAMED])}{more} ({len(steps)} of {len(recorded)} steps)"
        level = "problem" if _is_grave(leader) else "look"
        yield RunWarning(level, f"NaN or Inf {where}", what, remedy, tuple(steps), leader)


def _is_grave(name: str) -> bool:
    return name.endswith(("loss", "grad_norm"))


def _engine(columns: Columns, bound: float | None) -> Iterator[RunWarning]:
    if not bound:
        return
    for name in sorted(name for name in columns if name.startswith("engine_guard/probs_diff_mean")):
        near = _where(columns, name, lambda value: value > NEAR * bound)
        if near:
            worst = max(value for _, value in near)
            yield RunWarning(
                "problem" if worst > bound else "look",
                "stale engine" if worst > bound else "engine near its bound",
                f"probabilities of engine and actor differ by up to {worst:.2g} on average, "
                f"{worst / bound:.0%} of the bound {bound:g}",
                "check the weight synchronisation; if they compute in different precision on purpose, "
                "raise engine_guard.max_probs_diff",
                tuple(step for step, _ in near),
                name,
            )


def _rules(columns: Columns) -> Iterator[RunWarning]:
    for rule in (*(rule for pages in all_pages() for rule in pages.rules), *RULES):
        found = _where(columns, rule.metric, rule.is_odd)
        if found:
            count, of = len(found), sum(value is not None for value in columns[rule.metric])
            what = rule.what.format(count=count, of=of, worst=rule.worst([value for _, value in found]))
            yield RunWarning(rule.level, rule.title, what, rule.remedy, tuple(step for step, _ in found), rule.metric)


def _no_informative_group(columns: Columns) -> Iterator[RunWarning]:
    high, low = columns.get("critic/advantages/max", ()), columns.get("critic/advantages/min", ())
    steps = columns.get(STEP, ())
    flat = [int(step) for step, a, b in zip(steps, high, low, strict=False) if step is not None and a == b == 0]
    if flat:
        yield RunWarning(
            "look",
            "no informative group",
            f"every advantage was 0 at {len(flat)} steps: the update taught nothing",
            "use prompts that are solved sometimes; screening finds them",
            tuple(flat),
            "critic/advantages/max",
        )


def _shapes(columns: Columns) -> Iterator[RunWarning]:
    entropy = _where(columns, "actor/entropy", lambda value: True)
    if len(entropy) >= 5 and entropy[0][1] > 0 and entropy[-1][1] < 0.1 * entropy[0][1]:
        yield RunWarning(
            "look",
            "entropy collapsed",
            f"from {entropy[0][1]:.3g} to {entropy[-1][1]:.3g}: rollouts of a prompt become identical",
            "raise the clip ratio's upper bound, the temperature or the entropy coefficient",
            (entropy[-1][0],),
            "actor/entropy",
        )
    norms = _where(columns, "actor/grad_norm", lambda value: value > 0)
    if len(norms) >= 10:
        middle = sorted(value for _, value in norms)[len(norms) // 2]
        spikes = [(step, value) for step, value in norms if value > 20 * middle]
        if spikes:
            yield RunWarning(
                "look",
                "gradient spikes",
                f"up to {max(value for _, value in spikes):.3g} against a median of {middle:.3g}",
                "inspect the batches of these steps; gradient clipping limits the damage",
                tuple(step for step, _ in spikes),
                "actor/grad_norm",
            )


def _where(columns: Columns, name: str, is_odd: Callable[[float], bool]) -> Found:
    pairs = zip(columns.get(STEP, ()), columns.get(name, ()), strict=False)
    return [(int(step), value) for step, value in pairs if step is not None and value is not None and is_odd(value)]
