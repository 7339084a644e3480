"""A command that must end in time: it is interrupted as by Ctrl-C, and continues in a later call."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code; negative: the signal that killed it.
        in_time: Whether it ended by itself.
        seconds: Its duration.
        tail: The end of its output.
    """

    code: int
    in_time: bool
    seconds: float
    tail: str


def run_command(
    words: Sequence[str],
    folder: Path,
    log: Path,
    seconds: float,
    grace_s: float,
    variables: Mapping[str, str] | None = None,
    watch: Callable[[subprocess.Popen], None] | None = None,
) -> Ended:
    """Run to the end, or until `grace_s` before `seconds` are over.

    Args:
        words: The command.
        folder: Where it runs.
        log: File to which its output is appended.
        seconds: Time after which it has ended.
        grace_s: Time for it to end after the interrupt, before it is killed.
        variables: Additional environment variables.
        watch: Called twice per second while it runs; may act on it.
    """
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=os.environ | (variables or {}),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            # Signals go to it and its children, and it must not inherit an ignored SIGINT.
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            in_time = _wait(process, began + seconds - grace_s, watch)
            if not in_time:
                os.killpg(process.pid, signal.SIGINT)
                _wait(process, began + seconds, None)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    return Ended(code, in_time, time.monotonic() - began, _tail(log, start))


def _wait(process: subprocess.Popen, until: float, watch: Callable[[subprocess.Popen], None] | None) -> bool:
    while process.poll() is None:
        left = until - time.monotonic()
        if left <= 0:
            return False
        try:
            process.wait(timeout=min(0.5, left))
        except subprocess.TimeoutExpired:
            if watch is not None:
                watch(process)
    return True


def _tail(log: Path, start: int, most: int = 4000) -> str:
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - most))
        return file.read().decode(errors="replace")
