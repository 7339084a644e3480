"""The current state of a run, in its folder: `status.json`.

    state                 starting, training, validating; finished, failed or interrupted in the end
    step, of              the current step, and the planned total; null before the first one
    doing, doing_since    its activity within the state, such as "generating", and since when
    prompts               [done, of] of the prompts that it waits for; null if it counts none
    started, ready        when the command began, and when it began to validate or to train
    last_seen, finished   when the command was last alive, and when it ended; all four in seconds since 1970
    error                 why it failed
    logs                  folder of the logs of workers and engines, on its host; null before they start
    pid, host, command    of the process that was started
    earlier               [started, ready, last_seen] of each earlier command in this folder

The command writes it at start and end, and a sign of life every `INTERVAL_S`; the trainer, in another process, once per
step and per validation.
"""

import contextlib
import fcntl
import json
import os
import platform
import shlex
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

INTERVAL_S = 15.0
COUNT_INTERVAL_S = 1.0
ENDS = ("finished", "failed", "interrupted")

# For the error that ends a command: `failed` or `interrupted`, and the message.
Explain = Callable[[BaseException], tuple[str, str]]


class StatusFile:
    """The file, which is replaced atomically; several processes may change it.

    Args:
        path: Its path; the folder exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """Its content; empty if it is missing or damaged."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def change(self, **fields: Any) -> None:
        """Replace these fields, and record that the run is alive.

        A full disk must not end a run because of this file: it then stays unchanged.
        """
        with contextlib.suppress(OSError), self._locked():
            self._write(self.read() | {"last_seen": time.time()} | fields)

    def at_work(self, state: str, **fields: Any) -> None:
        """Same as `change`, called by the trainer: start-up is over."""
        with contextlib.suppress(OSError), self._locked():
            found, now = self.read(), time.time()
            began = {"state": state, "ready": found.get("ready") or now, "last_seen": now}
            self._write(found | began | {"doing": None, "doing_since": now, "prompts": None} | fields)

    def doing(self, what: str) -> None:
        """Same as `change`, for a new activity within the state."""
        self.change(doing=what, doing_since=time.time(), prompts=None)

    @contextlib.contextmanager
    def counting(self, prompts: Callable[[], tuple[int, int] | None]) -> Generator[None]:
        """Keep `prompts` up to date while the block runs.

        Args:
            prompts: Returns how many are done, and of how many; None if unknown. Called in a separate thread, every
                `COUNT_INTERVAL_S`.
        """
        over = threading.Event()

        def follow() -> None:
            last = None
            while not over.wait(COUNT_INTERVAL_S):
                if (now := prompts()) is not None and now != last:
                    last = now
                    self.change(prompts=list(now))

        thread = threading.Thread(target=follow, name="count-prompts", daemon=True)
        thread.start()
        try:
            yield
        finally:
            _stop(thread, over)

    def begin(self) -> None:
        """Record that a command begins: an earlier one's times become a line of `earlier`."""
        with contextlib.suppress(OSError), self._locked():
            before, now = self.read(), time.time()
            earlier = list(before.get("earlier", []))
            if "started" in before:
                earlier.append([before["started"], before.get("ready"), before.get("last_seen", before["started"])])
            self._write(
                {
                    "state": "starting",
                    "step": before.get("step"),
                    "of": before.get("of"),
                    "started": now,
                    "ready": None,
                    "doing": None,
                    "doing_since": now,
                    "prompts": None,
                    "last_seen": now,
                    "finished": None,
                    "error": None,
                    "logs": None,
                    "pid": os.getpid(),
                    "host": platform.node(),
                    "command": shlex.join(sys.orig_argv),
                    "earlier": earlier,
                }
            )

    def end(self, state: str, error: str | None = None) -> None:
        """Record that the command is over."""
        self.change(state=state, error=error, finished=time.time())

    def _write(self, status: dict[str, Any]) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(status, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.path)

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        with self.path.with_name(f".{self.path.stem}.lock").open("a", encoding="utf-8") as lock:
            # On a file system without locks a change may be lost; the next one comes within a step.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def kept_status(path: Path, explain: Explain) -> Generator[None]:
    """Keep the file up to date while the block, a whole run, is running.

    Args:
        path: Path of the file.
        explain: Turns an error into state and message.
    """
    status, over = StatusFile(path), threading.Event()
    status.begin()
    thread = threading.Thread(target=_show_life, args=(status, over), daemon=True)
    thread.start()
    try:
        yield
    except BaseException as error:
        _stop(thread, over)
        status.end(*explain(error))
        raise
    _stop(thread, over)
    status.end("finished")


def _show_life(status: StatusFile, over: threading.Event) -> None:
    while not over.wait(INTERVAL_S):
        status.change()


def _stop(thread: threading.Thread, over: threading.Event) -> None:
    over.set()
    thread.join()
