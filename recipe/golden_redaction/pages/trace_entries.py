"""Reads the training entries of a run while it may still write them. Pure except for reading the file."""

import json
from pathlib import Path
from typing import Any

from recipe.golden_redaction.records.schema import RecordError, find_problems
from verl_ext.core.errors import SignalError

# Within this many bytes, a resumed run's text differs from the text cut off.
_REMEMBERED = 65_536  # bytes


class NoTraceError(SignalError):
    """A file is missing, or is not a file of training entries."""


class EntryTail:
    """Each complete line once, checked.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0  # bytes
        self._lines = 0
        self._end = b""  # the bytes before the position

    def new_entries(self) -> tuple[list[dict[str, Any]], bool]:
        """New entries since the last call, and whether everything read before is void: a resumed run truncates its file
        to its checkpoint and continues from there.

        Raises:
            NoTraceError: A complete line is not a valid entry.
        """
        if not self.path.is_file():
            return [], self._forget()
        with self.path.open("rb") as stream:
            stream.seek(max(0, self._position - len(self._end)))
            is_void = stream.read(len(self._end)) != self._end and self._forget()
            stream.seek(self._position)
            new = stream.read()
        complete = new[: new.rfind(b"\n") + 1]
        lines = complete.split(b"\n")[:-1]
        entries = [self._parse(line, number) for number, line in enumerate(lines, self._lines + 1) if line.strip()]
        self._position += len(complete)
        self._lines += len(lines)
        self._end = (self._end + complete)[-_REMEMBERED:]
        return entries, is_void

    def _forget(self) -> bool:
        had = self._position > 0
        self._position, self._lines, self._end = 0, 0, b""
        return had

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        where = f"{self.path}, line {number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise NoTraceError(
                f"{where}: not a line of JSON ({error}). Give a run folder of golden redaction or its entries"
            ) from None
        if problems := find_problems(entry):
            raise NoTraceError(str(RecordError(where, problems[:5])))
        return entry


def check_log_probs(entry: dict[str, Any]) -> dict[str, list[float | None]] | None:
    """The optional `prompt_log_probs` of an entry: `policy` and `reference`, one number or null per prompt id; None if
    they are missing or malformed (the schema leaves unknown fields unchecked)."""
    given = entry.get("prompt_log_probs")
    if not isinstance(given, dict):
        return None
    length = len(entry["prompt_ids"])
    found: dict[str, list[float | None]] = {}
    for name in ("policy", "reference"):
        values = given.get(name)
        if isinstance(values, list) and len(values) == length and all(map(_is_number_or_null, values)):
            found[name] = values
    return found if "policy" in found else None


def check_outputs(rollout: dict[str, Any]) -> list[Any] | None:
    """The optional `outputs` of a rollout: a grid of small ints or null for each example pair; None as above."""
    outputs = rollout.get("outputs")
    return outputs if isinstance(outputs, list) and all(o is None or _is_grid(o) for o in outputs) else None


def _is_number_or_null(value: Any) -> bool:
    # Browsers reject NaN and infinities in JSON.
    return value is None or (type(value) in (int, float) and abs(value) < 1e30)


def _is_grid(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= 30
        and all(isinstance(row, list) and 1 <= len(row) <= 30 and len(row) == len(value[0]) for row in value)
        and all(type(cell) is int and 0 <= cell <= 9 for row in value for cell in row)
    )
