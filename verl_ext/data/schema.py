"""verl's RL schema: build rows and write them as parquet; `file_checks.py` checks files.

A row, as `verl.utils.dataset.rl_dataset.RLHFDataset` and the reward managers read it:

    data_source   str                          picks the reward function
    prompt        [{role: str, content: str}]  rendered by the tokenizer's chat template
    ability       str                          a label for reports
    reward_model  {style: "rule" | "model", ground_truth: str}
    extra_info    {index: int | str, split: str, ...}

`extra_info.index` is a prompt's only persistent identity (verl draws a new `uid` at every fetch): rows made here have
one. verl itself reads more than this, and so does a run; see `schema_rules.py`. Additional columns and fields are
allowed.

Example:
    >>> row = make_row("arithmetic", "1+1=", "2", index=0, split="train", ability="math")
    >>> write_parquet([row], "train.parquet")
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class FileProblem:
    """One thing wrong with one file.

    Attributes:
        file: The path as given.
        column: Column, or column.field, that the problem is in; empty when it concerns the whole file.
        message: What was expected, what came, and what to change.
    """

    file: str
    column: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}: column {self.column}" if self.column else self.file
        return f"{where}: {self.message}"


class DataFileError(ValueError):
    """Files that cannot be used; `problems` holds every problem found, not only the first."""

    def __init__(self, problems: Sequence[FileProblem]):
        self.problems = tuple(problems)
        lines = [f"{len(self.problems)} problem(s) in the data files:"]
        lines += [f"  - {problem}" for problem in self.problems]
        super().__init__("\n".join(lines))


class ParquetError(DataFileError):
    """Rows cannot be written."""


def make_row(
    data_source: str,
    prompt: str | Sequence[Mapping[str, str]],
    ground_truth: str,
    *,
    index: int | str,
    split: str,
    ability: str,
    style: str = "rule",
    extra_info: Mapping[str, Any] | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """One row of the schema.

    Args:
        data_source: Name of the data set; picks the reward function.
        prompt: The chat messages, or a string that becomes one user message.
        ground_truth: What the reward function compares with, as text (JSON for anything structured).
        index: Persistent identity of the prompt, unique across all training files.
        split: For example "train" or "val".
        ability: A label for reports, for example "math".
        style: "rule" for a reward function, "model" for a reward model.
        extra_info: Additional fields of `extra_info`; must have the same keys and types in every row.
        **columns: Additional columns.

    Raises:
        TypeError: If `ground_truth` is not a string or `index` neither an int nor a string.
    """
    if not isinstance(ground_truth, str):
        raise TypeError(
            f"ground_truth must be a str, got {type(ground_truth).__name__}: {ground_truth!r}. "
            "Pass json.dumps(...) of structured answers."
        )
    if isinstance(index, bool) or not isinstance(index, int | str):
        raise TypeError(f"index must be an int or a str, got {type(index).__name__}: {index!r}")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
    return {
        "data_source": data_source,
        "prompt": messages,
        "ability": ability,
        "reward_model": {"style": style, "ground_truth": ground_truth},
        "extra_info": {**(extra_info or {}), "index": index, "split": split},
        **columns,
    }


def write_parquet(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Write rows to `path` atomically.

    Args:
        rows: Rows from `make_row`. A column that only some rows have is null in the others.
        path: Target, ending in .parquet; missing folders are created.

    Raises:
        ParquetError: If there are no rows, the name is wrong, one column mixes types, or nothing can be written there.
    """
    if not rows:
        raise ParquetError([FileProblem(str(path), "", "there are no rows to write.")])
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ParquetError([FileProblem(str(path), name, f"the rows do not share one type: {error}")]) from error
    write_table(pa.table(columns), path)


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a table to `path` atomically.

    Raises:
        ParquetError: If the name is wrong, or nothing can be written there.
    """
    path = Path(path)
    if path.suffix != ".parquet":
        raise ParquetError([_wrong_suffix(str(path))])
    try:
        _replace(path, table)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}). Name a folder that can, with room in it."
        raise ParquetError([FileProblem(str(path), "", problem)]) from error


def _replace(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Same folder as the target, because a rename is atomic only within a file system.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    try:
        pq.write_table(table, temporary, write_page_checksum=True)
        os.chmod(temporary, 0o644)  # mkstemp creates files that only their owner can read
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _wrong_suffix(path: str) -> FileProblem:
    suffix = Path(path).suffix or "no suffix"
    return FileProblem(path, "", f"expected a file whose name ends in .parquet, got {suffix}. Convert or rename it.")
