"""The pairs that golden solutions are checked on, and the files of the solutions. Pure except for reading files."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

from verl_ext.arc.order import ORDER
from verl_ext.core.errors import SignalError
from verl_ext.data.arc_tasks import Pair, name_pairs, parse_pair, read_tasks
from verl_ext.data.row_report import UnusableRow

GOLDEN = Path(__file__).with_name("golden")


class GoldenError(SignalError):
    """A golden solution or a file of pairs is missing or invalid."""


def solution_names(folder: Path = GOLDEN) -> list[str]:
    """The tasks that have a solution, from easy to hard; files not in the order come last."""
    found = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def read_solution(name: str, folder: Path = GOLDEN) -> str:
    """The text of a solution.

    Raises:
        GoldenError: There is no solution of this task.
    """
    path = folder / f"{name}.py"
    if not path.is_file():
        raise GoldenError(f"{name}: there is no golden solution {path.name}. Choose one of {folder.name}/.")
    return path.read_text(encoding="utf-8")


def read_pairs(task_files: Iterable[Path], fresh: Path | None = None) -> dict[str, dict[str, Pair]]:
    """The pairs of every task, by task id and by name: `train 0`, `test 0`, `fresh 0`.

    Args:
        task_files: ARC collections; see `verl_ext.data.arc_tasks`.
        fresh: JSON lines `{id, pairs: [{input, output}]}`, also with .gz.

    Raises:
        SourceError: A collection cannot be read.
        GoldenError: The fresh pairs cannot be read.
    """
    pairs: dict[str, dict[str, Pair]] = {}
    for path in task_files:
        for task in read_tasks(path)[0]:
            pairs[task.id] = name_pairs("train", task.train) | name_pairs("test", task.test)
    if fresh is not None:
        for name, more in _read_fresh(fresh).items():
            pairs[name] = pairs.get(name, {}) | more
    return pairs


def _read_fresh(path: Path) -> dict[str, dict[str, Pair]]:
    if not path.is_file():
        raise GoldenError(f"{path}: no such file. Check the path.")
    found: dict[str, dict[str, Pair]] = {}
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in data.decode("utf-8").splitlines():
            row = json.loads(line)
            found[row["id"]] = name_pairs("fresh", [parse_pair(pair, "fresh") for pair in row["pairs"]])
    except (OSError, EOFError, KeyError, TypeError, ValueError, UnusableRow) as error:
        raise GoldenError(f"{path}: expected lines `{{id, pairs}}` in JSON, found {error!r}. Make it again.") from None
    return found
