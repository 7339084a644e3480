"""The sandbox for trainers: many programs at once, every execution in its own process."""

import importlib.util
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.executor import PairwiseExecutor
from verl_ext.sandbox.fork_server import ForkServer, ServerDiedError
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError, default_workers
from verl_ext.sandbox.results import Execution, ProgramResult, Status

logger = logging.getLogger(__name__)

_NUMPY = re.compile(rb"\bnumpy\b")


class SandboxPool(PairwiseExecutor):
    """Fork servers that can be replaced while the others work; any number of threads may call `run` and `check`.

        with SandboxPool(SandboxPolicy(require="full")) as pool:
            result = pool.check(program, [Pair(input_grid, expected_grid)])
            result.reward  # 1.0, 0.0, or None: no label

    In asyncio: `await asyncio.to_thread(pool.check, program, pairs)`.

    Args:
        policy: Limits and required isolation.
        workers: Number of concurrent executions; None for one per CPU.
        python: The interpreter to run programs with.

    Attributes:
        counts: Number of executions by final status, including infrastructure errors; `run` does not compare, so its
            `ok` means a valid grid and `check`'s a right one.
        restarts: Number of fork servers that died and were restarted.

    Raises:
        SandboxUnavailableError: Immediately, if this machine cannot provide the isolation of `policy.require`.
    """

    def __init__(
        self, policy: SandboxPolicy | None = None, workers: int | None = None, python: str = sys.executable
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailableError(f"the sandbox needs Linux, this is {sys.platform}; see verl's sandbox_fusion")
        super().__init__(policy or SandboxPolicy(), {})
        self._workers = default_workers() if workers is None else workers
        if self._workers < 1:
            raise ValueError(f"expected workers of at least 1, got {workers}")
        self._python = python
        self._numpy = _numpy_folder()
        self._free = threading.BoundedSemaphore(self._workers)
        self._idle: dict[str, list[ForkServer]] = {"": [], self._numpy: []}
        self._busy: set[ForkServer] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._owner = os.getpid()
        self._closed = False
        self.restarts = 0
        first = self._start("")
        self._idle[""].append(first)
        self._isolation = dict(first.isolation)
        absent = {layer: state for layer, state in self._isolation.items() if state != "ok"}
        if absent:
            logger.warning("the sandbox runs without these layers: %s", absent)

    def _execute(self, source: bytes, grid: list[list[int]]) -> Execution:
        """Wait for a free worker; if its server dies, this execution is an infrastructure error and the server is
        replaced for the next one."""
        if os.getpid() != self._owner:
            raise RuntimeError("a forked process cannot use its parent's SandboxPool: create one after the fork")
        data = json.dumps(grid, separators=(",", ":")).encode()
        numpy = self._numpy if _NUMPY.search(source) else ""
        with self._free:
            server = self._take(numpy)
            try:
                execution = server.run(source, data)
            except ServerDiedError as error:
                self._discard(server)
                logger.warning("a sandbox server died and is replaced: %s", error)
                execution = Execution(
                    Status.INFRASTRUCTURE_ERROR, detail=str(error), isolation=dict.fromkeys(self._isolation, "unknown")
                )
            except BaseException:  # its answer to this would be read as the next one's
                self._discard(server)
                raise
            else:
                self._give_back(numpy, server)
        return execution

    def check_many(
        self, jobs: Iterable[tuple[str, Sequence[Pair]]], stop_at_first_failure: bool = False
    ) -> list[ProgramResult]:
        """`check` for many programs, `workers` at a time, in order."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="sandbox")
        return list(self._threads.map(lambda job: self.check(job[0], job[1], stop_at_first_failure), jobs))

    def pids(self) -> list[int]:
        """Process ids of the idle servers' supervisors."""
        with self._lock:
            return [server.pid for servers in self._idle.values() for server in servers]

    def close(self) -> None:
        """End every server; running executions become infrastructure errors. The pool cannot be used again."""
        with self._lock:
            self._closed = True
            idle = [server for servers in self._idle.values() for server in servers]
            for servers in self._idle.values():
                servers.clear()
            busy, threads = list(self._busy), self._threads
        for server in busy:
            server.hang_up()
        for server in idle:
            server.close()
        if threads is not None:
            threads.shutdown()

    def _start(self, numpy: str) -> ForkServer:
        return ForkServer(self._policy, numpy, self._python)

    def _take(self, numpy: str) -> ForkServer:
        while True:
            with self._lock:
                if self._closed:
                    raise RuntimeError("this SandboxPool is closed")
                server = self._idle[numpy].pop() if self._idle[numpy] else None
                if server is not None and server.alive:
                    self._busy.add(server)
                    return server
            if server is None:
                break
            logger.warning("an idle sandbox server died and is replaced")
            self._discard(server)
        server = self._start(numpy)
        with self._lock:
            self._busy.add(server)
        return server

    def _give_back(self, numpy: str, server: ForkServer) -> None:
        with self._lock:
            self._busy.discard(server)
            if not self._closed:
                self._idle[numpy].append(server)
                return
        server.close()

    def _discard(self, server: ForkServer) -> None:
        with self._lock:
            self._busy.discard(server)
            self.restarts += 1
        server.kill()


def _numpy_folder() -> str:
    """Folder of numpy, without importing it; empty if it is not installed."""
    spec = importlib.util.find_spec("numpy")
    return str(Path(spec.origin).parent.parent) if spec and spec.origin else ""
