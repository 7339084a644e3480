"""Fast DAPO's histories for a page: pass rates over time, each prompt's screenings, accuracy over rollouts. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.run.metrics_stream import STEP
from verl_ext.run.trainer_metrics import validation_accuracy

_HISTOGRAM = re.compile(r"curriculum/screening_pass_rate/(\d+)_of_(\d+)")
EVENTS = ("screening", "continuation", "trained")
SHARD = 400  # prompts a block
MAX_WINDOWS = 60  # bars of a chart


def pass_histograms(records: Sequence[Mapping[str, Any]], max_windows: int = MAX_WINDOWS) -> dict[str, Any] | None:
    """Prompts by their passes in a screening, over windows of equal numbers of records; None if nothing was counted.

    Returns:
        `n`; `windows` of [first step, last step]; `counts[k][window]` for k from 0 to n.
    """
    sizes = {int(match[2]) for record in records for name in record if (match := _HISTOGRAM.fullmatch(name))}
    if not sizes:
        return None
    n, each = max(sizes), -(-len(records) // max_windows)
    parts = [records[start : start + each] for start in range(0, len(records), each)]
    names = [f"curriculum/screening_pass_rate/{k}_of_{n}" for k in range(n + 1)]
    return {
        "n": n,
        "windows": [[part[0][STEP], part[-1][STEP]] for part in parts],
        "counts": [[sum(record.get(name) or 0 for record in part) for part in parts] for name in names],
    }


def prompt_histories(events: Sequence[Mapping[str, Any]]) -> dict[str, list[list[Any]]]:
    """Prompt -> [step, place in `EVENTS`, samples, passes] in the file's order; lines of another form are left out.

    A prompt's index may be a number or a text: both are texts here, as they are in an address.
    """
    found: dict[str, list[list[Any]]] = {}
    for event in events:
        kind, step = event.get("event"), event.get("step")
        if kind not in EVENTS or type(step) is not int or "index" not in event:
            continue
        row = [step, EVENTS.index(kind), _count(event.get("samples")), _passes(event.get("passes"))]
        found.setdefault(str(event["index"]), []).append(row)
    return found


def prompt_row(prompt: str, history: Sequence[Sequence[Any]]) -> list[Any]:
    """[prompt, screenings, rollouts, pass rate of all, of the last screening, times trained, last step]."""
    screenings = [event for event in history if EVENTS[event[1]] == "screening" and event[2]]
    samples = sum(event[2] for event in history)
    passes = sum(event[3] for event in history)
    return [
        prompt,
        len(screenings),
        samples,
        passes / samples if samples else None,
        screenings[-1][3] / screenings[-1][2] if screenings else None,
        sum(EVENTS[event[1]] == "trained" for event in history),
        history[-1][0],
    ]


def shards(histories: Mapping[str, Any], size: int = SHARD) -> list[dict[str, Any]]:
    """The histories in parts of so many prompts, in their order: prompt number p is in part p // size."""
    names = list(histories)
    return [{name: histories[name] for name in names[start : start + size]} for start in range(0, len(names), size)]


def accuracy_points(records: Sequence[Mapping[str, Any]], before: float | None) -> list[list[float]]:
    """[rollouts generated, accuracy, step] at every validation; `before` is the one before the first step."""
    points: list[list[float]] = [] if before is None else [[0, before, 0]]
    for record in records:
        numbers = {name: value for name, value in record.items() if type(value) in (int, float)}
        accuracy, rollouts = validation_accuracy(numbers), numbers.get("training/total/rollouts_generated")
        if accuracy is not None and rollouts is not None:
            points.append([rollouts, accuracy, record[STEP]])
    return points


def _passes(value: Any) -> float:
    """A sum of grades need not be whole."""
    return value if type(value) is float and value >= 0 else _count(value)


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
