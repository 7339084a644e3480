"""The interface of program executors for trainers and evaluations: pool.py's SandboxPool or fusion.py's server.
Pure."""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from verl_ext.data.arc_tasks import Grid, Pair
from verl_ext.sandbox.policy import SandboxPolicy
from verl_ext.sandbox.protocol import grid_problem
from verl_ext.sandbox.results import Execution, ProgramResult, Status, judge


class Executor(Protocol):
    """Runs model-written programs and compares their outputs, in this process, with the expected ones.

    Any number of threads may call `check_many`. Expected outputs never leave this process.

    Attributes:
        counts: Number of executions by final status, including infrastructure errors.
    """

    counts: Counter[Status]

    @property
    def isolation(self) -> Mapping[str, str]:
        """Each layer of `policy.LAYERS` with "ok" or the reason why it does not hold or is not known to hold."""
        ...

    def check_many(
        self, jobs: Iterable[tuple[str, Sequence[Pair]]], stop_at_first_failure: bool = False
    ) -> list[ProgramResult]:
        """Results of programs on their pairs, in the order of the jobs.

        Args:
            jobs: Source of each program and its pairs.
            stop_at_first_failure: Skip a program's pairs after the first that is not `ok`.
        """
        ...

    def close(self) -> None:
        """Release its resources; it cannot be used again."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class PairwiseExecutor(ABC):
    """The common part of all `Executor`s: limits, comparing and counting.

    Args:
        policy: Only `source_bytes` is used here.
        isolation: See `Executor`.
    """

    def __init__(self, policy: SandboxPolicy, isolation: Mapping[str, str]) -> None:
        self._policy = policy
        self._isolation = isolation
        self._lock = threading.Lock()
        self.counts: Counter[Status] = Counter()

    @property
    def isolation(self) -> Mapping[str, str]:
        """See `Executor`; every result repeats it."""
        return self._isolation

    def run(self, program: str, input_grid: Grid) -> Execution:
        """Run `solve(input_grid)` of the program. Its `ok` means a valid grid, without comparison.

        Raises:
            ValueError: If the input is not a grid, which is the caller's mistake.
            SandboxUnavailableError: If a new server is needed and does not start.
        """
        return self._counted(self._run(program, input_grid))

    def check(self, program: str, pairs: Sequence[Pair], stop_at_first_failure: bool = False) -> ProgramResult:
        """Run the program on every pair and compare.

        Args:
            program: Python that defines `solve`.
            pairs: Inputs and the outputs to compare with in this process.
            stop_at_first_failure: Skip the pairs after the first that is not `ok`: `reward` stays the same unless
                a later one would have been an infrastructure error.
        """
        executions: list[Execution] = []
        for pair in pairs:
            executions.append(self._counted(judge(self._run(program, pair.input), pair.output)))
            if stop_at_first_failure and executions[-1].status is not Status.OK:
                break
        return ProgramResult(tuple(executions))

    @abstractmethod
    def close(self) -> None:
        """Release its resources."""

    @abstractmethod
    def _execute(self, source: bytes, grid: list[list[int]]) -> Execution:
        """Run a program of allowed size on a valid grid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, program: str, input_grid: Grid) -> Execution:
        grid = [list(row) for row in input_grid]
        problem = grid_problem(grid)
        if problem:
            raise ValueError(f"input_grid: {problem}")
        source = program.encode("utf-8", "replace")
        if len(source) > self._policy.source_bytes:
            detail = f"the program has {len(source)} bytes, allowed are {self._policy.source_bytes}"
            return Execution(Status.FORBIDDEN, detail=detail, isolation=self._isolation)
        return self._execute(source, grid)

    def _counted(self, execution: Execution) -> Execution:
        with self._lock:
            self.counts[execution.status] += 1
        return execution
