"""The files that verl reads, as arrow batches: parquet, JSON (a list of objects) and JSON lines.

JSON is read by the library by which verl reads it (`datasets`), because it decides how values whose type differs
between rows are converted; parquet by pyarrow, which also verifies the pages' checksums.
"""

import contextlib
import glob
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

SUFFIXES = (".parquet", ".json", ".jsonl")

_BATCH = 65536
_PROMPTS = 4096  # rows converted to Python objects at a time


class UnreadableFile(Exception):
    """A file cannot be read; the message says why, without the file's name."""


@dataclass(frozen=True)
class DataFile:
    """An open file.

    Attributes:
        schema: Schema of its columns.
        num_rows: Rows of the file.
        batches: (columns) -> the rows in order, at most 65,536 at a time. Raises UnreadableFile.
        prompts: (column) -> the prompts in order, as verl's data set returns them, in lists of at most 4,096.
        rows: (limit) -> the first rows as verl's data set returns them; None: all.
    """

    schema: pa.Schema
    num_rows: int
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
    prompts: Callable[[str], Iterator[list[Any]]]
    rows: Callable[[int | None], list[dict[str, Any]]]


def expand_pattern(path: str) -> list[str]:
    """The files that a path stands for: itself, or what its pattern (`train-*.parquet`) matches, sorted.

    A path with `*`, `?` or `[` is always a pattern, as in the library that verl reads with.
    """
    return sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else [path]


@contextlib.contextmanager
def open_file(path: str) -> Generator[DataFile]:
    """Open a local file.

    Raises:
        UnreadableFile: It does not exist, has another format, or is damaged.
    """
    if not Path(path).is_file():
        if Path(path).is_dir():
            raise UnreadableFile(f"expected a file, found a folder. Name its files, or a pattern: {path}/*.parquet.")
        raise UnreadableFile("expected a file, found nothing. Check the path.")
    if not path.endswith(SUFFIXES):
        suffix = Path(path).suffix or "no suffix"
        raise UnreadableFile(
            f"expected a file whose name ends in {' or '.join(SUFFIXES)}, got {suffix}. Convert or rename it."
        )
    if not path.endswith(".parquet"):
        yield _open_json(path)
        return
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise UnreadableFile(f"not a readable parquet file ({error}). Write it again.") from None
    with file:
        yield _parquet(file)


def _parquet(file: pq.ParquetFile) -> DataFile:
    def batches(columns: Sequence[str], size: int = _BATCH) -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(batch_size=size, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            # Its footer is intact, but pages in the middle are not.
            raise UnreadableFile(f"the file is damaged ({error}). Write or copy it again.") from None

    def prompts(column: str) -> Iterator[list[Any]]:
        return (batch.column(0).to_pylist() for batch in batches([column], _PROMPTS))

    def rows(limit: int | None) -> list[dict[str, Any]]:
        everything = (row for batch in batches(file.schema_arrow.names, _PROMPTS) for row in batch.to_pylist())
        return list(itertools.islice(everything, limit))

    return DataFile(file.schema_arrow, file.metadata.num_rows, batches, prompts, rows)


def _open_json(path: str) -> DataFile:
    import datasets
    from datasets.exceptions import DatasetGenerationError

    if not Path(path).stat().st_size:
        return DataFile(pa.schema([]), 0, lambda _: iter(()), lambda _: iter(()), lambda _: [])
    try:
        with _quiet():
            data: Any = datasets.load_dataset("json", data_files=path, split="train")
    except (DatasetGenerationError, OSError, ValueError) as error:
        raise UnreadableFile(f"not readable as JSON ({error.__cause__ or error}). Write it again.") from None
    table = data.data.table

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(table.select(list(columns)).to_batches(max_chunksize=_BATCH))

    def prompts(column: str) -> Iterator[list[Any]]:
        return (cast(dict[str, Any], batch)[column] for batch in data.select_columns([column]).iter(_PROMPTS))

    def first(limit: int | None) -> list[dict[str, Any]]:
        return data.select(range(len(data) if limit is None else min(limit, len(data)))).to_list()

    return DataFile(table.schema, len(data), batches, prompts, first)


def read_rows(path: str, limit: int | None = None) -> list[dict[str, Any]]:
    """The rows of a checked file; `extra_info.index` is the row number if the file has none.

    Args:
        path: A local file.
        limit: Maximum number of rows to read.

    Raises:
        UnreadableFile: see `open_file`.
    """
    with open_file(path) as file:
        rows = file.rows(limit)
    for number, row in enumerate(rows):
        extra = row.get("extra_info") or {}
        row["extra_info"] = extra if extra.get("index") is not None else {**extra, "index": number}
    return rows


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    import datasets

    were_disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not were_disabled:
            datasets.enable_progress_bars()


def alignment_error(schemas: Sequence[pa.Schema]) -> str | None:
    """Why verl cannot join files of these schemas, in the words of the library that it uses; None if it can."""
    if len(schemas) < 2:
        return None
    import datasets

    features = [datasets.Features.from_arrow_schema(schema) for schema in schemas]
    # One row each, because data sets without rows are skipped unchecked.
    rows = [datasets.Dataset.from_dict({name: [None] for name in each}, features=each) for each in features]
    try:
        datasets.concatenate_datasets(rows)
    except ValueError as error:
        return str(error)
    return None
