"""A few processes that compare math answers; each can be replaced while the others work.

verl's `math_verify.compute_score` does the comparing in a `ProcessPoolExecutor` of four. When its timeout passes it
stops waiting, but the worker stays busy: four answers like `9^{9^{9^9}}` and every later answer is scored 0. Killing
one process of that executor would fail all pending answers. So the comparison here is verl's (`_verify_in_subprocess`)
and the processes are ours: a caller borrows one worker, and only a stuck worker is killed and replaced.

pebble's `ProcessPool` (5.2.3) also replaces only a stuck worker, but does not meet the other needs: a worker that dies
while none is busy, as when the machine's memory ran out, breaks its pool, and every later answer is refused; one that
cannot start says why on standard error and not in the exception; and its workers are forks of a process with threads
and torch, or import that process's main module, which is Ray's in a reward worker.
"""

import importlib.util
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from verl_ext.core.errors import SignalError

logger = logging.getLogger(__name__)
# As in verl's modules: some of its imports raise the root logger's level to ERROR.
logger.setLevel(os.getenv("VERL_LOGGING_LEVEL", "WARNING"))

_WORKER = Path(__file__).with_name("math_worker.py")


class _StuckError(Exception):
    """The worker was still busy with this answer at its deadline."""


class _DiedError(Exception):
    """The worker ended before it replied, for another reason than its deadline."""


def _verl_file() -> str:
    """verl's math_verify.py, found without importing verl."""
    spec = importlib.util.find_spec("verl")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in folders:
        file = Path(folder) / "utils/reward_score/math_verify.py"
        if file.is_file():
            return str(file)
    raise SignalError(f"verl's utils/reward_score/math_verify.py was not found in {folders}: install verl==0.9.1")


class _Worker:
    """One child process and its two pipes; used by one thread at a time."""

    def __init__(self, command: list[str], start_seconds: float) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._unread = b""
        try:
            hello = self._read(start_seconds)
        except (_StuckError, _DiedError) as error:
            self.kill()
            raise SignalError(
                f"the process that compares math answers did not start within {start_seconds:g} s ({error}). "
                f"Run it by hand to see why: {' '.join(command)}"
            ) from error
        except BaseException:
            self.kill()
            raise
        if hello != "ready":
            self.kill()
            raise SignalError(f"the process that compares math answers cannot start:\n{hello['error']}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, gold: str, answer: str, wall_seconds: float) -> float:
        assert self._process.stdin is not None
        try:
            # Far below a pipe's 64 KiB for answers within math_answer's limits, so this never blocks.
            self._process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _DiedError(str(error)) from error
        return float(self._read(wall_seconds))

    def _read(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise _StuckError(f"no reply within {seconds:g} s")
            data = os.read(stream, 65536)
            if not data:
                code = self._process.wait()
                if code == -signal.SIGPROF:
                    raise _StuckError("its CPU time is used up")
                raise _DiedError(f"exit code {code}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:  # an unflushed request to a dead process
                pass


class MathPool:
    """Compares answers in child processes; any number of threads may call `verify`, in any thread of a process.

    A worker starts when it is first needed and stays. The limits below count from the moment an answer reaches a ready
    worker, so neither start-up nor waiting for a free worker uses them up.

    Args:
        num_workers: Maximum number of processes; None for verl's four, or the number of CPUs if that is smaller.
        cpu_seconds: CPU time of one answer, enforced by the kernel; a busy machine makes no answer wrong.
        wall_seconds: Wall-clock time of one answer, enforced by the caller, for a worker that waits instead of working.
            verl's 30 s.
        start_seconds: Time for a worker to start: importing sympy takes seconds, on a busy machine minutes.
        memory_gib: Address space of one answer, in GiB.
    """

    def __init__(
        self,
        num_workers: int | None = None,
        cpu_seconds: float = 8.0,
        wall_seconds: float = 30.0,
        start_seconds: float = 300.0,
        memory_gib: float = 1.0,
    ) -> None:
        num_workers = min(4, os.cpu_count() or 1) if num_workers is None else num_workers
        limits = {"num_workers": num_workers, "cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds}
        if min(*limits.values(), start_seconds, memory_gib) <= 0:
            raise ValueError(f"expected limits above 0, got {limits}, {start_seconds=}, {memory_gib=}")
        self._cpu_seconds, self._wall_seconds, self._start_seconds = cpu_seconds, wall_seconds, start_seconds
        self._memory_gib = memory_gib
        self._free = threading.BoundedSemaphore(num_workers)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []

    def verify(self, gold: str, answer: str) -> float:
        """1.0 if verl's math-verify finds the answer equal to `gold`, else 0.0; always in bounded time.

        An answer that exceeds its time scores 0, because this is the answer's fault. A worker that dies by itself (out
        of memory, killed) is not: the answer is sent once more, to a new worker.

        Raises:
            SignalError: If no worker can be started, rather than scoring everything 0.
        """
        with self._free:
            worker = self._take()
            for last_attempt in (False, True):
                try:
                    score = worker.ask(gold, answer, self._wall_seconds)
                except _StuckError as error:
                    worker.kill()
                    logger.warning("math answer counted as wrong, %s: %.200r", error, answer)
                    return 0.0
                except _DiedError as error:
                    worker.kill()
                    then = "counted as wrong" if last_attempt else "asked again"
                    logger.warning("a math worker died (%s), its answer is %s: %.200r", error, then, answer)
                    if last_attempt:
                        return 0.0
                    worker = self._start()  # not an idle one, which may have been killed as well
                except BaseException:  # its reply to this answer would be read as the next one's
                    worker.kill()
                    raise
                else:
                    with self._lock:
                        self._idle.append(worker)
                    return score
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Stop the idle workers. The pool can be used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()

    def pids(self) -> list[int]:
        """Process ids of the idle workers."""
        with self._lock:
            return [worker.pid for worker in self._idle]

    def _take(self) -> _Worker:
        while True:
            with self._lock:
                if not self._idle:
                    break
                worker = self._idle.pop()
            if worker.alive:
                return worker
            logger.warning("an idle math worker died and is replaced")
            worker.kill()
        return self._start()

    def _start(self) -> _Worker:
        limits = [str(self._cpu_seconds), str(self._memory_gib)]
        # -P: the script's folder must not come first on the import path.
        return _Worker([sys.executable, "-P", str(_WORKER), _verl_file(), *limits], self._start_seconds)
