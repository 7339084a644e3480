"""Golden redaction's evaluation: what is measured in a state, which states make a rung, means, and comparisons."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.evaluate import ATTEMPTS, GoldenEvaluateSettings, Question
from recipe.golden_redaction.evaluation.inputs import read_fresh, read_states
from recipe.golden_redaction.evaluation.states import (
    FRESH,
    METRICS,
    SAME,
    UNSEEN,
    WHOLE,
    Outcome,
    Rung,
    StateResult,
    choose_rungs,
    measure_state,
    vote,
    votes,
)
from recipe.golden_redaction.evaluation.submission import attempts, submission
from recipe.golden_redaction.evaluation.tables import compare, estimate, render, render_comparison, summarize
from recipe.golden_redaction.method.credit import CreditSettings
from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.method.targets import TargetSettings
from recipe.golden_redaction.method.visits import Rollout, StateVisit
from recipe.golden_redaction.records.records import make_entry
from recipe.golden_redaction.records.schema import RecordError
from verl_ext.core.errors import SignalError
from verl_ext.data.arc_tasks import Grid, Pair
from verl_ext.sandbox.programs import Programs
from verl_ext.sandbox.results import Execution, ProgramResult, Status, judge

STATE = RedactedState("t", 3)
ONE, TWO, THREE = ((1,),), ((2,),), ((3,),)
PAIRS = (Pair(((0,),), ONE), Pair(((0,),), TWO))
GRIDS: tuple[Grid | None, ...] = (None, ONE, TWO, THREE)


def _run(pair: Pair, grid: Grid | None, status: Status = Status.RUNTIME_ERROR) -> Execution:
    return judge(Execution(Status.OK, grid=grid), pair.output) if grid is not None else Execution(status)


def _runs(*grids: Grid | None, status: Status = Status.RUNTIME_ERROR) -> tuple[Execution, ...]:
    return tuple(_run(pair, grid, status) for pair, grid in zip(PAIRS, grids, strict=True))


@given(st.lists(st.sampled_from(GRIDS), max_size=8))
def test_the_vote_is_the_most_frequent_grid_and_of_equals_the_first_seen(grids: list[Grid | None]):
    seen = [grid for grid in grids if grid is not None]
    best = None
    for grid in seen:  # by brute force
        if best is None or seen.count(grid) > seen.count(best):
            best = grid
    assert vote(grids) == best
    without_best = [grid for grid in grids if grid != best]
    assert votes(grids, 2) == [grid for grid in (best, vote(without_best)) if grid is not None]


def test_two_attempts_for_every_test_pair_make_a_submission():
    passed = [Outcome(1.0, _runs(grid, TWO)) for grid in (ONE, THREE, ONE, TWO, THREE, THREE)]
    tried = attempts([*passed, Outcome(0.0), Outcome(None)], 2)
    assert tried == [[THREE, ONE], [TWO]]
    content = submission({"t": 2, "failed": 1, "unanswered": 2}, {"t": tried, "failed": attempts([Outcome(0.0)], 1)})
    nothing = {"attempt_1": [[0]], "attempt_2": [[0]]}
    assert json.loads(json.dumps(content)) == {
        "t": [{"attempt_1": [[3]], "attempt_2": [[1]]}, {"attempt_1": [[2]], "attempt_2": [[0]]}],
        "failed": [nothing],
        "unanswered": [nothing, nothing],
    }


# A label and, for label 1, an output on each test and fresh pair.
outputs = st.tuples(*[st.sampled_from(GRIDS)] * 2)
answers = st.lists(st.tuples(st.sampled_from([None, 0.0, 1.0]), outputs, outputs), max_size=6)


@settings(deadline=None)
@given(answers)
def test_a_states_metrics_are_those_of_counting(answers: list[tuple[float | None, Any, Any]]):
    result = measure_state(STATE, [Outcome(x, _runs(*test), _runs(*fresh)) for x, test, fresh in answers], PAIRS, PAIRS)
    labelled = [answer for answer in answers if answer[0] is not None]
    passed = [answer for answer in labelled if answer[0] == 1]
    assert (result.num_samples, result.num_labels, result.num_passed) == (len(answers), len(labelled), len(passed))
    if not labelled:
        assert set(result.metrics.values()) == {None}
        return
    assert result.metrics["pass_rate"] == len(passed) / len(labelled)
    right = (ONE, TWO)
    for name, place in (("test", 1), ("fresh", 2)):
        assert result.metrics[f"{name}_pass_rate"] == sum(a[place] == right for a in passed) / len(labelled)
        voted = tuple(vote([answer[place][number] for answer in passed]) for number in (0, 1))
        assert result.metrics[f"{name}_solved"] == float(voted == right)
    tried = [[votes([answer[1][number] for answer in passed], 2)] for number in (0, 1)]
    hits = [pair.output in grids for pair, (grids,) in zip(PAIRS, tried, strict=True)]
    assert result.metrics["test_score"] == sum(hits) / 2
    outputs = [(grid, pair.output) for answer in passed for grid, pair in zip(answer[2], PAIRS, strict=True)]
    share = sum(grid == output for grid, output in outputs) / len(outputs) if outputs else None
    assert result.metrics["fresh_right"] == share


def test_without_fresh_pairs_nothing_is_said_about_them():
    metrics = measure_state(STATE, [Outcome(1.0, _runs(ONE, TWO))], PAIRS).metrics
    assert {name for name, value in metrics.items() if value is None} == {name for name in METRICS if "fresh" in name}


def test_an_infrastructure_error_is_no_label_anywhere():
    lost = _runs(None, None, status=Status.INFRASTRUCTURE_ERROR)
    right, wrong = _runs(ONE, TWO), _runs(ONE, ONE)
    half = (right[0], lost[1])
    one = measure_state(STATE, [Outcome(None), Outcome(1.0, right, half), Outcome(1.0, lost, lost)], PAIRS, PAIRS)
    assert one.num_labels == 2
    assert one.metrics == {
        "pass_rate": 1, "test_pass_rate": 1, "test_solved": 1, "test_score": 1, "fresh_right": 1,
        "fresh_pass_rate": None, "fresh_solved": None,
    }  # fmt: skip
    # A wrong vote stays wrong, whatever could not be run; a program with a pair that could not be run has no label.
    other = measure_state(STATE, [Outcome(1.0, wrong, (_run(PAIRS[0], THREE), lost[1]))], PAIRS, PAIRS)
    assert (other.metrics["test_solved"], other.metrics["fresh_solved"]) == (0, 0)
    # Nothing could be run on the second pair, so it is unknown whether an attempt would be right.
    nothing = measure_state(STATE, [Outcome(1.0, half)], PAIRS)
    assert nothing.metrics["test_score"] is None
    assert (other.metrics["test_pass_rate"], other.metrics["fresh_pass_rate"]) == (0, None)


# ------------------------------ the ladder ------------------------------


lengths = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 12), min_size=1)


@given(lengths, st.sets(st.sampled_from([0.01, 0.25, 1 / 3, 0.5, 0.99, 1.0])), st.data())
def test_rungs_have_the_states_that_they_are_named_after(lengths: dict[str, int], fractions: set[float], data):
    golden = {name: length for name, length in lengths.items() if length}
    visited = data.draw(
        st.none()
        | st.fixed_dictionaries({name: st.sets(st.integers(1, length), max_size=3) for name, length in golden.items()})
    )
    rungs = {rung.name: rung for rung in choose_rungs(lengths, visited, list(fractions), fresh={"a", "b"})}
    assert all(rung.states and len(set(rung.states)) == len(rung.states) for rung in rungs.values())
    found = {name: {(state.problem, state.k) for state in rung.states} for name, rung in rungs.items()}
    seen = set(golden) if visited is None else {name for name, ks in visited.items() if ks}
    same = {(name, k) for name in seen for k in (visited or {}).get(name, ())}
    bare = {(name, lengths[name]) for name in seen}
    assert found.pop(SAME, set()) == same
    assert found.pop(WHOLE, set()) == bare
    assert found.pop(FRESH, set()) == {state for state in bare if state[0] in "ab"}
    assert found.pop(UNSEEN, set()) == {(name, length) for name, length in lengths.items() if name not in seen}
    for fraction in fractions:
        states = found.pop(f"hidden {100 * fraction:g} %", set())
        for name in seen:
            k = next(k for k in itertools.count() if k >= fraction * lengths[name])
            farther = k > max((visited or {}).get(name, ()), default=0) and k < lengths[name]
            assert ((name, k) in states) == farther
        assert len(states) <= len(seen)
    assert not found
    assert (FRESH not in rungs) or (rungs[FRESH].rate, rungs[FRESH].solved) == ("fresh_pass_rate", "fresh_solved")


def test_more_hidden_tokens_than_the_golden_solution_has_are_an_error():
    with pytest.raises(SignalError, match="training hid 5 tokens of task a, but its golden solution has 4"):
        choose_rungs({"a": 4}, {"a": {5}}, [])


def _result(problem: str, k: int, rate: float | None, solved: float | None = 0.0) -> StateResult:
    metrics: dict[str, float | None] = dict.fromkeys(METRICS)
    return StateResult(problem, k, 4, 3, 2, metrics | {"pass_rate": rate, "test_solved": solved})


def test_tasks_weigh_the_same_however_many_states_they_have():
    results = [_result("a", 1, 1.0), _result("a", 2, 0.5), _result("a", 3, None), _result("b", 1, 0.25)]
    found = estimate(results, "pass_rate")
    assert found is not None
    assert found.value == (0.75 + 0.25) / 2
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    assert estimate([_result("a", 1, None)], "pass_rate") is None


def _content(*rates: float | None) -> dict[str, Any]:
    """A result file of three states of "same states" and one unseen task."""
    states = [RedactedState("a", 1), RedactedState("a", 2), RedactedState("b", 1), RedactedState("c", 0)]
    rungs = [Rung(SAME, "pass_rate", "test_solved", tuple(states[:3]))]
    rungs.append(Rung(UNSEEN, "pass_rate", "test_solved", tuple(states[3:])))
    results = {state: _result(state.problem, state.k, rate) for state, rate in zip(states, rates, strict=True)}
    return json.loads(json.dumps(summarize(rungs, results), allow_nan=False))


def test_a_result_has_every_rung_and_state_and_is_printed():
    content = _content(0.5, 1.0, 0.25, None)
    same, unseen = content["rungs"]
    assert (same["num_tasks"], same["num_states"], same["pass rate"]["value"]) == (2, 3, 0.5)
    assert (same["num_samples"], same["num_labels"]) == (12, 9)
    assert unseen["pass rate"] is None
    assert len(content["states"]) == 4
    assert content["whole"]["num_tasks"] == 1  # only bare prompts
    text = render(content)
    rows = {line.partition("  ")[0]: line.split() for line in text.splitlines()}
    assert rows["same states"][2:6] == ["2", "3", "3", "0.5000"]
    assert rows["unseen tasks"][2:6] == ["1", "1", "1", "-"]


def test_a_comparison_is_of_the_same_states_and_by_task():
    before, after = _content(0.5, 1.0, 0.25, 0.0), _content(1.0, 0.75, 0.25, None)
    rates = {entry.rung: entry for entry in compare(before, after) if entry.metric == "pass rate"}
    assert set(rates) == {SAME}  # the unseen task has no pass rate after
    entry = rates[SAME]
    assert (entry.num_tasks, entry.rose, entry.fell, entry.same) == (2, 1, 1, 1)
    assert (entry.before, entry.after) == (0.5, 0.5625)  # (0.75 + 0.25) / 2, (0.875 + 0.25) / 2
    assert entry.difference.value == 0.0625
    assert (entry.difference.low, entry.difference.high) == (0.0, 0.125)
    assert "same states     pass rate       2  0.5000  0.5625  0.0625  [0.0000, 0.1250]" in render_comparison([entry])


def test_states_of_one_result_alone_are_not_compared():
    before, after = _content(0.5, 1.0, 0.25, 0.0), _content(1.0, 0.75, 0.5, 0.0)
    before["rungs"] = before["rungs"][:1]
    before["rungs"][0]["states"] = [["b", 1]]
    entries = compare(before, after)
    assert [(entry.rung, entry.metric, entry.num_tasks) for entry in entries] == [
        (SAME, "pass rate", 1),
        (SAME, "solved", 1),
    ]
    assert entries[0].difference.value == 0.25
    before["rungs"][0]["states"] = [["z", 1]]
    with pytest.raises(SignalError, match="no state of a rung in common"):
        compare(before, after)


# ------------------------------ programs and files ------------------------------


class FlakyExecutor:
    """Returns the given statuses of a program, one per call."""

    def __init__(self, statuses: dict[str, list[Status]]) -> None:
        self.statuses = statuses
        self.asked: list[str] = []

    def check_many(self, jobs, stop_at_first_failure=False) -> list[ProgramResult]:
        jobs = list(jobs)
        self.asked += [program for program, _ in jobs]
        return [ProgramResult((Execution(self.statuses[program].pop(0)),)) for program, _ in jobs]


def test_identical_programs_run_once_and_infrastructure_errors_again():
    lost = Status.INFRASTRUCTURE_ERROR
    executor = FlakyExecutor({"good": [Status.OK] * 3, "late": [lost, Status.OK], "never": [lost] * 9})
    programs = Programs(executor, ATTEMPTS)  # pyright: ignore[reportArgumentType]
    jobs = [("t", "good"), ("t", "late"), ("t", "good"), ("t", "never")]
    statuses = [result.pairs[0].status for result in programs.run("example", jobs, {"t": PAIRS})]
    assert statuses == [Status.OK, Status.OK, Status.OK, lost]
    assert Counter(executor.asked) == {"good": 1, "late": 2, "never": ATTEMPTS}
    programs.run("example", jobs[:1], {"t": PAIRS})
    assert executor.asked.count("good") == 1
    programs.run("test", jobs[:1], {"t": PAIRS})  # other pairs
    programs.run("example", [("u", "good")], {"u": PAIRS})
    assert executor.asked.count("good") == 3


@pytest.fixture
def problems() -> dict[str, Problem]:
    first = Problem("a", (1, 2), (3, 4, 5), PAIRS, PAIRS)
    return {"a": first, "b": replace(first, id="b", golden_ids=())}


def _write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_visited_states_are_read_from_plain_lines(tmp_path: Path, problems: dict[str, Problem]):
    lines = [{"problem": "a", "k": 1}, {"problem": "a", "k": 3}, {"problem": "a", "k": 1}, {"problem": "z", "k": 9}]
    counts: Counter[str] = Counter()
    assert read_states(_write(tmp_path / "s", *lines), problems, counts) == {"a": {1, 3}}
    assert counts == {"states of tasks that are not evaluated": 1}


def _entry(prompt_ids: list[int], k: int) -> dict[str, Any]:
    rollouts = tuple(Rollout("x", reward, ("ok",)) for reward in (1.0, 0.0))
    visit = StateVisit("a", k, tuple(prompt_ids), 4, (4,), 0, (rollouts,))
    visit.assign_credit([-0.5], CreditSettings(), TargetSettings())
    return make_entry(visit, 1)


def test_visited_states_are_read_from_training_entries_of_the_same_states(tmp_path: Path, problems: dict[str, Problem]):
    path = _write(tmp_path / "entries", _entry([1, 2, 3], 2))
    assert read_states(path, problems, Counter()) == {"a": {2}}
    with pytest.raises(SignalError, match="the state a with k=2 is not one of this model"):
        read_states(_write(tmp_path / "other", _entry([1, 2, 9], 2)), problems, Counter())
    with pytest.raises(RecordError):
        read_states(_write(tmp_path / "bad", {**_entry([1, 2, 3], 2), "k": 0}), problems, Counter())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"problem": "a", "k": 4}, "the state a with k=4 is not one of this model"),
        ({"problem": "b", "k": 1}, "the state b with k=1 is not one of this model"),
        ({"problem": "z", "k": 1}, "has no state of the 2 tasks"),
        ({"problem": "a", "k": True}, "expected a problem id and k >= 1"),
        ({"problem": "a"}, "expected a problem id and k >= 1"),
        (3, "expected JSON lines"),
    ],
)
def test_states_that_fit_no_task_are_an_error(tmp_path: Path, problems: dict[str, Problem], line: Any, words: str):
    with pytest.raises(SignalError, match=words):
        read_states(_write(tmp_path / "s", line), problems, Counter())
    with pytest.raises(SignalError, match="expected JSON lines"):
        read_states(tmp_path / "none", problems, Counter())


def test_fresh_pairs_of_other_tasks_are_left_out(tmp_path: Path, problems: dict[str, Problem]):
    pairs = [{"input": [[1]], "output": [[2]]}]
    path = _write(tmp_path / "f", {"id": "a", "pairs": pairs}, {"id": "z", "pairs": pairs})
    assert read_fresh(path, problems) == {"a": (Pair(ONE, TWO),)}
    with pytest.raises(SignalError, match="has no fresh pairs of the 2 tasks"):
        read_fresh(_write(tmp_path / "g", {"id": "z", "pairs": pairs}), problems)


def test_what_the_model_continues_is_the_prompt_and_the_golden_solution_that_is_left(problems: dict[str, Problem]):
    assert Question(problems["a"], 1).ids == [1, 2, 3, 4]
    assert Question(problems["a"], 3).ids == Question(problems["b"], 0).ids == [1, 2]
    assert Question(problems["a"], 2).key != Question(problems["a"], 1).key


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n": 0}, "--n"),
        ({"temperature": 0.0}, "--temperature 0 needs --n 1"),
        ({"max_new_tokens": 0}, "--max_new_tokens"),
        ({"redact": (0.5, 2.0)}, r"--redact must be shares in \(0, 1\], got \[0.5, 2.0\]"),
        ({"golden_folder": Path("nowhere")}, "--golden_folder nowhere is not a folder"),
        ({"data": ()}, "--data"),
    ],
)
def test_settings_that_cannot_be_run_are_an_error_for_people(tmp_path: Path, changes: dict[str, Any], words: str):
    base = SimpleNamespace(model="m", data=("d.parquet",), output_dir=tmp_path)
    with pytest.raises(SignalError, match=words):
        GoldenEvaluateSettings(**(vars(base) | changes))


def test_samples_of_other_sampling_settings_are_told_apart(tmp_path: Path):
    settings = GoldenEvaluateSettings("m", ("d",), tmp_path)
    for change in ({"n": 3}, {"temperature": 0.5}, {"seed": 1}, {"max_new_tokens": 9}, {"model": "other"}):
        assert replace(settings, **change).sample_settings() != settings.sample_settings()
    assert replace(settings, redact=(0.1,), limit=1).sample_settings() == settings.sample_settings()
