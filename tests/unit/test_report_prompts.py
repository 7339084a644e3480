"""Histories of prompts: every record is counted once, and prompts that taught come first."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.grading import shortfall
from recipe.fast_dapo.curriculum.records import Outcome, Phase
from recipe.fast_dapo.pages.curriculum_data import (
    EVENTS,
    Event,
    accuracy_points,
    most_mixed_first,
    own_parts,
    pass_histograms,
    prompt_histories,
    prompt_row,
    prompt_texts,
    shards,
    source_rows,
    state_of,
)
from verl_ext.run.metrics_stream import STEP

HISTOGRAMS = st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=25)
SCREENING, CONTINUATION, TRAINED = range(3)


@given(HISTOGRAMS, st.integers(1, 8))
def test_windows_of_a_histogram_hold_every_record_once(rows, max_windows):
    records = [
        {STEP: step} | {f"curriculum/screening_pass_rate/{k}_of_3": float(count) for k, count in enumerate(row)}
        for step, row in enumerate(rows, 1)
    ]
    found = pass_histograms(records, max_windows)
    assert found is not None
    assert found["n"] == 3
    assert len(found["windows"]) <= max_windows
    width = found["windows"][0][1]
    assert width == 1 or len(rows) > (width - 1) * max_windows  # no wider than needed
    assert [step for low, high in found["windows"] for step in range(low, high + 1)] == [r[STEP] for r in records]
    for place, (low, high) in enumerate(found["windows"]):
        for k in range(4):
            assert found["counts"][k][place] == sum(row[k] for row in rows[low - 1 : high])


def test_no_screening_no_histogram():
    assert pass_histograms([{STEP: 1, "curriculum/screening_pass_rate/mean": 0.5}]) is None


EVENT = st.fixed_dictionaries(
    {"step": st.integers(1, 9), "event": st.sampled_from(EVENTS), "index": st.integers(0, 3) | st.sampled_from("ab")},
    optional={"samples": st.integers(1, 8)},
).flatmap(
    # With graded successes, their sum.
    lambda event: st.sampled_from(
        [event["samples"] // 2, event["samples"] * 0.3] if "samples" in event else [None]
    ).map(lambda passes: event | ({} if passes is None else {"passes": passes}))
)


@given(st.lists(EVENT, max_size=40), st.integers(1, 5))
def test_each_event_is_in_its_prompts_history_in_order(events, size):
    histories = prompt_histories([{"event": "other", "index": 0, "step": 1}, {"index": 1}, *events])
    for prompt, history in histories.items():
        own = [event for event in events if str(event["index"]) == prompt]
        assert [(event.step, event.name, event.samples) for event in history] == [
            (event["step"], event["event"], event.get("samples", 0)) for event in own
        ]
        row = prompt_row(prompt, history)
        kinds = Counter(event["event"] for event in own if event["event"] == "trained" or event.get("samples"))
        assert (row.screenings, row.trained, row.step) == (kinds["screening"], kinds["trained"], own[-1]["step"])
        samples, passes = (sum(event.get(name, 0) for event in own) for name in ("samples", "passes"))
        assert row.rollouts == samples
        assert row.rate == (pytest.approx(passes / samples) if samples else None)
    assert sum(map(len, histories.values())) == len(events)
    parts = shards(histories, size)
    names = list(histories)
    for place, name in enumerate(names):
        assert parts[place // size][name] == histories[name]
    assert sum(map(len, parts)) == len(names)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([[1, 0, 4, 0], [5, 0, 4, 0]], "hopeless"),
        ([[1, 0, 4, 0], [5, 0, 4, 1]], "learning"),
        ([[1, 0, 4, 2], [1, 1, 8, 8]], "solved"),
        ([[1, 0, 4, 2], [5, 0, 4, 4]], "learning"),
        ([[1, 0, 4, 2], [5, 0, 4, 4], [5, 2, 0, 0], [9, 0, 4, 4]], "solved"),
        ([[1, 0, 4, 4]], "solved"),
        ([[1, 0, 4, 3.2], [2, 1, 8, 7.9]], "learning"),
    ],
)
def test_a_prompt_is_solved_learning_or_hopeless(events, state):
    history = [Event(*event) for event in events]
    assert state_of(history) == state
    assert prompt_row("p", history).state == state


def _visit(step: int, *passes: int, is_trained: bool = True) -> list[dict[str, Any]]:
    """Events of a visit with the default 2 + 2 rollouts: passes of the screening, and of the continuation."""
    phases = zip((Phase.SCREENING, Phase.CONTINUATION), passes, strict=False)
    events = [Outcome("p", phase, count, 2).event() for phase, count in phases]
    return [{"step": step} | event for event in [*events, *[{"event": "trained", "index": "p"}] * is_trained]]


def _mixed(*visits: list[dict[str, Any]]) -> int:
    (history,) = prompt_histories([event for visit in visits for event in visit]).values()
    return prompt_row("p", history).mixed


def test_with_all_prompts_trained_on_hopeless_and_solved_ones_come_after_mixed_ones():
    visits = {
        "hopeless": [_visit(1, 0), _visit(4, 0), _visit(7, 0)],
        "solved": [_visit(1, 2), _visit(4, 2), _visit(7, 2), _visit(9, 2)],
        "once": [_visit(1, 1, 2)],
        "twice": [_visit(1, 1, 0), _visit(4, 1, 1)],
        "twice of three": [_visit(1, 1, 0), _visit(4, 0), _visit(7, 1, 2)],
    }
    rows = [
        prompt_row(name, prompt_histories([event for visit in own for event in visit])["p"])
        for name, own in visits.items()
    ]
    assert [row.prompt for row in most_mixed_first(rows)] == ["twice of three", "twice", "once", "solved", "hopeless"]
    assert [(row.mixed, row.trained) for row in rows] == [(0, 3), (0, 4), (1, 1), (2, 2), (2, 3)]


def test_of_equally_often_mixed_prompts_the_undecided_one_comes_first():
    rows = [
        prompt_row(name, [event for step in steps for event in (Event(step, 0, 8, passes), Event(step, 2))])
        for name, passes, steps in (("a", 7, (1, 2)), ("b", 4, (1, 2)), ("c", 1, (1, 2, 3)), ("d", 8, (1, 2, 3, 4)))
    ]
    assert [row.prompt for row in most_mixed_first(rows)] == ["c", "b", "a", "d"]


def test_only_rollouts_that_were_trained_on_together_make_a_visit_mixed():
    # Not trained on: a band refused it, or it waits.
    assert _mixed(_visit(1, 1, is_trained=False)) == 0
    # The first screening has expired; the second one was trained on.
    assert _mixed(_visit(1, 0, is_trained=False), _visit(5, 2)) == 0
    assert _mixed(_visit(1, 1, 1, is_trained=False), _visit(5, 0)) == 0
    # Calls of one sequential screening, without and with a continuation at the next step.
    assert _mixed(_visit(1, 0, is_trained=False), _visit(1, 2)) == 1
    history = [Event(1, SCREENING, 2, 0), Event(1, SCREENING, 2, 2), Event(2, CONTINUATION, 2, 2), Event(2, TRAINED)]
    assert prompt_row("p", history).mixed == 1


GRADES = st.lists(st.integers(0, 50).map(lambda grade: grade / 50), min_size=1, max_size=32)


@given(GRADES | st.tuples(st.integers(0, 50), st.integers(1, 32)).map(lambda same: [same[0] / 50] * same[1]))
def test_of_graded_successes_the_record_tells_whether_they_differ(grades):
    event = Outcome("p", Phase.SCREENING, sum(grades), len(grades), shortfall(grades)).event()
    assert _mixed([{"step": 1} | event, {"step": 1, "event": "trained", "index": "p"}]) == (len(set(grades)) > 1)


def test_data_sources_sum_up_their_prompts():
    texts = prompt_texts([{"index": name, "prompt": name, "data_source": name[0]} for name in ("a1", "a2", "b1")])
    histories = {
        "a1": [Event(1, SCREENING, 4, 0), Event(3, SCREENING, 4, 4)],
        "a2": [Event(1, SCREENING, 4, 0)],
        "b1": [Event(2, SCREENING, 4, 2), Event(2, TRAINED)],
    }
    rows = [prompt_row(name, history, texts[name]) for name, history in histories.items()]
    assert source_rows(rows) == [
        ["a", 2, 1, 0, 1, 12, 0, pytest.approx(1 / 3), 0.0, 0.5],
        ["b", 1, 1, 0, 0, 4, 1, 0.5, 0.5, 0.5],
    ]
    assert source_rows([prompt_row("x", [Event(1, TRAINED)])])[0][:2] == ["", 1]


WORDS = st.lists(st.sampled_from("abc"), max_size=6)


@given(st.lists(WORDS, min_size=2, max_size=5), WORDS, WORDS)
def test_a_row_shows_what_only_its_prompt_says(bodies, before, after):
    texts = [" ".join([*before, *body, *after]) for body in bodies]
    parts = own_parts(texts)
    if len(set(texts)) == 1:
        assert parts == texts
        return
    first = texts[0].split()
    for text, part in zip(texts, parts, strict=True):
        assert len(part.split()) <= len(text.split()) - len(before) - len(after)
        assert part in text
        head, tail = text.split(), part.split()
        cut = len(head) - len(tail)
        assert any(
            head[:place] == first[:place] and head[place : place + len(tail)] == tail for place in range(cut + 1)
        )
    assert len(set(parts)) == len(set(texts))


def test_accuracy_is_shown_over_rollouts():
    records = [
        {STEP: 0, "training/total/rollouts_generated": 0, "val-core/x/acc/mean@1": 0.1},
        {STEP: 1, "training/total/rollouts_generated": 64},
        {STEP: 2, "training/total/rollouts_generated": 128, "val-core/x/acc/mean@1": 0.25},
    ]
    assert accuracy_points(records) == [[0, 0.1, 0], [128, 0.25, 2]]
