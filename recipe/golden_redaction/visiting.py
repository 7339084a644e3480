"""Makes a step's visits when the step begins, or ahead, while the actor is trained in the previous step."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactedState, RedactionController
from recipe.golden_redaction.method.rollouts import StateVisitor
from recipe.golden_redaction.method.visits import StateVisit
from recipe.golden_redaction.texts import TextLogProbs

Timed = Callable[[str], Any]


class Visits:
    """Makes new visits, now or ahead.

    Args:
        controller: Chooses the next states.
        visitor: Queries engines and sandbox about them.
        texts: Queries the engines for the log-probs of whole texts.
        problems: Problems by id.
        decided_above: See `RedactionSettings`.
        with_prompt_log_probs: Also record the log-probs of the states' own tokens.
    """

    def __init__(
        self,
        controller: RedactionController,
        visitor: StateVisitor,
        texts: TextLogProbs,
        problems: Mapping[str, Problem],
        decided_above: float | None,
        with_prompt_log_probs: bool,
    ) -> None:
        self._controller = controller
        self._visitor = visitor
        self._texts = texts
        self._problems = problems
        self._settles = decided_above is not None
        self._with_prompt_log_probs = with_prompt_log_probs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="visits")
        self._states: list[RedactedState] = []
        self._ahead: Future[list[StateVisit]] | None = None
        self._seconds = 0.0

    @property
    def in_flight(self) -> list[str]:
        """Problems whose visit was begun ahead and not yet taken."""
        return [state.problem for state in self._states]

    def take(self, count: int, weight_version: int, timed: Timed) -> list[StateVisit]:
        """`count` visits: those begun ahead, otherwise new ones under the served weights.

        Args:
            count: Number of distinct problems; fewer if there are fewer.
            weight_version: Version of the weights that the engines serve.
            timed: Context manager of a named phase: settle, gen, sandbox.
        """
        if self._ahead is None:
            return self._make(self._controller.next_states(count), weight_version, timed)
        visits, self._ahead, self._states = self._ahead.result(), None, []
        return visits

    def begin(self, count: int, weight_version: int, exclude: Collection[str]) -> None:
        """Begin visits that the next `take` returns; the engines must stay awake and keep their weights until `wait`.

        Args:
            count, weight_version: See `take`.
            exclude: Problems whose visits the controller has not observed yet.
        """
        self._states = self._controller.next_states(count, exclude)
        self._ahead = self._thread.submit(self._timed_ahead, self._states, weight_version)

    def wait(self, timed: Timed) -> dict[str, float]:
        """Wait for the visits begun ahead. Then the weights may change.

        Returns:
            `golden/ahead/seconds`: duration of the visits; timing_s/wait_for_visits is the part that was waited for.
        """
        if self._ahead is None:
            return {}
        with timed("wait_for_visits"):
            self._ahead.result()
        return {"golden/ahead/seconds": self._seconds}

    def close(self) -> None:
        """End the thread; its pending calls may never return."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _timed_ahead(self, states: list[RedactedState], weight_version: int) -> list[StateVisit]:
        began = time.perf_counter()
        visits = self._make(states, weight_version, _untimed)
        self._seconds = time.perf_counter() - began
        return visits

    def _make(self, states: list[RedactedState], weight_version: int, timed: Timed) -> list[StateVisit]:
        if self._settles or self._with_prompt_log_probs:
            with timed("settle"):
                self._texts.measure(states)
                states = [self._controller.settle(state, self._texts.of_golden(state)) for state in states]
        visits = self._visitor.visit(states, self._problems, weight_version, timed)
        if self._with_prompt_log_probs:
            for visit in visits:
                visit.own_log_probs = self._texts.of_state(visit)
        return visits


@contextmanager
def _untimed(name: str) -> Iterator[None]:
    """verl's timers are not thread-safe."""
    yield
