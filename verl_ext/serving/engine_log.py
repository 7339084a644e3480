"""Finds the error that a vLLM engine logged when it ended.

vLLM's core and workers are children of the Ray actor that serves: they write into its log, and the actor itself only
gets "see stack trace (above)". Pure: needs neither vLLM nor Ray.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

# vLLM's "(EngineCore pid=4711) ERROR 11-22 10:14:01 [core.py:1100] ", without the line's own indentation.
_PREFIX = re.compile(r"^(?:\([^()]*\) ?)*(?:[A-Z]+ [\d-]+ [\d:.]+ \[[^\]]*\] ?)?")
# The last line of a traceback; exceptions without a message have no colon.
_EXCEPTION = re.compile(r"^[\w.]*[A-Z]\w*(?:: .*)?$")
# Errors that only refer to another one.
_POINTERS = (
    "EngineDeadError",
    "Worker failed with error",
    "See root cause above",
    "background process. See stack trace",
)
_MAX_CHARACTERS = 500
# Bytes read from the end of a log.
_MAX_BYTES = 1 << 20


def own_logs() -> list[Path]:
    """The log files of this process and its children; none if they write to a terminal or a pipe."""
    targets = [Path(os.readlink(f"/proc/self/fd/{number}")) for number in (1, 2)]
    return list(dict.fromkeys(target for target in targets if target.is_file()))


def last_error(logs: Sequence[Path]) -> str | None:
    """The error of the newest traceback of an engine's process in the logs, or of any process; None without a
    traceback."""
    errors = [error for log in logs for error in _errors(_tail(log).splitlines())]
    causes = [error for error in errors if not any(pointer in error[1] for pointer in _POINTERS)]
    of_engine = [error for error in causes if error[0]]
    return next((text for _, text in reversed(of_engine or causes or errors)), None)


def explain(logs: Sequence[Path]) -> str:
    """The end of a sentence about a dead engine: its own error, if it logged one, and where to read more."""
    if not logs:
        return ""
    error = last_error(logs)
    told = f"; the last error in its log: {error}" if error else ""
    return f"{told}. Its log: {' and '.join(map(str, logs))}"


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _MAX_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:  # deleted together with Ray's session folder
        return ""


def _errors(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """vLLM's name of the process, "" for the server, and the last line of each of its tracebacks.

    Several processes write at once: each continues its own traceback.
    """
    in_traceback: dict[str, bool] = {}
    for line in lines:
        prefix = _PREFIX.match(line)
        assert prefix is not None  # it also matches the empty string
        process, text = prefix[0].partition(")")[0], line[prefix.end() :]
        if text.startswith("Traceback (most recent call last):"):
            in_traceback[process] = True
        elif in_traceback.get(process) and text and not text[0].isspace():
            in_traceback[process] = False
            if _EXCEPTION.match(text):
                yield process, text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"
