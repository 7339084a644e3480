"""Elapsed and remaining time of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.run.metrics_stream import STEP

Record = Mapping[str, Any]

_LAST_STEPS = 20  # used to estimate the remaining time


def seconds_left(records: Sequence[Record], of: Any) -> float | None:
    """Seconds until the last step, at the pace of the newest steps and validations; None before the first step."""
    timed = [record for record in records if isinstance(record.get("timing_s/step"), (int, float))][-_LAST_STEPS:]
    if not timed or not isinstance(of, int):
        return None
    seconds = sum(record["timing_s/step"] + (record.get("timing_s/testing") or 0.0) for record in timed)
    return max(0, of - timed[-1][STEP]) * seconds / len(timed)


def wall_clock(status: Mapping[str, Any]) -> tuple[float, float] | None:
    """Seconds of all commands of a run, and of their start-up before validating or training; None if unknown."""
    sessions = [*status.get("earlier", ()), _session(status)]
    times = [[time for time in session if isinstance(time, (int, float))] for session in sessions]
    if not status or not all(len(known) >= 2 for known in times):
        return None
    # Without this time, the whole command was start-up.
    return sum(known[-1] - known[0] for known in times), sum(known[1] - known[0] for known in times)


def _session(status: Mapping[str, Any]) -> list[Any]:
    return [status.get("started"), status.get("ready"), status.get("finished") or status.get("last_seen")]
