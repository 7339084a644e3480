"""ARC-AGI tasks: read them, and find those that two collections share. Pure.

A collection is one .json (or .json.gz) file `{id: {"train": [{"input", "output"}], "test": [...]}}`, or a folder of
`<id>.json` files as in the original repositories. Task ids are eight hexadecimal digits and mean the same in ARC-AGI-1
and -2; some tasks occur under two ids, which only their pairs reveal.

Source: Chollet (2019), On the measure of intelligence, arXiv:1911.01547; Chollet et al. (2025), arXiv:2505.11831.
"""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from verl_ext.data.row_report import SourceError, UnusableRow

MAX_SIDE = 30
NUM_COLOURS = 10
PARTS = ("train", "test")

Grid = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Pair:
    """An input grid and its output grid, each 1-30 x 1-30 of 0-9."""

    input: Grid
    output: Grid


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        id: Task id in the collection.
        train: The examples, at least one.
        test: The pairs that solutions are tested on, at least one.
    """

    id: str
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]

    @property
    def num_cells(self) -> int:
        """Cells of all grids of the examples."""
        return sum(len(grid) * len(grid[0]) for pair in self.train for grid in (pair.input, pair.output))

    @property
    def key(self) -> str:
        """Equal for tasks with the same pairs, in any order and role (the versions differ in both)."""
        return "\n".join(sorted(json.dumps([pair.input, pair.output]) for pair in self.train + self.test))


def parse_grid(value: Any) -> Grid:
    """A checked grid.

    Raises:
        UnusableRow: It is not 1-30 x 1-30 of ints from 0 to 9.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_SIDE:
        raise UnusableRow("grid is not a list of 1 to 30 rows")
    if not all(isinstance(row, list) and 1 <= len(row) <= MAX_SIDE and len(row) == len(value[0]) for row in value):
        raise UnusableRow("rows are not of one length from 1 to 30")
    if not all(type(cell) is int and 0 <= cell < NUM_COLOURS for row in value for cell in row):
        raise UnusableRow("cell is not an int from 0 to 9")
    return tuple(tuple(row) for row in value)


def parse_pair(value: Any, kind: str) -> Pair:
    """A checked pair; `kind` is for the reason.

    Raises:
        UnusableRow: It lacks its input or output, or one of them is not a grid.
    """
    if not isinstance(value, Mapping) or "input" not in value or "output" not in value:
        raise UnusableRow(f"{kind} pair without input or output")
    return Pair(parse_grid(value["input"]), parse_grid(value["output"]))


def parse_task(name: str, value: Any) -> Task:
    """A checked task.

    Raises:
        UnusableRow: It lacks examples or test pairs with outputs, or has an invalid grid.
    """
    return Task(name, *(tuple(_parse_part(value, part)) for part in PARTS))


def _parse_part(value: Any, part: str) -> list[Pair]:
    pairs = value.get(part) if isinstance(value, Mapping) else None
    if not isinstance(pairs, list) or not pairs:
        raise UnusableRow(f"no {part} pairs")
    return [parse_pair(pair, part) for pair in pairs]


def name_pairs(kind: str, pairs: Iterable[Pair]) -> dict[str, Pair]:
    """Pairs by their origin: the kind, and the index there, like `train 0`."""
    return {f"{kind} {index}": pair for index, pair in enumerate(pairs)}


def read_tasks(path: Path) -> tuple[list[Task], Counter[str]]:
    """The usable tasks of a collection by id, and the number of skipped tasks by reason (including "rows read").

    Raises:
        SourceError: It cannot be read, or no task of it is usable.
    """
    raw = _read_collection(path)
    counts, tasks = Counter({"rows read": len(raw)}), []
    for name in sorted(raw):
        try:
            tasks.append(parse_task(name, raw[name]))
        except UnusableRow as reason:
            counts[str(reason)] += 1
    if not tasks:
        raise SourceError(f"{path}: no task is usable ({dict(counts)}). Is it ARC-AGI?")
    return tasks, counts


def read_named_pairs(path: Path, task: str, parts: Sequence[str] = PARTS) -> dict[str, Pair]:
    """The pairs of one task of a collection; a part that the task does not have is left out.

    Raises:
        SourceError: The collection cannot be read, does not have the task, or one of these pairs is invalid.
    """
    raw = _read_collection(path)
    if task not in raw:
        raise SourceError(f"{path} has no task {task!r}; it begins with {sorted(raw)[:3]}")
    found: dict[str, Pair] = {}
    try:
        for part in parts:
            if raw[task].get(part):
                found |= name_pairs(part, _parse_part(raw[task], part))
    except (AttributeError, UnusableRow) as reason:
        raise SourceError(f"{path}, task {task}: {reason}") from None
    if not found:
        raise SourceError(f"{path}, task {task} has no pairs in {', '.join(parts)}")
    return found


def _read_collection(path: Path) -> dict[str, Any]:
    files = sorted(path.glob("*.json"))
    raw = {file.stem: _read_json(file) for file in files} if path.is_dir() else _read_json(path)
    if not isinstance(raw, dict) or not raw:
        raise SourceError(f"{path}: expected {{id: {{train, test}}}} or a folder of <id>.json files. Is it ARC-AGI?")
    return cast(dict[str, Any], raw)


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise SourceError(f"{path}: no such file. Check the path.")
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    # Broken bytes, broken compression, or nesting deeper than Python's stack.
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not readable as JSON ({error}). Download it again.") from None


@dataclass(frozen=True)
class TaskOverlap:
    """Tasks that one collection shares with another.

    Attributes:
        same_id: Ids that both have.
        same_pairs: Ids here of tasks whose pairs the other has under another id.
    """

    same_id: frozenset[str]
    same_pairs: frozenset[str]

    @property
    def ids(self) -> frozenset[str]:
        """All of them."""
        return self.same_id | self.same_pairs


def find_overlap(tasks: Sequence[Task], others: Sequence[Task]) -> TaskOverlap:
    """Which of `tasks` are among `others`, by id or by their pairs."""
    other_ids, other_keys = {task.id for task in others}, {task.key for task in others}
    same_id = frozenset(task.id for task in tasks if task.id in other_ids)
    return TaskOverlap(
        same_id, frozenset(task.id for task in tasks if task.id not in same_id and task.key in other_keys)
    )
