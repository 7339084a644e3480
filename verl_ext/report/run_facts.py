"""A run in a few numbers and tables: headline numbers, time by phase. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.core.metric_glossary import METRICS
from verl_ext.launch.recipe import all_phases
from verl_ext.run.metrics_stream import STEP
from verl_ext.run.summary import seconds_by_phase
from verl_ext.run.trainer_metrics import validation_accuracy

_TIMER = "timing_s/"
VALIDATION = "validation"

Columns = Mapping[str, Sequence[float | None]]

_TOTALS = ("rollouts_generated", "rollouts_trained", "tokens_generated", "tokens_trained", "seconds")
NUMBERS: Mapping[str, str] = {
    "val_accuracy_before": "mean over the validation sets, before the first step",
    "val_accuracy_after": "mean over the validation sets, at the last validation",
    "val_accuracy_best": "mean over the validation sets, at the best validation",
    "global_steps": "RL steps so far",
    "total_training_steps": "RL steps of the whole run, as configured",
    "rollouts_avoided": "estimate: the continuation of the prompts whose screening was not mixed",
    **{name: METRICS[f"training/total/{name}"][1] for name in _TOTALS},
}
"""Headline number -> its meaning; a recipe's summary may have others."""


def numbers(summary: Mapping[str, Any] | None, records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Headline numbers from the summary, or from the records so far if there is none."""
    last = records[-1] if records else {}
    validated = [(record[STEP], value) for record in records if (value := _accuracy(record)) is not None]
    accuracies = [value for _, value in validated]
    found: dict[str, Any] = {
        "val_accuracy_before": accuracies[0] if validated and validated[0][0] == 0 else None,
        "val_accuracy_after": accuracies[-1] if accuracies else None,
        "val_accuracy_best": max(accuracies) if accuracies else None,
        "global_steps": last.get(STEP),
    }
    found |= {name: last.get(f"training/total/{name}") for name in _TOTALS}
    found |= {name: value for name, value in (summary or {}).items() if value is not None}
    return {name: value for name, value in found.items() if type(value) in (int, float)}


def phases(columns: Columns, wall: tuple[float, float] | None = None) -> list[list[Any]]:
    """[phase, seconds], longest first: the phases of steps, validation, and time outside steps.

    Time of a step in no phase is `rest`. All phases add up to the wall-clock time, if it is known.

    Args:
        columns: Columns with verl's timers.
        wall: Seconds of the run, and seconds until it began to validate or train.
    """
    timing = {
        name.removeprefix(_TIMER): sum(value for value in values if value is not None)
        for name, values in columns.items()
        if name.startswith(_TIMER)
    }
    if "step" not in timing and wall is None:
        return []
    steps = timing.get("step", 0.0)
    found = seconds_by_phase({"seconds": steps, "seconds_by_phase": timing}, all_phases())
    found[VALIDATION] = timing.get("testing", 0.0)
    if wall is not None:
        whole, start_up = wall
        found["start-up"] = start_up
        # This includes steps that were lost with a killed command and trained again.
        found["outside of steps"] = whole - start_up - steps - found[VALIDATION]
    return sorted(([name, seconds] for name, seconds in found.items() if seconds > 0), key=lambda row: -row[1])


def phase_columns(columns: Columns) -> dict[str, list[float]]:
    """Phase -> its seconds at each step (`phase_steps`), validation among them."""
    steps = phase_steps(columns)

    def seconds(name: str) -> list[float]:
        pairs = zip(columns.get(STEP, ()), columns.get(f"{_TIMER}{name}", ()), strict=False)
        return [value or 0.0 for step, value in pairs if step]

    found: dict[str, list[float]] = {}
    for phase, names in all_phases().items():
        own = [seconds(name) for name in names if f"{_TIMER}{name}" in columns]
        if own:
            found[phase] = [sum(values) for values in zip(*own, strict=True)]
    whole = seconds("step") or [0.0] * len(steps)
    found["rest"] = [max(0.0, whole[place] - sum(own[place] for own in found.values())) for place in range(len(steps))]
    found[VALIDATION] = seconds("testing")
    return {phase: values for phase, values in found.items() if any(values)}


def phase_steps(columns: Columns) -> list[float]:
    """Steps in the order of their records, without the validation before the first."""
    return [step for step in columns.get(STEP, ()) if step]


def _accuracy(record: Mapping[str, Any]) -> float | None:
    return validation_accuracy({name: value for name, value in record.items() if type(value) in (int, float)})
