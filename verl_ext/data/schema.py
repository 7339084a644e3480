"""verl's RL parquet schema: build rows, write them, and check files before a run spends hours on them.

A row, as `verl.utils.dataset.rl_dataset.RLHFDataset` and the reward managers read it:

    data_source   str                          picks the reward function
    prompt        [{role: str, content: str}]  rendered by the tokenizer's chat template
    ability       str                          a label for reports
    reward_model  {style: "rule" | "model", ground_truth: str}
    extra_info    {index: int | str, split: str, ...}

`extra_info.index` is a prompt's only lasting identity (verl draws a new `uid` at every fetch), and verl silently falls
back to 0 when it is missing: two prompts that share an index share their history. So it must be present and unique
across all training files. Further columns and further fields are welcome.

Example:
    >>> row = make_row("arithmetic", "1+1=", "2", index=0, split="train", ability="math")
    >>> write_parquet([row], "train.parquet")
    >>> check_parquet("train.parquet").num_rows
    1
"""

# pyarrow makes the functions of pyarrow.compute at import, where a type checker cannot see them.
# pyright: reportAttributeAccessIssue=false

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from verl_ext.data.schema_rules import REQUIRED_COLUMNS, broken_rows, type_error

# How many rows or repeated indices a message names before it only counts the rest.
_SHOWN = 5


@dataclass(frozen=True)
class FileProblem:
    """One thing wrong with one file.

    Attributes:
        file: The path as it was given.
        column: Column, or column.field, that the problem is in; empty when it concerns the whole file.
        message: What was expected, what came, and what to change.
    """

    file: str
    column: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}: column {self.column}" if self.column else self.file
        return f"{where}: {self.message}"


class ParquetError(ValueError):
    """Files that do not follow the schema; `problems` holds every problem found, not only the first."""

    def __init__(self, problems: Sequence[FileProblem]):
        self.problems = tuple(problems)
        lines = [f"{len(self.problems)} problem(s) in the parquet files:"]
        lines += [f"  - {problem}" for problem in self.problems]
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class ParquetReport:
    """What a successful check saw.

    Attributes:
        rows: Number of rows of each file, by the path as it was given.
    """

    rows: Mapping[str, int]

    @property
    def num_rows(self) -> int:
        """Rows of all files together."""
        return sum(self.rows.values())


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
        index: Lasting identity of the prompt, unique across all training files.
        split: For example "train" or "val".
        ability: A label for reports, for example "math".
        style: "rule" for a reward function, "model" for a reward model.
        extra_info: Further fields of `extra_info`; must have the same keys and types in every row.
        **columns: Further columns.

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
    """Write rows to `path`, which either keeps its old content or gets all of the new one.

    Args:
        rows: Rows from `make_row`. A column that only some rows have is null in the others.
        path: Target, ending in .parquet; missing folders are made.

    Raises:
        ParquetError: If there are no rows, the name is wrong, one column mixes types, or nothing can be written there.
    """
    path = Path(path)
    if path.suffix != ".parquet":
        raise ParquetError([_wrong_suffix(str(path))])
    if not rows:
        raise ParquetError([FileProblem(str(path), "", "there are no rows to write.")])
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ParquetError([FileProblem(str(path), name, f"the rows do not share one type: {error}")]) from error
    try:
        _replace(path, pa.table(columns))
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
        os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def check_parquet(path: str | os.PathLike[str]) -> ParquetReport:
    """Check one file. See `check_parquets`."""
    return check_parquets([path])


def check_parquets(paths: Sequence[str | os.PathLike[str]]) -> ParquetReport:
    """Check files that are used together, such as the list in `data.train_files`.

    Rows are numbered from 0. A million rows take a few seconds: columns are checked as arrays, batch by batch.

    Args:
        paths: The files. Every `extra_info.index` must be unique across all of them; 7 and "7" count as the same.

    Returns:
        The number of rows of each file.

    Raises:
        ParquetError: With all problems found in all files.
    """
    problems: list[FileProblem] = []
    rows: dict[str, int] = {}
    indices: list[tuple[str, pa.ChunkedArray]] = []
    for path in map(str, paths):
        found, num_rows, index = _check_file(path)
        problems += found
        rows[path] = num_rows
        if index is not None:
            indices.append((path, index))
    problems += _repeated_indices(indices)
    if problems:
        raise ParquetError(problems)
    return ParquetReport(rows)


def _wrong_suffix(path: str) -> FileProblem:
    suffix = Path(path).suffix or "no suffix"
    return FileProblem(path, "", f"expected a file whose name ends in .parquet, got {suffix}. Convert or rename it.")


def _check_file(path: str) -> tuple[list[FileProblem], int, pa.ChunkedArray | None]:
    """Problems of one file, its number of rows, and the `extra_info.index` of each row as text."""
    if not Path(path).is_file():
        kind = "a folder" if Path(path).is_dir() else "nothing"
        return [FileProblem(path, "", f"expected a parquet file, found {kind}. Check the path.")], 0, None
    if Path(path).suffix != ".parquet":
        return [_wrong_suffix(path)], 0, None
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        return [FileProblem(path, "", f"not a readable parquet file ({error}). Write it again.")], 0, None
    with file:
        problems = []
        if file.metadata.num_rows == 0:
            problems.append(FileProblem(path, "", "the file has no rows."))
        missing = [name for name in REQUIRED_COLUMNS if name not in file.schema_arrow.names]
        for name in missing:
            have = ", ".join(file.schema_arrow.names)
            problems.append(FileProblem(path, name, f"the column is missing. The file has: {have}."))
        typed = []
        for name in REQUIRED_COLUMNS:
            if name not in missing:
                error = type_error(name, file.schema_arrow.field(name).type)
                if error:
                    problems.append(FileProblem(path, name, error))
                else:
                    typed.append(name)
        try:
            bad, index = _check_values(file, typed)
        except (pa.ArrowException, OSError) as error:
            # Its footer is whole: pages in the middle of it are not.
            return (
                [*problems, FileProblem(path, "", f"the file is damaged ({error}). Write or copy it again.")],
                0,
                None,
            )
    problems += [FileProblem(path, column, _bad_rows(what, rows)) for (column, what), rows in bad.items()]
    return problems, file.metadata.num_rows, index


def _check_values(
    file: pq.ParquetFile, columns: Sequence[str]
) -> tuple[dict[tuple[str, str], list[int]], pa.ChunkedArray | None]:
    """Rows that break each rule, and the indices, of the columns whose type is right."""
    bad: dict[tuple[str, str], list[int]] = {}
    indices = []
    offset = 0
    for batch in file.iter_batches(batch_size=65536, columns=list(columns)) if columns else ():
        for name in columns:
            for column, what, rows in broken_rows(name, batch.column(name)):
                if len(rows):
                    bad.setdefault((column, what), []).extend(offset + row for row in rows.to_pylist())
        if "extra_info" in columns:
            indices.append(pc.cast(pc.struct_field(batch.column("extra_info"), "index"), pa.large_string()))
        offset += batch.num_rows
    return bad, pa.chunked_array(indices, pa.large_string()) if indices else None


def _shorten(items: Sequence[Any]) -> str:
    rest = f", ... ({len(items) - _SHOWN} more)" if len(items) > _SHOWN else ""
    return ", ".join(map(str, items[:_SHOWN])) + rest


def _bad_rows(what: str, rows: Sequence[int]) -> str:
    return f"{what} in {len(rows)} row(s): {_shorten(rows)}."


def _repeated_indices(indices: Sequence[tuple[str, pa.ChunkedArray]]) -> list[FileProblem]:
    """One problem a file in which an index turns up again, whether its twin is in that file or an earlier one."""
    chunks = [chunk for _, array in indices for chunk in array.chunks]
    everything = pc.drop_null(pa.chunked_array(chunks, pa.large_string()))
    if len(everything) == pc.count_distinct(everything).as_py():
        return []
    counts = pa.table({"index": everything}).group_by("index").aggregate([("index", "count")])
    repeated = counts.filter(pc.greater(counts["index_count"], 1))["index"].combine_chunks()
    places: dict[str, list[tuple[str, int]]] = {}
    for path, array in indices:
        rows = pc.indices_nonzero(pc.is_in(array, pc.drop_null(repeated)))
        for row, index in zip(rows.to_pylist(), array.take(rows).to_pylist(), strict=True):
            places.setdefault(index, []).append((path, row))
    by_file: dict[str, dict[str, list[tuple[str, int]]]] = {}
    for index, where in places.items():
        by_file.setdefault(where[-1][0], {})[index] = where
    problems = []
    for path, repeats in by_file.items():
        shown = []
        for index, where in list(repeats.items())[:_SHOWN]:
            rows = [str(row) if file == path else f"{row} of {file}" for file, row in where]
            shown.append(f"{index} ({len(where)} times: rows {_shorten(rows)})")
        more = f"; and {len(repeats) - _SHOWN} more" if len(repeats) > _SHOWN else ""
        message = (
            f"{len(repeats)} value(s) are repeated: {'; '.join(shown)}{more}. Number the prompts across all files."
        )
        problems.append(FileProblem(path, "extra_info.index", message))
    return problems
