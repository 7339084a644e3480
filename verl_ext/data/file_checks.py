"""Checks of data files before a run spends hours on them: every error with file, column and row."""

# pyarrow makes the functions of pyarrow.compute at import, where a type checker cannot see them.
# pyright: reportAttributeAccessIssue=false

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from verl_ext.data.data_files import DataFile, UnreadableFile, alignment_error, expand_pattern, open_file
from verl_ext.data.prompt_index import index_gap, own_index
from verl_ext.data.schema import DataFileError, FileProblem
from verl_ext.data.schema_rules import FileRules, broken_rows, type_error, unusual_rows

# Rows that a message names before it only counts the rest.
_SHOWN = 5

# (column, what) -> row numbers.
_Found = dict[tuple[str, str], list[int]]


@dataclass(frozen=True)
class FilesReport:
    """The result of a successful check.

    Attributes:
        rows: Number of rows of each file, by its path.
        index_gap: Why `extra_info.index` cannot tell the rows apart, in one sentence; None if it can.
        notes: Unusual findings, one sentence each.
    """

    rows: Mapping[str, int]
    index_gap: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows of all files together."""
        return sum(self.rows.values())


@dataclass
class _Checked:
    """Findings on one file."""

    schema: pa.Schema | None = None
    num_rows: int = 0
    index: pa.ChunkedArray | None = None
    problems: list[FileProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_files(paths: Sequence[str | os.PathLike[str]], rules: FileRules | None = None) -> FilesReport:
    """Check local files that are used together, such as the list in `data.train_files`.

    Rows are numbered from 0. A million rows take a few seconds: columns are checked as arrays, batch by batch.

    Args:
        paths: The files, or patterns of files.
        rules: Requirements; None: those of a run with verl's default settings.

    Raises:
        DataFileError: With all problems found in all files.
    """
    rules = rules or FileRules()
    checked: list[tuple[str, _Checked]] = []
    problems: list[FileProblem] = []
    for pattern in map(str, paths):
        files = expand_pattern(pattern)
        if not files:
            problems.append(
                FileProblem(
                    pattern, "", "no file matches (*, ? and [ make it a pattern, also for verl). Check the path."
                )
            )
        checked += [(file, _check_file(file, rules)) for file in files]
    problems += [problem for _, each in checked for problem in each.problems]
    if not problems:
        problems = _misfits(checked)
    if problems:
        raise DataFileError(problems)
    rows: Counter[str] = Counter()
    for file, each in checked:
        rows[file] += each.num_rows
    gap = index_gap([(file, each.index) for file, each in checked])
    return FilesReport(dict(rows), gap, tuple(note for _, each in checked for note in each.notes))


def _check_file(path: str, rules: FileRules) -> _Checked:
    checked = _Checked()
    try:
        with open_file(path) as file:
            checked.schema, checked.num_rows = file.schema, file.num_rows
            if file.num_rows == 0:
                checked.problems.append(FileProblem(path, "", "the file has no rows."))
            else:
                _check_columns(path, file, rules, checked)
    except UnreadableFile as error:
        checked.problems.append(FileProblem(path, "", str(error)))
    return checked


def _check_columns(path: str, file: DataFile, rules: FileRules, checked: _Checked) -> None:
    names = file.schema.names
    for name in rules.required:
        if name not in names:
            cure = " Set data.prompt_key to the column of the messages." if name == rules.prompt_key else ""
            message = f"the column is missing. The file has: {', '.join(names)}.{cure}"
            checked.problems.append(FileProblem(path, name, message))
    typed = []
    for name in (*rules.required, "extra_info"):
        if name in names:
            error = type_error(name, file.schema.field(name).type, rules)
            if error:
                checked.problems.append(FileProblem(path, name, error))
            else:
                typed.append(name)
    broken, unusual, checked.index = _check_values(file, typed, rules)
    checked.problems += [FileProblem(path, column, _rows(what, rows)) for (column, what), rows in broken.items()]
    checked.notes += [
        f"{path}: column {column}: {_rows(what, rows)} Does the chat template know it?"
        for (column, what), rows in unusual.items()
    ]


def _check_values(
    file: DataFile, columns: Sequence[str], rules: FileRules
) -> tuple[_Found, _Found, pa.ChunkedArray | None]:
    """Rows that violate each rule, unusual rows, and the indices, for the columns whose type is right."""
    broken: _Found = {}
    unusual: _Found = {}
    indices: list[pa.Array | None] = []
    offset = 0
    for batch in file.batches(columns) if columns else ():
        for name in columns:
            for found, check in ((broken, broken_rows), (unusual, unusual_rows)):
                for column, what, rows in check(name, batch.column(name), rules):
                    if len(rows):
                        found.setdefault((column, what), []).extend(offset + row for row in rows.to_pylist())
        if "extra_info" in columns:
            indices.append(own_index(batch.column("extra_info")))
        offset += batch.num_rows
    known = [index for index in indices if index is not None]
    has_index = bool(known) and len(known) == len(indices)
    return broken, unusual, pa.chunked_array(known, pa.large_string()) if has_index else None


def _misfits(checked: Sequence[tuple[str, _Checked]]) -> list[FileProblem]:
    """The first file that verl cannot join with those before it."""
    first: dict[pa.Schema, str] = {}
    for file, each in checked:
        if each.schema is None or each.schema in first:
            continue
        first[each.schema] = file
        error = alignment_error(list(first))
        if error:
            message = f"its columns differ from those of {checked[0][0]}, and verl joins both ({error})."
            return [FileProblem(file, "", f"{message} Write them with the same fields.")]
    return []


def _shorten(items: Sequence[Any]) -> str:
    rest = f", ... ({len(items) - _SHOWN} more)" if len(items) > _SHOWN else ""
    return ", ".join(map(str, items[:_SHOWN])) + rest


def _rows(what: str, rows: Sequence[int]) -> str:
    return f"{what} in {len(rows)} row(s): {_shorten(rows)}."
