"""SIGTERM, with which Slurm and `timeout` end a command, as an exception, so that everything is cleaned up.

The signal's default action ends the process at once. Ray's own, which replaces ours when Ray starts, prints a C++ stack
and aborts the process in the end. And while Ray waits for a result, it turns every SystemExit into `sys.exit(1)`.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

ENDED = "ended by SIGTERM"
_has_come = threading.Event()


def exit_on_sigterm() -> None:
    """Raise SystemExit at a SIGTERM from now on; to be called again after Ray has started."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(*_: object) -> None:
    _has_come.set()
    sys.exit(ENDED)


@contextlib.contextmanager
def named_exit() -> Iterator[None]:
    """Give the SystemExit of a SIGTERM its reason, `ENDED`, also if Ray has replaced it."""
    try:
        yield
    except SystemExit:
        if _has_come.is_set():
            raise SystemExit(ENDED) from None
        raise
