"""Rows of data sets from local files or from the hub.

A file may be .jsonl, .json (one list of objects), both also with .gz, or .parquet.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from verl_ext.data.row_report import SourceError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")


@dataclass(frozen=True)
class HubSource:
    """A data set on the Hugging Face hub.

    Attributes:
        name: `owner/name`.
        split: Its name there, which need not be ours.
        config: Configuration; None for the only one.
    """

    name: str
    split: str
    config: str | None = None


def read_rows(source: str, hub: HubSource) -> Iterator[dict[str, Any]]:
    """Rows of a file, or of a data set on the hub.

    Args:
        source: Path of a file, or `owner/name` on the hub.
        hub: Gives the split, and the configuration if `source` is its own name.

    Raises:
        SourceError: At the first row that cannot be read, or if there is no such file or data set.
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
        raise SourceError(f"{path}: there is no such file. Check the path.")
    try:
        if path.suffix == ".parquet":
            yield from _read_parquet(path)
        elif ".jsonl" in path.suffixes[-2:]:
            yield from _read_jsonl(path)
        else:
            yield from _read_json(path)
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise SourceError(f"{path}: not readable as {''.join(path.suffixes[-2:])} ({error}). Fetch it again.") from None


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=4096):
            yield from batch.to_pylist()


def _open(path: Path) -> TextIO:
    return cast(
        TextIO, gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    )


def _read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise SourceError(f"{path}, line {number}: expected one JSON object a line ({error}).") from None
                yield _object(row, f"{path}, line {number}")


def _read_json(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        try:
            rows = json.load(file)
        except json.JSONDecodeError as error:
            raise SourceError(
                f"{path}: expected one list of JSON objects ({error}). Name it .jsonl if it has one object a line."
            ) from None
    if not isinstance(rows, list):
        raise SourceError(f"{path}: expected a list of JSON objects, got {type(rows).__name__}.")
    for number, row in enumerate(rows):
        yield _object(row, f"{path}, entry {number}")


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
