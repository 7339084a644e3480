"""Many programs of several tasks: identical ones run once, and infrastructure errors are retried. Pure."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.results import ProgramResult, Status


class Programs:
    """Runs identical programs once, and retries infrastructure errors; any number of threads may use it.

    Args:
        executor: Runs them.
        attempts: Maximum number of runs of a program, at least 1.
    """

    def __init__(self, executor: Executor, attempts: int) -> None:
        self._executor = executor
        self._attempts = attempts
        self._results: dict[tuple[str, str, str], Future[ProgramResult]] = {}
        self._lock = threading.Lock()

    def run(
        self,
        kind: str,
        jobs: Sequence[tuple[str, str]],
        pairs: Mapping[str, Sequence[Pair]],
        stop_at_first_failure: bool = False,
    ) -> list[ProgramResult]:
        """Results in the order of the jobs.

        Args:
            kind: Kind of the pairs: a task has the same pairs of a kind in every call.
            jobs: Task and program.
            pairs: Pairs by task.
            stop_at_first_failure: See `Executor`; the same in every call of a kind.
        """
        keys = [(kind, *job) for job in jobs]
        with self._lock:
            new = {key: Future[ProgramResult]() for key in dict.fromkeys(keys) if key not in self._results}
            self._results |= new
        # No thread waits for another before its own programs have run, so there is no deadlock.
        try:
            found = self._run([(task, program) for _, task, program in new], pairs, stop_at_first_failure)
        except BaseException as error:
            for future in new.values():
                future.set_exception(error)
            raise
        for future, result in zip(new.values(), found, strict=True):
            future.set_result(result)
        return [self._results[key].result() for key in keys]

    def _run(
        self, jobs: Sequence[tuple[str, str]], pairs: Mapping[str, Sequence[Pair]], stop_at_first_failure: bool
    ) -> list[ProgramResult]:
        """Results of distinct jobs, in order."""
        results: dict[tuple[str, str], ProgramResult] = {}
        waiting = list(jobs)
        for _ in range(self._attempts):
            if not waiting:
                break
            found = self._executor.check_many(
                [(program, pairs[task]) for task, program in waiting], stop_at_first_failure
            )
            results |= dict(zip(waiting, found, strict=True))
            waiting = [job for job in waiting if Status.INFRASTRUCTURE_ERROR in results[job].statuses]
        return [results[job] for job in jobs]
