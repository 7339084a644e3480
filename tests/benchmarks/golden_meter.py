"""What a run of `golden_baselines.py` has spent on learning: tokens, programs, processor time."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from golden_baselines_protocol import Cost
from golden_engine import GoldenEngine

from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.results import ProgramResult, Status


class RememberingExecutor:
    """Runs equal programs on equal pairs once in a run: what they return does not change.

    Args:
        executor: Runs them.

    Attributes:
        programs: That were run.
        seconds: Processor time of them.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._known: dict[tuple[str, tuple[Pair, ...], bool], ProgramResult] = {}
        self._lock = threading.Lock()
        self.programs, self.seconds = 0, 0.0
        self.counts: Counter[Status] = executor.counts
        self.isolation = executor.isolation

    def check_many(self, jobs: Any, stop_at_first_failure: bool = False) -> list[ProgramResult]:
        """See `Executor`; what met an infrastructure error is not remembered."""
        keys = [(source, tuple(pairs), stop_at_first_failure) for source, pairs in jobs]
        with self._lock:
            new = [key for key in dict.fromkeys(keys) if key not in self._known]
        found = self._executor.check_many([(source, pairs) for source, pairs, _ in new], stop_at_first_failure)
        made = dict(zip(new, found, strict=True))
        with self._lock:
            self.programs += len(made)
            self.seconds += sum(execution.cpu_seconds for result in found for execution in result.pairs)
            self._known |= {key: result for key, result in made.items() if result.reward is not None}
            return [made.get(key) or self._known[key] for key in keys]


class Meter:
    """What was spent on learning so far.

    Args:
        engine: Counts tokens and updates.
        executor: Counts programs.
    """

    def __init__(self, engine: GoldenEngine, executor: RememberingExecutor) -> None:
        self._engine, self._executor = engine, executor
        self._other = self._all()

    def _all(self) -> Cost:
        counts, positions = self._engine.counts, self._engine.positions
        return Cost(
            **{name: counts[name] for name in ("rollouts", "generated", "updates")},
            **{name: positions[name] for name in ("without_gradient", "with_gradient")},
            programs=self._executor.programs,
            seconds=time.process_time() + self._executor.seconds,
        )

    @property
    def cost(self) -> Cost:
        return self._all() - self._other

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For what is measured and not learned."""
        before = self._all()
        yield
        self._other += self._all() - before
