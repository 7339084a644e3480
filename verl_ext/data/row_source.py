"""Rows of data sets from local files or from the hub.

A file may be .jsonl, .json (one list of objects), .csv or .tsv (the first line names the columns, and every value is
text), all of them also with .gz, or .parquet.
"""

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from verl_ext.data.row_report import SourceError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


@dataclass(frozen=True)
class HubSource:
    """A data set on the Hugging Face hub.

    Attributes:
        name: `owner/name`.
        split: Its name on the hub, which may differ from ours.
        config: Configuration; None if there is only one.
    """

    name: str
    split: str
    config: str | None = None


def read_rows(source: str, hub: HubSource) -> Iterator[dict[str, Any]]:
    """Rows of a file, or of a data set on the hub.

    Args:
        source: Path of a file, or `owner/name` on the hub.
        hub: Provides the split, and the configuration if `source` is its name.

    Raises:
        SourceError: At the first row that cannot be read, or if the file or data set does not exist.
    """
    if source.endswith(SUFFIXES):
        return read_file(Path(source))
    if Path(source).exists():
        raise SourceError(f"{source}: expected a file ending in {', '.join(SUFFIXES)}. Convert or rename it.")
    return _read_hub(source, hub)


def read_file(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a local file; see the module's docstring for the formats.

    Raises:
        SourceError: Names the file and, in a .jsonl, the line.
    """
    if not path.name.endswith(SUFFIXES):
        raise SourceError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}. Convert or rename it.")
    if not path.is_file():
        found = "this is a folder. Name a file in it" if path.is_dir() else "no such file. Check the path"
        raise SourceError(f"{path}: {found}.")
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    read = {"parquet": _read_parquet, "jsonl": _read_jsonl, "json": _read_json, "csv": _read_csv, "tsv": _read_csv}
    try:
        yield from read[kind](path)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        ending = next(suffix for suffix in SUFFIXES if path.name.endswith(suffix))
        raise SourceError(f"{path}: not readable as {ending} ({error}). Download it again.") from None


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=4096):
            yield from batch.to_pylist()


def _open(path: Path) -> TextIO:
    return cast(
        TextIO, gzip.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".gz" else path.open(encoding="utf-8-sig")
    )


def _read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                # Nested too deeply, or an integer too long for Python.
                except (ValueError, RecursionError) as error:
                    raise SourceError(f"{path}, line {number}: expected one JSON object per line ({error}).") from None
                yield _object(row, f"{path}, line {number}")


def _read_json(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        try:
            rows = json.load(file)
        except UnicodeDecodeError:  # also a ValueError, but not about JSON
            raise
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{path}: expected one list of JSON objects ({error}). Name it .jsonl if it has one object per line."
            ) from None
    if not isinstance(rows, list):
        raise SourceError(f"{path}: expected a list of JSON objects, got {type(rows).__name__}.")
    for number, row in enumerate(rows):
        yield _object(row, f"{path}, entry {number}")


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(sys.maxsize)  # a worked solution may be longer than csv's limit of 128 KiB
    with _open(path) as lines:
        reader = csv.reader(lines, delimiter="\t" if ".tsv" in path.suffixes[-2:] else ",")
        names = next(reader, [])
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SourceError(f"{path}: the first line names {', '.join(map(repr, repeated))} twice. Rename a column.")
        for values in reader:
            if not values:
                continue
            if len(values) != len(names):
                raise SourceError(
                    f"{path}, line {reader.line_num}: expected {len(names)} values, as the first line has names, got "
                    f"{len(values)}. Put a value that has a comma or a line break in double quotes."
                )
            yield dict(zip(names, values, strict=True))


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise SourceError(f"{where}: expected a JSON object, got {type(row).__name__}.")
    return row


def _read_hub(name: str, hub: HubSource) -> Iterator[dict[str, Any]]:
    import datasets

    config = hub.config if name == hub.name else None
    try:
        rows = datasets.load_dataset(name, config, split=hub.split)
    # The hub's client raises errors of several libraries when there is no network, no such data set or no permission.
    except Exception as error:
        raise SourceError(
            f"{name}: neither a local file ({', '.join(SUFFIXES)}) nor a data set that the hub gave us, split "
            f"{hub.split!r} ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). "
            "Without a network, pass a file that you have: --input FILE."
        ) from error
    return iter(cast(Any, rows))
