"""Warnings: each is there exactly if its cause is, and says where it is and what to do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.pages.curriculum_view import conservation
from verl_ext.report.curves import columns
from verl_ext.report.recipe_pages import all_pages
from verl_ext.report.run_facts import numbers, phase_columns, phases
from verl_ext.report.run_warnings import find_warnings, null_steps
from verl_ext.report.warning_rules import LOGS, RULES
from verl_ext.run.metrics_stream import STEP

HEALTHY = {
    "engine_guard/probs_diff_mean": 1e-6,
    "actor/entropy": 0.8,
    "actor/grad_norm": 1.0,
    "actor/pg_clipfrac": 0.01,
    "critic/advantages/max": 1.0,
    "critic/advantages/min": -1.0,
    "curriculum/qualified_share": 0.5,
    "curriculum/unaccounted_rollouts": 0.0,
    "curriculum/correction_weight/clipped_share": 0.0,
    "curriculum/failed": 0.0,
    "golden/sandbox/infrastructure_error": 0.0,
    "golden/movement/engine/wrong_way": 0.0,
    "golden/tensors/changed_share/mean": 0.99,
    "response_length/clip_ratio": 0.1,
}


def _run(changes=(), steps=20):
    """Healthy records, and changes of (step, metric, value)."""
    records = [HEALTHY | {STEP: step} for step in range(1, steps + 1)]
    for step, metric, value in changes:
        records[step - 1][metric] = value
    return records


def _find(records, **more):
    return find_warnings(columns(records), nulls=null_steps(records), max_probs_diff=1e-3, **more)


def test_a_healthy_run_has_none():
    assert _find(_run()) == []
    assert _find([]) == []


@pytest.mark.parametrize(
    ("metric", "value", "title", "level"),
    [
        ("engine_guard/probs_diff_mean", 6e-4, "engine near its bound", "look"),
        ("engine_guard/probs_diff_mean", 2e-3, "stale engine", "problem"),
        ("engine_guard/probs_diff_mean/after", 2e-3, "stale engine", "problem"),
        ("curriculum/correction_weight/clipped_share", 0.4, "clipped correction weights", "look"),
        ("golden/movement/engine/wrong_way", 0.6, "wrong-way tokens", "problem"),
        ("golden/sandbox/infrastructure_error", 0.01, "sandbox infrastructure errors", "problem"),
        ("golden/tensors/changed_share/mean", 0.2, "much of an update lost by rounding", "look"),
        ("curriculum/qualified_share", 0.0, "no informative group", "look"),
        ("curriculum/unaccounted_rollouts", -2.0, "unaccounted rollouts", "problem"),
        ("tracin/update_skipped", 1.0, "update skipped", "look"),
        ("actor/grad_norm", None, "NaN or Inf at step 7", "problem"),
        ("actor/grad_norm", 500.0, "gradient spikes", "look"),
        ("response_length/clip_ratio", 0.9, "cut responses", "look"),
    ],
)
def test_each_cause_has_its_warning_at_its_step(metric, value, title, level):
    (warning,) = _find(_run([(7, metric, value)]))
    assert (warning.title, warning.level, warning.steps, warning.metric) == (title, level, (7,), metric)
    assert warning.what
    assert warning.remedy


def test_a_remedy_that_sends_to_a_log_names_the_row_with_its_folder():
    remedies = [rule.remedy for rule in (*(rule for pages in all_pages() for rule in pages.rules), *RULES)]
    to_a_log = [remedy for remedy in remedies if re.search(r"\blogs?\b(?!-)", remedy)]
    assert len(to_a_log) >= 3
    assert [remedy for remedy in to_a_log if LOGS not in remedy] == []


def test_one_cause_of_nan_is_one_warning():
    names = ("actor/grad_norm", "actor/pg_loss", "actor/entropy", "perf/a", "perf/b")
    spoiled = [(step, name, None) for step in range(13, 21) for name in names]
    # An occasional mean of nothing is another matter.
    other, grave = _find(_run([*spoiled, (3, "timing_s/testing", None), (5, "timing_s/testing", None)]))[::-1]
    assert (grave.title, grave.level, grave.steps) == ("NaN or Inf from step 13 on", "problem", tuple(range(13, 21)))
    assert grave.what == "actor/grad_norm, actor/pg_loss, actor/entropy and 2 more (8 of 20 steps)"
    assert "step 13" in grave.remedy
    assert (other.title, other.level, other.metric) == ("NaN or Inf at some steps", "look", "timing_s/testing")


@given(st.dictionaries(st.sampled_from(["a/loss", "b", "c", "d/grad_norm"]), st.sets(st.integers(1, 9), min_size=1)))
def test_every_nan_is_in_a_warning_and_a_grave_one_in_a_grave_warning(nulls):
    found = find_warnings({STEP: list(range(1, 10))}, nulls={name: sorted(steps) for name, steps in nulls.items()})
    for name, steps in nulls.items():
        level = {"problem"} if name.endswith(("loss", "norm")) else {"problem", "look"}
        own = [one for one in found if steps <= set(one.steps) and one.level in level]
        assert any(name in one.what or " more (" in one.what for one in own)
    assert len(found) <= len(nulls)


def test_a_batch_whose_advantages_are_all_zero_taught_nothing():
    (warning,) = _find(_run([(3, "critic/advantages/max", 0.0), (3, "critic/advantages/min", 0.0)]))
    assert (warning.title, warning.steps) == ("no informative group", (3,))
    assert _find(_run([(3, "critic/advantages/max", 0.0)])) == []


def test_an_entropy_that_fell_to_nothing_is_said():
    falling = [(step, "actor/entropy", 0.8 * 0.8**step) for step in range(1, 21)]
    assert [one.title for one in _find(_run(falling))] == ["entropy collapsed"]


@given(st.sets(st.integers(1, 12)))
def test_gaps_are_the_steps_that_are_missing_between_the_first_and_the_last(kept):
    records = [record for record in _run(steps=12) if record[STEP] in kept]
    missing = tuple(step for step in range(1, 13) if kept and min(kept) < step < max(kept) and step not in kept)
    found = {one.title: one.steps for one in _find(records)}
    assert found.get("gaps in the metrics", ()) == missing


def test_repeated_superseded_and_broken_records_are_said():
    records = _run(steps=4)
    titles = {one.title: one.steps for one in _find([*records, *records[2:]], superseded=[3, 4], num_broken=1)}
    assert titles == {"steps written twice": (3,), "resumed run": (3, 4), "broken lines": ()}


def test_problems_come_first():
    found = _find(_run([(2, "response_length/clip_ratio", 0.9), (5, "curriculum/given_up", 1.0)]))
    assert [one.level for one in found] == ["problem", "look"]


def test_every_rule_can_be_worded():
    rules = [*RULES, *(rule for pages in all_pages() for rule in pages.rules)]
    assert len(rules) > len(RULES)
    for rule in rules:
        assert rule.what.format(count=1, of=2, worst=0.5)


# ------------------------------ facts ------------------------------


@given(st.lists(st.integers(0, 50), min_size=6, max_size=6), st.integers(-3, 3))
def test_conservation_leaves_exactly_what_no_row_has(counts, lost):
    names = ("total/trained", "total/uninformative", "buffered", "total/expired", "total/failed", "total/set_aside")
    record = {f"curriculum/{name}_rollouts": float(count) for name, count in zip(names, counts, strict=True)}
    record |= {"curriculum/total/generated_rollouts": float(sum(counts) + lost), STEP: 9}
    table = conservation(record)
    assert table is not None
    assert table["unaccounted"] == lost
    assert [count for _, count, _ in table["rows"]] == counts
    assert conservation({STEP: 1}) is None


def test_the_phases_add_up_to_the_time_of_the_steps():
    timing = {"timing_s/gen": 2.0, "timing_s/sandbox": 1.0, "timing_s/update_actor": 0.5, "timing_s/step": 5.0}
    records = [timing | {STEP: 1}, timing | {STEP: 2, "timing_s/gen": 3.0, "timing_s/save_checkpoint": 0.25}]
    table = columns(records)
    assert dict(phases(table)) == {"generation": 5, "sandbox": 2, "update": 1, "checkpoints": 0.25, "rest": 1.75}
    over_time = phase_columns(table)
    assert [sum(values[place] for values in over_time.values()) for place in (0, 1)] == [5.0, 5.0]
    assert {name: sum(values) for name, values in over_time.items()} == dict(phases(table))
    assert phases(columns([{STEP: 1}])) == []


@given(st.floats(0, 50), st.floats(0, 50), st.lists(st.floats(0.1, 9), max_size=5), st.booleans())
def test_with_the_wall_clock_all_phases_add_up_to_it(start_up, idle, tests, steps_are_timed):
    """Start-up, each validation (the first one is before the first step), and the time between steps are included."""
    records = [{STEP: step, "timing_s/testing": seconds} for step, seconds in enumerate(tests)]
    if steps_are_timed:
        records += [{STEP: 10 + step, "timing_s/step": 2.0, "timing_s/gen": 1.5} for step in range(3)]
    wall = start_up + idle + sum(tests) + 6.0 * steps_are_timed
    found = dict(phases(columns(records), (wall, start_up)))
    assert sum(found.values()) == pytest.approx(wall)
    assert found.get("start-up", 0.0) == start_up
    assert found.get("validation", 0.0) == pytest.approx(sum(tests))
    over_time = phase_columns(columns(records))
    assert sum(over_time.get("validation", ())) == pytest.approx(sum(tests[1:]))


def test_the_headline_numbers_are_the_summarys_or_those_so_far():
    records = [
        {STEP: 1, "val-core/x/acc/mean@1": 0.5, "training/total/seconds": 1.0},
        {STEP: 2, "val-core/x/acc/mean@1": 0.3, "training/total/seconds": 2.0, "training/total/rollouts_trained": 8},
    ]
    assert numbers(None, records) == {
        "val_accuracy_after": 0.3,
        "val_accuracy_best": 0.5,
        "global_steps": 2,
        "rollouts_trained": 8,
        "seconds": 2.0,
    }
    assert numbers({"seconds": 7.0, "val_accuracy_before": None}, records)["seconds"] == 7.0
