"""What trainers and evaluations need of whatever runs programs: pool.py's SandboxPool or fusion.py's server. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from verl_ext.sandbox.results import Pair, ProgramResult, Status


class Executor(Protocol):
    """Runs programs that a model wrote and compares their outputs, here, with what is expected.

    Any number of threads may call `check_many`. Expected outputs never leave this process.

    Attributes:
        counts: How many executions ended with each status, infrastructure errors included.
    """

    counts: Counter[Status]

    @property
    def isolation(self) -> Mapping[str, str]:
        """Each layer of `policy.LAYERS` with "ok" or the reason why it does not hold, or is not known to."""
        ...

    def check_many(
        self, jobs: Iterable[tuple[str, Sequence[Pair]]], stop_at_first_failure: bool = False
    ) -> list[ProgramResult]:
        """Results of programs on their pairs, in the order of the jobs.

        Args:
            jobs: Source of each program and its pairs.
            stop_at_first_failure: Leave out a program's pairs after the first that is not `ok`.
        """
        ...

    def close(self) -> None:
        """Give back what it holds; it cannot be used again."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
