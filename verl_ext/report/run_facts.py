"""A run in a few numbers and tables: state, headline numbers, time by phase. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.launch.recipe import all_phases
from verl_ext.run.metrics_stream import STEP
from verl_ext.run.summary import seconds_by_phase
from verl_ext.run.trainer_metrics import validation_accuracy

Columns = Mapping[str, Sequence[float | None]]


def state(summary: Mapping[str, Any] | None, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether the run is finished, and how far it came."""
    last = records[-1][STEP] if records else 0
    if summary is None:
        return {"finished": False, "step": last, "of": None}
    return {"finished": True, "step": summary.get("global_steps", last), "of": summary.get("total_training_steps")}


def numbers(summary: Mapping[str, Any] | None, records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Headline numbers: of the summary, or, while there is none, of the records so far."""
    last = records[-1] if records else {}
    accuracies = [value for record in records if (value := _accuracy(record)) is not None]
    found: dict[str, Any] = {
        "val_accuracy_before": None,
        "val_accuracy_after": accuracies[-1] if accuracies else None,
        "val_accuracy_best": max(accuracies) if accuracies else None,
        "global_steps": last.get(STEP),
    }
    found |= {
        name: last.get(f"training/total/{name}")
        for name in ("rollouts_generated", "rollouts_trained", "tokens_generated", "tokens_trained", "seconds")
    }
    found |= {name: value for name, value in (summary or {}).items() if value is not None}
    return {name: value for name, value in found.items() if type(value) in (int, float)}


def phases(columns: Columns) -> list[list[Any]]:
    """[phase, seconds] over all recorded steps, by `all_phases`, longest first; what no phase names is `rest`."""
    prefix = "timing_s/"
    timing = {
        name.removeprefix(prefix): sum(value for value in values if value is not None)
        for name, values in columns.items()
        if name.startswith(prefix)
    }
    if "step" not in timing:
        return []
    found = seconds_by_phase({"seconds": timing["step"], "seconds_by_phase": timing}, all_phases())
    return sorted(([name, seconds] for name, seconds in found.items() if seconds > 0), key=lambda row: -row[1])


def phase_columns(columns: Columns) -> dict[str, list[float]]:
    """Phase -> its seconds at each record."""
    length = len(columns.get("timing_s/step", ()))
    found = {}
    for phase, names in all_phases().items():
        own = [columns[f"timing_s/{name}"] for name in names if f"timing_s/{name}" in columns]
        if own:
            found[phase] = [sum(column[place] or 0.0 for column in own) for place in range(length)]
    steps = columns.get("timing_s/step", ())
    found["rest"] = [
        max(0.0, (steps[place] or 0.0) - sum(column[place] for column in found.values())) for place in range(length)
    ]
    return {phase: values for phase, values in found.items() if any(values)}


def _accuracy(record: Mapping[str, Any]) -> float | None:
    return validation_accuracy({name: value for name, value in record.items() if type(value) in (int, float)})
