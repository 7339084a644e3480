"""Many programs of several tasks: identical ones run once, and what says nothing is tried again. Pure."""

from collections.abc import Mapping, Sequence

from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.results import ProgramResult, Status


class Programs:
    """Runs identical programs once, and tries again what met an infrastructure error.

    Args:
        executor: Runs them.
        attempts: Times that a program is run at most, at least 1.
    """

    def __init__(self, executor: Executor, attempts: int) -> None:
        self._executor = executor
        self._attempts = attempts
        self._results: dict[tuple[str, str, str], ProgramResult] = {}

    def run(
        self,
        kind: str,
        jobs: Sequence[tuple[str, str]],
        pairs: Mapping[str, Sequence[Pair]],
        stop_at_first_failure: bool = False,
    ) -> list[ProgramResult]:
        """Results in the order of the jobs.

        Args:
            kind: Of the pairs: a task has the same ones under a kind in every call.
            jobs: Task and program.
            pairs: By task.
            stop_at_first_failure: See `Executor`; the same in every call of a kind.
        """
        waiting = [key for key in dict.fromkeys((kind, *job) for job in jobs) if key not in self._results]
        for _ in range(self._attempts):
            if not waiting:
                break
            results = self._executor.check_many(
                [(program, pairs[task]) for _, task, program in waiting], stop_at_first_failure
            )
            self._results |= dict(zip(waiting, results, strict=True))
            waiting = [key for key in waiting if Status.INFRASTRUCTURE_ERROR in self._results[key].statuses]
        return [self._results[kind, task, program] for task, program in jobs]
