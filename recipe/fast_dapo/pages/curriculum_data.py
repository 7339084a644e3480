"""Fast DAPO's histories for a page: pass rates over time, each prompt's screenings, accuracy over rollouts. Pure."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.run.metrics_stream import STEP
from verl_ext.run.trainer_metrics import validation_accuracy

_HISTOGRAM = re.compile(r"curriculum/screening_pass_rate/(\d+)_of_(\d+)")
EVENTS = ("screening", "continuation", "trained")
SHARD = 400  # prompts per block
MAX_WINDOWS = 60  # bars per chart


def pass_histograms(records: Sequence[Mapping[str, Any]], max_windows: int = MAX_WINDOWS) -> dict[str, Any] | None:
    """Prompts by their passes in a screening, over windows of equal numbers of records; None if nothing was counted.

    Returns:
        `n`; `windows` of [first step, last step]; `counts[k][window]` for k from 0 to n.
    """
    sizes = {int(match[2]) for record in records for name in record if (match := _HISTOGRAM.fullmatch(name))}
    if not sizes:
        return None
    records = [record for record in records if record[STEP] > 0]
    n, each = max(sizes), -(-len(records) // max_windows)
    parts = [records[start : start + each] for start in range(0, len(records), each)]
    names = [f"curriculum/screening_pass_rate/{k}_of_{n}" for k in range(n + 1)]
    return {
        "n": n,
        "windows": [[part[0][STEP], part[-1][STEP]] for part in parts],
        "counts": [[sum(record.get(name) or 0 for record in part) for part in parts] for name in names],
    }


def prompt_histories(events: Sequence[Mapping[str, Any]]) -> dict[str, list[list[Any]]]:
    """Prompt -> [step, place in `EVENTS`, samples, passes] in the file's order; malformed lines are left out.

    A prompt's index may be a number or a string: both are strings here, as in a URL.
    """
    found: dict[str, list[list[Any]]] = {}
    for event in events:
        kind, step = event.get("event"), event.get("step")
        if kind not in EVENTS or type(step) is not int or "index" not in event:
            continue
        row = [step, EVENTS.index(kind), _count(event.get("samples")), _passes(event.get("passes"))]
        found.setdefault(str(event["index"]), []).append(row)
    return found


# States of a prompt, by its pass rates.
SOLVED, LEARNING, HOPELESS = "solved", "learning", "hopeless"
STATES = (LEARNING, SOLVED, HOPELESS)
NUM_LAST = 8  # number of newest rollouts that must all have passed
SNIPPET = 160  # characters of a prompt shown in its row


def prompt_row(prompt: str, history: Sequence[Sequence[Any]], text: Mapping[str, Any] | None = None) -> list[Any]:
    """A line of the table.

    Args:
        prompt: Its index.
        history: Its events.
        text: Its entry of `prompt_texts`.

    Returns:
        [prompt, screenings, rollouts, pass rate of all, of the first screening, of the last, times trained, last step,
        state, data source, beginning of its text].
    """
    screenings = [event for event in history if EVENTS[event[1]] == "screening" and event[2]]
    samples = sum(event[2] for event in history)
    passes = sum(event[3] for event in history)
    rates = [event[3] / event[2] for event in screenings]
    text = text or {}
    return [
        prompt,
        len(screenings),
        samples,
        passes / samples if samples else None,
        rates[0] if rates else None,
        rates[-1] if rates else None,
        sum(EVENTS[event[1]] == "trained" for event in history),
        history[-1][0],
        state_of(history),
        text.get("data_source"),
        str(text.get("own_part", text.get("prompt")) or "")[:SNIPPET],
    ]


def state_of(history: Sequence[Sequence[Any]]) -> str:
    """`hopeless`: no rollout has ever passed. `solved`: its newest `NUM_LAST` rollouts all have. Else `learning`."""
    if not any(event[3] for event in history):
        return HOPELESS
    samples, passes = 0, 0.0
    for event in reversed(history):
        samples, passes = samples + event[2], passes + event[3]
        if samples >= NUM_LAST:
            break
    return SOLVED if passes >= samples else LEARNING


def most_trained_first(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Rows of prompts, sorted by how often they were trained on, then by how near the last pass rate is to one half."""
    return sorted(rows, key=lambda row: (-row[6], 1.0 if row[5] is None else abs(row[5] - 0.5)))


def source_rows(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """[data source, prompts, prompts in each of `STATES`, rollouts, times trained, pass rate of all rollouts, mean pass
    rate of the first screenings, of the last ones], most rollouts first."""
    parts: dict[str, list[Sequence[Any]]] = {}
    for row in rows:
        parts.setdefault(str(row[9]) if row[9] is not None else "", []).append(row)
    found: list[list[Any]] = []
    for source, own in parts.items():
        rollouts = sum(row[2] for row in own)
        found.append(
            [
                source,
                len(own),
                *(sum(row[8] == state for row in own) for state in STATES),
                rollouts,
                sum(row[6] for row in own),
                sum(row[2] * row[3] for row in own if row[3] is not None) / rollouts if rollouts else None,
                _mean([row[4] for row in own if row[4] is not None]),
                _mean([row[5] for row in own if row[5] is not None]),
            ]
        )
    return sorted(found, key=lambda row: -row[5])


def prompt_texts(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Prompt -> its record, the first one if it is duplicated, with `own_part`: its text without the parts shared by
    all prompts."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if "index" in record:
            found.setdefault(str(record["index"]), {**record, "prompt": str(record.get("prompt") or "")})
    sources: dict[Any, list[dict[str, Any]]] = {}
    for record in found.values():
        sources.setdefault(str(record.get("data_source")), []).append(record)
    for own in sources.values():
        parts = own_parts([record["prompt"] for record in own])
        for record, part in zip(own, parts, strict=True):
            record["own_part"] = part
    return found


def own_parts(texts: Sequence[str]) -> list[str]:
    """Texts on one line, without the words that all begin or end with, such as a data set's instructions."""
    words = [text.split() for text in texts]
    if len(set(texts)) < 2:
        return [" ".join(own) for own in words]
    first = _shared(words)
    last = _shared([own[first:][::-1] for own in words])
    return [" ".join(own[first : len(own) - last]) for own in words]


def _shared(lists: Sequence[list[str]]) -> int:
    """Words that all begin with."""
    # The common prefix of the first and last in alphabetical order is common to all.
    pairs = zip(min(lists), max(lists), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def shards(histories: Mapping[str, Any], size: int = SHARD) -> list[dict[str, Any]]:
    """The histories in blocks of `size` prompts, in order: prompt number p is in block p // size."""
    names = list(histories)
    return [{name: histories[name] for name in names[start : start + size]} for start in range(0, len(names), size)]


def accuracy_points(records: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """[rollouts generated, accuracy, step] at every validation."""
    points: list[list[float]] = []
    for record in records:
        numbers = {name: value for name, value in record.items() if type(value) in (int, float)}
        accuracy, rollouts = validation_accuracy(numbers), numbers.get("training/total/rollouts_generated")
        if accuracy is not None and rollouts is not None:
            points.append([rollouts, accuracy, record[STEP]])
    return points


def _passes(value: Any) -> float:
    """A sum of grades may be fractional."""
    return value if type(value) is float and value >= 0 else _count(value)


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
