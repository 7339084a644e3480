"""Fast DAPO's histories for a page: pass rates over time, each prompt's screenings, accuracy over rollouts. Pure."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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


class Event(NamedTuple):
    """A line of a prompt's history.

    Attributes:
        step: The trainer's step.
        kind: Place in `EVENTS`.
        samples: Rollouts of the call; 0 for `trained`.
        passes: Sum of their successes.
        shortfall: Sum of s (1 - s) over their successes s: 0 where each is 0 or 1.
    """

    step: int
    kind: int
    samples: int = 0
    passes: float = 0
    shortfall: float = 0

    @property
    def name(self) -> str:
        """Its kind in words."""
        return EVENTS[self.kind]


History = Sequence[Event]


def prompt_histories(events: Sequence[Mapping[str, Any]]) -> dict[str, list[Event]]:
    """Prompt -> its events in the file's order; malformed lines are left out.

    A prompt's index may be a number or a string: both are strings here, as in a URL.
    """
    found: dict[str, list[Event]] = {}
    for event in events:
        kind, step = event.get("event"), event.get("step")
        if kind not in EVENTS or type(step) is not int or "index" not in event:
            continue
        numbers = (_passes(event.get(name)) for name in ("passes", "shortfall"))
        row = Event(step, EVENTS.index(kind), _count(event.get("samples")), *numbers)
        found.setdefault(str(event["index"]), []).append(row)
    return found


# States of a prompt, by its pass rates.
SOLVED, LEARNING, HOPELESS = "solved", "learning", "hopeless"
STATES = (LEARNING, SOLVED, HOPELESS)
NUM_LAST = 8  # number of newest rollouts that must all have passed
SNIPPET = 160  # characters of a prompt shown in its row


class PromptRow(NamedTuple):
    """A line of the table.

    Attributes:
        prompt: Its index.
        screenings: Generation calls of its screenings.
        rollouts: All its rollouts.
        rate: Pass rate of all of them; None without any.
        first: Pass rate of its first screening.
        last: Pass rate of its last screening.
        trained: Times trained on.
        mixed: Result of `mixed_visits`.
        step: Its last step.
        state: One of `STATES`.
        source: Its data source.
        text: Beginning of its text.
    """

    prompt: str
    screenings: int
    rollouts: int
    rate: float | None
    first: float | None
    last: float | None
    trained: int
    mixed: int
    step: int
    state: str
    source: str | None
    text: str


def prompt_row(prompt: str, history: History, text: Mapping[str, Any] | None = None) -> PromptRow:
    """A line of the table.

    Args:
        prompt: Its index.
        history: Its events.
        text: Its entry of `prompt_texts`.
    """
    screenings = [event for event in history if event.name == "screening" and event.samples]
    samples = sum(event.samples for event in history)
    passes = sum(event.passes for event in history)
    rates = [event.passes / event.samples for event in screenings]
    text = text or {}
    source = text.get("data_source")
    return PromptRow(
        prompt=prompt,
        screenings=len(screenings),
        rollouts=samples,
        rate=passes / samples if samples else None,
        first=rates[0] if rates else None,
        last=rates[-1] if rates else None,
        trained=sum(event.name == "trained" for event in history),
        mixed=mixed_visits(history),
        step=history[-1].step,
        state=state_of(history),
        source=None if source is None else str(source),
        text=str(text.get("own_part", text.get("prompt")) or "")[:SNIPPET],
    )


def mixed_visits(history: History) -> int:
    """How often the prompt was trained on with rollouts that differed in success.

    With train_on=all it is also trained on when all of them passed or all failed.
    """
    count, screening, is_mixed = 0, [], False
    for event in history:
        if event.name == "trained":
            count += is_mixed
            screening, is_mixed = [], False
        elif event.name == "continuation":
            is_mixed = True  # nothing else is continued
        else:
            # The calls of a sequential screening are in one step. A screening at a later step begins again: earlier
            # rollouts have expired.
            screening = [*(before for before in screening if before.step == event.step), event]
            is_mixed = _differ(screening)
    return count


def _differ(events: History) -> bool:
    """Whether the successes in these events are not all the same: whether the sum of their squares is above its minimum
    at this mean."""
    samples = sum(event.samples for event in events)
    passes = sum(event.passes for event in events)
    squares = passes - sum(event.shortfall for event in events)
    # Grades are written with six decimals.
    return samples * squares - passes**2 > 2e-6 * samples


def state_of(history: History) -> str:
    """`hopeless`: no rollout has ever passed. `solved`: its newest `NUM_LAST` rollouts all have. Else `learning`."""
    if not any(event.passes for event in history):
        return HOPELESS
    samples, passes = 0, 0.0
    for event in reversed(history):
        samples, passes = samples + event.samples, passes + event.passes
        if samples >= NUM_LAST:
            break
    return SOLVED if passes >= samples else LEARNING


def most_mixed_first(rows: Sequence[PromptRow]) -> list[PromptRow]:
    """Rows sorted by how often they were mixed, then trained on, then by how near the last pass rate is to one half."""
    return sorted(rows, key=lambda row: (-row.mixed, -row.trained, 1.0 if row.last is None else abs(row.last - 0.5)))


def source_rows(rows: Sequence[PromptRow]) -> list[list[Any]]:
    """[data source, prompts, prompts in each of `STATES`, rollouts, times trained, pass rate of all rollouts, mean pass
    rate of the first screenings, of the last ones], most rollouts first."""
    parts: dict[str, list[PromptRow]] = {}
    for row in rows:
        parts.setdefault(row.source or "", []).append(row)
    found: list[list[Any]] = []
    for source, own in parts.items():
        rollouts = sum(row.rollouts for row in own)
        found.append(
            [
                source,
                len(own),
                *(sum(row.state == state for row in own) for state in STATES),
                rollouts,
                sum(row.trained for row in own),
                sum(row.rollouts * row.rate for row in own if row.rate is not None) / rollouts if rollouts else None,
                _mean([row.first for row in own if row.first is not None]),
                _mean([row.last for row in own if row.last is not None]),
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
