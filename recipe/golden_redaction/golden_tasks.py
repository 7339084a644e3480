"""The pairs that golden solutions are checked on, and the files of the solutions. Pure but for reading files."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from data_preprocess.arc_tasks import Grid, Pair, parse_grid, read_tasks
from data_preprocess.row_report import UnusableRow
from recipe.golden_redaction.golden_order import ORDER
from verl_ext.errors import SignalError

GOLDEN = Path(__file__).with_name("golden")


class GoldenError(SignalError):
    """A golden solution or a file of pairs is missing or is not what it is taken for."""


@dataclass(frozen=True)
class NamedPair:
    """An input and its output, and where they are from.

    Attributes:
        name: `train 0`, `test 0`, `fresh 0`: the source, and the place there.
        input: Input grid.
        output: Output grid.
    """

    name: str
    input: Grid
    output: Grid


def solution_names(folder: Path = GOLDEN) -> list[str]:
    """The tasks that have a solution, from easy to hard; files that the order does not know come last."""
    found = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def read_solution(name: str, folder: Path = GOLDEN) -> str:
    """The text of a solution.

    Raises:
        GoldenError: There is none for this task.
    """
    path = folder / f"{name}.py"
    if not path.is_file():
        raise GoldenError(f"{name}: there is no golden solution {path.name}. Choose one of {folder.name}/.")
    return path.read_text(encoding="utf-8")


def read_pairs(task_files: Iterable[Path], fresh: Path | None = None) -> dict[str, list[NamedPair]]:
    """The pairs of every task, by task id.

    Args:
        task_files: ARC collections; see `data_preprocess.arc_tasks`.
        fresh: JSON lines `{id, pairs: [{input, output}]}`, also with .gz.

    Raises:
        SourceError: A collection cannot be read.
        GoldenError: The fresh pairs cannot be read.
    """
    pairs: dict[str, list[NamedPair]] = {}
    for path in task_files:
        for task in read_tasks(path)[0]:
            pairs[task.id] = _named("train", task.train) + _named("test", task.test)
    if fresh is not None:
        for name, part in _read_fresh(fresh).items():
            pairs[name] = pairs.get(name, []) + part
    return pairs


def _read_fresh(path: Path) -> dict[str, list[NamedPair]]:
    if not path.is_file():
        raise GoldenError(f"{path}: there is no such file. Check the path.")
    found = {}
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in data.decode("utf-8").splitlines():
            row = json.loads(line)
            pairs = [Pair(parse_grid(pair["input"]), parse_grid(pair["output"])) for pair in row["pairs"]]
            found[row["id"]] = _named("fresh", pairs)
    except (OSError, EOFError, KeyError, TypeError, ValueError, UnusableRow) as error:
        raise GoldenError(f"{path}: expected lines `{{id, pairs}}` in JSON, found {error!r}. Make it anew.") from None
    return found


def _named(kind: str, pairs: Iterable[Pair]) -> list[NamedPair]:
    return [NamedPair(f"{kind} {place}", pair.input, pair.output) for place, pair in enumerate(pairs)]
