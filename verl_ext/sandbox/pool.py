"""The sandbox for trainers: many programs at once, every execution in a process of its own."""

import importlib.util
import json
import logging
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from verl_ext.sandbox.fork_server import ForkServer, ServerDiedError
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError, default_workers
from verl_ext.sandbox.protocol import grid_problem
from verl_ext.sandbox.results import Execution, Grid, Pair, ProgramResult, Status, judge

logger = logging.getLogger(__name__)

_NUMPY = re.compile(r"\bnumpy\b")


class SandboxPool:
    """Fork servers, each replaceable while the others work; any number of threads may call `run` and `check`.

        with SandboxPool(SandboxPolicy(require="full")) as pool:
            result = pool.check(program, [Pair(input_grid, expected_grid)])
            result.reward  # 1.0, 0.0, or None: no label

    In asyncio: `await asyncio.to_thread(pool.check, program, pairs)`.

    Args:
        policy: Limits and the isolation to have.
        workers: Executions at the same time; None for one a processor.
        python: The interpreter to run programs with.

    Attributes:
        counts: How many executions ended with each status, infrastructure errors included; `run` compares nothing, so
            that its `ok` is a valid grid and `check`'s a right one.
        restarts: How many fork servers died and were started anew.

    Raises:
        SandboxUnavailableError: At once, if this machine cannot give what `policy.require` promises.
    """

    def __init__(
        self, policy: SandboxPolicy | None = None, workers: int | None = None, python: str = sys.executable
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailableError(f"the sandbox needs Linux, this is {sys.platform}; see verl's sandbox_fusion")
        self._policy = policy or SandboxPolicy()
        self._workers = default_workers() if workers is None else workers
        if self._workers < 1:
            raise ValueError(f"expected workers of at least 1, got {workers}")
        self._python = python
        self._numpy = _numpy_folder()
        self._free = threading.BoundedSemaphore(self._workers)
        self._lock = threading.Lock()
        self._idle: dict[str, list[ForkServer]] = {"": [], self._numpy: []}
        self._busy: set[ForkServer] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._owner = os.getpid()
        self._closed = False
        self.counts: Counter[Status] = Counter()
        self.restarts = 0
        first = self._start("")
        self._idle[""].append(first)
        self._isolation = dict(first.isolation)
        absent = {layer: state for layer, state in self._isolation.items() if state != "ok"}
        if absent:
            logger.warning("the sandbox runs without these layers: %s", absent)

    @property
    def isolation(self) -> Mapping[str, str]:
        """Each layer with "ok" or the reason why it does not hold, as every result says again."""
        return self._isolation

    def run(self, program: str, input_grid: Grid) -> Execution:
        """Run `solve(input_grid)` of the program in a new process. Waits while all workers are busy.

        A server that dies under it makes this execution an infrastructure error and is replaced for the next one.

        Raises:
            ValueError: If the input is no grid: that is the caller's mistake.
            SandboxUnavailableError: If a new server cannot be started or has less isolation than promised.
        """
        return self._counted(self._run(program, input_grid))

    def _run(self, program: str, input_grid: Grid) -> Execution:
        problem = grid_problem(input_grid)
        if problem:
            raise ValueError(f"input_grid: {problem}")
        if os.getpid() != self._owner:
            raise RuntimeError("a forked process cannot use its parent's SandboxPool: make one after the fork")
        source = program.encode("utf-8", "replace")
        if len(source) > self._policy.source_bytes:
            detail = f"the program has {len(source)} bytes, allowed are {self._policy.source_bytes}"
            return Execution(Status.FORBIDDEN, detail=detail, isolation=self._isolation)
        data = json.dumps(input_grid, separators=(",", ":")).encode()
        numpy = self._numpy if _NUMPY.search(program) else ""
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
            except BaseException:  # its answer to this would be taken for the next one's
                self._discard(server)
                raise
            else:
                self._give_back(numpy, server)
        return execution

    def check(self, program: str, pairs: Sequence[Pair], stop_at_first_failure: bool = False) -> ProgramResult:
        """Run the program on every pair, each in a new process, and compare.

        Args:
            program: Python that defines `solve`.
            pairs: Inputs and the outputs to compare with, here.
            stop_at_first_failure: Leave out the pairs after the first that is not `ok`: `reward` stays the same unless
                that one is an infrastructure error and a later one would have failed.
        """
        executions = []
        for pair in pairs:
            executions.append(self._counted(judge(self._run(program, pair.input), pair.output)))
            if stop_at_first_failure and executions[-1].status is not Status.OK:
                break
        return ProgramResult(tuple(executions))

    def check_many(
        self, jobs: Iterable[tuple[str, Sequence[Pair]]], stop_at_first_failure: bool = False
    ) -> list[ProgramResult]:
        """`check` for many programs, `workers` at a time, in their order."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="sandbox")
        return list(self._threads.map(lambda job: self.check(job[0], job[1], stop_at_first_failure), jobs))

    def pids(self) -> list[int]:
        """Process ids of the idle servers' supervisors."""
        with self._lock:
            return [server.pid for servers in self._idle.values() for server in servers]

    def close(self) -> None:
        """End every server; executions still going become infrastructure errors. The pool cannot be used again."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _counted(self, execution: Execution) -> Execution:
        with self._lock:
            self.counts[execution.status] += 1
        return execution

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
        server.close()


def _numpy_folder() -> str:
    """Where numpy is installed, without importing it; empty where it is not."""
    spec = importlib.util.find_spec("numpy")
    return str(Path(spec.origin).parent.parent) if spec and spec.origin else ""
