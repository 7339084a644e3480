"""A run in a few numbers and tables: state, headline numbers, time by phase, conservation of rollouts. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.metrics_stream import STEP
from verl_ext.summary import PHASES, seconds_by_phase
from verl_ext.trainer_metrics import validation_accuracy

GENERATED = "curriculum/total/generated_rollouts"

# What becomes of a generated rollout: (name, metric, meaning).
_FATES = (
    ("trained", "curriculum/total/trained_rollouts", "handed to the trainer"),
    ("uninformative", "curriculum/total/uninformative_rollouts", "of prompts whose rollouts all failed or all passed"),
    ("buffered", "curriculum/buffered_rollouts", "finished, of prompts that wait or are in flight"),
    ("expired", "curriculum/total/expired_rollouts", "dropped: older than max_staleness, or the buffer was full"),
    ("failed", "curriculum/total/failed_rollouts", "of incomplete generation calls and of prompts given up"),
    ("set aside", "curriculum/total/set_aside_rollouts", "screening rollouts that continuation_only does not train on"),
)

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
    """[phase, seconds] over all recorded steps, by `summary.PHASES`, longest first; what no phase names is `rest`."""
    prefix = "timing_s/"
    timing = {
        name.removeprefix(prefix): sum(value for value in values if value is not None)
        for name, values in columns.items()
        if name.startswith(prefix)
    }
    if "step" not in timing:
        return []
    found = seconds_by_phase({"seconds": timing["step"], "seconds_by_phase": timing})
    return sorted(([name, seconds] for name, seconds in found.items() if seconds > 0), key=lambda row: -row[1])


def phase_columns(columns: Columns) -> dict[str, list[float]]:
    """Phase -> its seconds at each record."""
    length = len(columns.get("timing_s/step", ()))
    found = {}
    for phase, names in PHASES.items():
        own = [columns[f"timing_s/{name}"] for name in names if f"timing_s/{name}" in columns]
        if own:
            found[phase] = [sum(column[place] or 0.0 for column in own) for place in range(length)]
    steps = columns.get("timing_s/step", ())
    found["rest"] = [
        max(0.0, (steps[place] or 0.0) - sum(column[place] for column in found.values())) for place in range(length)
    ]
    return {phase: values for phase, values in found.items() if any(values)}


def conservation(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where the rollouts of Fast DAPO went up to a step; None for a recipe without these counts.

    Returns:
        `step`, `generated`, `rows` of [name, rollouts, why], and `unaccounted`: generated minus all rows.
    """
    generated = record.get(GENERATED)
    if not isinstance(generated, int | float):
        return None
    rows = [(name, record[metric], why) for name, metric, why in _FATES if type(record.get(metric)) in (int, float)]
    left = generated - sum(count for _, count, _ in rows)
    return {"step": record.get(STEP), "generated": generated, "rows": rows, "unaccounted": left}


def _accuracy(record: Mapping[str, Any]) -> float | None:
    return validation_accuracy({name: value for name, value in record.items() if type(value) in (int, float)})
