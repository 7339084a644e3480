"""Visits made while the actor is trained. Engines and sandbox are stand-ins; tests/integration has the real ones."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.progress import RedactionSettings
from recipe.golden_redaction.method.redaction import RedactedState, RedactionController
from recipe.golden_redaction.method.visits import StateVisit
from recipe.golden_redaction.texts import TextLogProbs
from recipe.golden_redaction.visiting import Visits

LENGTHS = dict.fromkeys("abcd", 10)


class FakeVisitor:
    """A visit returns its states with their version; `go` holds all of them up."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.error: Exception | None = None

    def visit(
        self, states: Sequence[RedactedState], problems: Mapping[str, Any], version: int, timed: Any
    ) -> list[Any]:
        with timed("gen"):
            assert self.go.wait(timeout=60)
        if self.error:
            raise self.error
        return [(state.problem, version) for state in states]


class Made:
    def __init__(self) -> None:
        self.controller = RedactionController(LENGTHS, RedactionSettings(decided_above=None))
        self.visitor = FakeVisitor()
        nothing: Any = None
        visitor: Any = self.visitor
        self.visits = Visits(self.controller, visitor, nothing, {}, None, with_prompt_log_probs=False)
        self.phases: list[str] = []

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        self.phases.append(name)
        yield


@pytest.fixture
def made() -> Iterator[Made]:
    made = Made()
    yield made
    made.visitor.go.set()
    made.visits.close()


def test_without_going_ahead_visits_are_made_when_they_are_taken(made: Made):
    assert made.visits.take(2, 5, made.timed) == [("a", 5), ("b", 5)]
    assert made.phases == ["gen"]
    assert made.visits.wait(made.timed) == {}
    assert made.visits.take(2, 6, made.timed) == [("c", 6), ("d", 6)]


def test_what_was_begun_ahead_is_of_other_problems_and_is_taken_next(made: Made):
    made.visits.take(2, 5, made.timed)
    made.visitor.go.clear()
    made.visits.begin(2, 5, exclude=["a", "b"])
    assert made.visits.in_flight == ["c", "d"]
    made.visitor.go.set()
    seconds = made.visits.wait(made.timed)
    assert seconds["golden/ahead/seconds"] >= 0
    assert made.phases == ["gen", "wait_for_visits"]  # the phases of another thread are not recorded
    assert made.visits.take(2, 6, made.timed) == [("c", 5), ("d", 5)]  # under the weights that were served then
    assert made.visits.in_flight == []
    assert made.visits.take(2, 7, made.timed) == [("a", 7), ("b", 7)]


def test_a_checkpoint_does_not_count_visits_that_it_does_not_hold(made: Made):
    made.visits.take(2, 5, made.timed)
    before = made.controller.state_dict()
    made.visits.begin(2, 5, exclude=["a", "b"])
    made.visits.wait(made.timed)
    state = made.controller.state_dict(made.visits.in_flight)
    assert state == before
    assert made.controller.state_dict() != before
    resumed = Made()
    resumed.controller.load_state_dict(state)
    assert resumed.visits.take(2, 5, resumed.timed) == [("c", 5), ("d", 5)]


def test_an_error_ahead_ends_the_step_that_waits_for_it(made: Made):
    made.visits.take(2, 5, made.timed)
    made.visitor.error = OSError("the engine is gone")
    made.visits.begin(2, 5, exclude=["a", "b"])
    with pytest.raises(OSError, match="the engine is gone"):
        made.visits.wait(made.timed)


# ------------------------------ log-probs of whole texts ------------------------------


class CountingEngine:
    """The log-prob of a text's nth token is -n, minus a hundred for every prompt token 8."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def prompt_log_probs(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        self.asked += [tuple(text) for text in texts]
        return [[-float(n) - 100 * list(text).count(8) for n in range(1, len(text))] for text in texts]


def test_texts_are_measured_after_the_prompt_of_the_state(tmp_path: Path):
    problems = {"a": Problem("a", (7, 7), (1, 2, 3), other_prompts=((8, 8, 8),)), "b": Problem("b", (7,), (1,))}
    engine = CountingEngine()
    texts = TextLogProbs(engine, problems)  # pyright: ignore[reportArgumentType]  (of ServingEngines, one method)
    texts.measure_reference(tmp_path / "reference.json", is_first=True)
    assert engine.asked == [(7, 7, 1, 2, 3), (8, 8, 8, 1, 2, 3), (7, 1)]
    state = RedactedState("a", 2, 1)
    texts.measure([state])
    assert texts.of_golden(state) == [-303.0, -304.0, -305.0]
    visit = StateVisit("a", 2, (8, 8, 8, 1), 2, (2,), 0, prompt=1)
    expected = [None, -301.0, -302.0, -303.0]
    assert texts.of_state(visit) == {"policy": expected, "reference": expected}
    # The other prompt was not measured under this policy.
    assert texts.of_state(StateVisit("a", 2, (7, 7, 1), 2, (2,), 0)) is None
    resumed = TextLogProbs(engine, problems)  # pyright: ignore[reportArgumentType]
    resumed.measure_reference(tmp_path / "reference.json", is_first=False)
    resumed.measure([state])
    assert resumed.of_state(visit) == {"policy": expected, "reference": expected}
