"""Rows of mathematics data sets from local files or from the hub, and the question in a row.

A file may be .jsonl, .json (one list of objects), both also with .gz, or .parquet: of any data set here, raw or in
verl's schema.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from data_preprocess.math_text import strip_instructions
from verl_ext.errors import SignalError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")

QUESTION_FIELDS = ("problem", "question", "prompt")


class MathDataError(SignalError):
    """An input is missing, unreadable or not the data set that it is taken for."""


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
        MathDataError: At the first row that cannot be read, or if there is no such file or data set.
    """
    if source.endswith(SUFFIXES):
        return read_file(Path(source))
    if Path(source).exists():
        raise MathDataError(f"{source}: expected a file ending in {', '.join(SUFFIXES)}. Convert or rename it.")
    return _read_hub(source, hub)


def read_file(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a local file; see the module's docstring for the formats.

    Raises:
        MathDataError: Names the file and, in a .jsonl, the line.
    """
    if not path.name.endswith(SUFFIXES):
        raise MathDataError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}. Convert or rename it.")
    if not path.is_file():
        raise MathDataError(f"{path}: there is no such file. Check the path.")
    try:
        if path.suffix == ".parquet":
            yield from _read_parquet(path)
        elif ".jsonl" in path.suffixes[-2:]:
            yield from _read_jsonl(path)
        else:
            yield from _read_json(path)
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise MathDataError(
            f"{path}: not readable as {''.join(path.suffixes[-2:])} ({error}). Fetch it again."
        ) from None


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
                    raise MathDataError(f"{path}, line {number}: expected one JSON object a line ({error}).") from None
                yield _object(row, f"{path}, line {number}")


def _read_json(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        try:
            rows = json.load(file)
        except json.JSONDecodeError as error:
            raise MathDataError(
                f"{path}: expected one list of JSON objects ({error}). Name it .jsonl if it has one object a line."
            ) from None
    if not isinstance(rows, list):
        raise MathDataError(f"{path}: expected a list of JSON objects, got {type(rows).__name__}.")
    for number, row in enumerate(rows):
        yield _object(row, f"{path}, entry {number}")


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise MathDataError(f"{where}: expected a JSON object, got {type(row).__name__}.")
    return row


def _read_hub(name: str, hub: HubSource) -> Iterator[dict[str, Any]]:
    import datasets

    config = hub.config if name == hub.name else None
    try:
        rows = datasets.load_dataset(name, config, split=hub.split)
    # The hub's client raises errors of several libraries when there is no network, no such data set or no permission.
    except Exception as error:
        raise MathDataError(
            f"{name}: neither a local file ({', '.join(SUFFIXES)}) nor a data set that the hub gave us, split "
            f"{hub.split!r} ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). "
            "Without a network, pass a file that you have: --input FILE."
        ) from error
    return iter(cast(Any, rows))


def question_of(row: Mapping[str, Any]) -> str:
    """The question of a row, raw or in verl's schema, without instructions; empty if it has none."""
    for field in QUESTION_FIELDS:
        value = row.get(field)
        if isinstance(value, str) and value.strip():
            return strip_instructions(value)
        if isinstance(value, list):
            users = [message["content"] for message in value if message.get("role") == "user"]
            return strip_instructions(users[-1]) if users and users[-1] else ""
    return ""


def read_questions(path: Path) -> list[str]:
    """The questions of a test file, for comparison.

    Raises:
        MathDataError: If no row has a question.
    """
    questions = [question for row in read_file(path) if (question := question_of(row))]
    if not questions:
        raise MathDataError(f"{path}: no row has a question. Expected one of the fields {', '.join(QUESTION_FIELDS)}.")
    return questions
