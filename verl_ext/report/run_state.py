"""The state of a run, or how it ended: from its status, its summary and the processes of this machine."""

import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from verl_ext.run.metrics_stream import STEP
from verl_ext.run.pace import Record, seconds_left
from verl_ext.run.status import ENDS, INTERVAL_S

# Signs of life may be late by this many intervals, if the machine is busy or the file system is remote.
_LATE = 20


def run_state(
    status: Mapping[str, Any], summary: Mapping[str, Any] | None, records: Sequence[Record], now: float | None = None
) -> dict[str, Any]:
    """State for a page.

    Returns:
        `kind`: starting, training, validating, finished, failed, interrupted, `dead` (it left no error message), or
        `unknown` for a run that keeps no status and has no summary; `finished`; `step` (the current or last one)
        and `of`; `seconds_left`, `since` (start of the current command), `ended`, `error`, `host`, `read_at`: None if
        unknown; times in seconds since 1970.
    """
    now = time.time() if now is None else now
    last = records[-1][STEP] if records else 0
    found = {
        "step": last,
        "of": (summary or {}).get("total_training_steps"),
        "seconds_left": None,
        "since": None,
        "ended": None,
        "error": None,
        "host": None,
        "read_at": now,
    }
    if not status:
        kind = "unknown" if summary is None else "finished"
        step = (summary or {}).get("global_steps", last)
        return found | {"kind": kind, "finished": summary is not None, "step": step}
    kind = str(status.get("state"))
    is_over = kind in ENDS
    if not is_over and is_dead(status, now):
        kind, is_over = "dead", True
    of = status.get("of") or found["of"]
    step = last if kind == "finished" or not isinstance(status.get("step"), int) else status["step"]
    return found | {
        "kind": kind,
        "finished": kind == "finished",
        "step": step,
        "of": of,
        "since": status.get("started"),
        "ended": (status.get("finished") or status.get("last_seen")) if is_over else None,
        "error": status.get("error"),
        "host": status.get("host"),
        "seconds_left": None if is_over else seconds_left(records, of),
    }


def status_stamp(status: Mapping[str, Any]) -> Any:
    """A value that changes with the state, but not with each sign of life or within a step."""
    if not status:
        return None
    passing = ("last_seen", "doing", "doing_since", "prompts")
    kept = [value for name, value in sorted(status.items()) if name not in passing]
    return *map(str, kept), status.get("state") not in ENDS and is_dead(status, time.time())


def is_dead(status: Mapping[str, Any], now: float) -> bool:
    """Whether the process of a run that has not ended is gone, or has given no sign of life for long."""
    last_seen, pid = status.get("last_seen"), status.get("pid")
    if not isinstance(last_seen, (int, float)) or now - last_seen > _LATE * INTERVAL_S:
        return True
    return status.get("host") == platform.node() and isinstance(pid, int) and not _is_alive(pid, last_seen)


def _is_alive(pid: int, last_seen: float) -> bool:
    try:
        process = psutil.Process(pid)
        # Process ids are reused: one that started after the last sign of life is another process.
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= last_seen
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
