"""Curves: nothing measured is lost or invented, and smoothing is the average it says it is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.report.compare_data import (
    accuracy_levels,
    accuracy_points,
    level_rows,
    names_of,
    number_rows,
    seed_groups,
)
from verl_ext.report.curves import (
    NUM_HEADLINES,
    accuracies,
    columns,
    explained,
    groups,
    headlines,
    quantile,
    short,
    smooth,
    verls_own,
)
from verl_ext.report.run_config import config_rows, differences, flatten, origin, override_keys
from verl_ext.run.metrics_stream import STEP

FINITE = st.floats(-1e6, 1e6)
VALUES = st.lists(st.none() | FINITE, max_size=30)
WEIGHTS = st.floats(0, 0.99)
NAMES = st.text("ab/_", min_size=1, max_size=6)


@given(VALUES, WEIGHTS)
def test_smoothing_is_the_normalised_exponential_average_of_what_is_known(values, weight):
    known = []
    for value, smoothed in zip(values, smooth(values, weight), strict=True):
        if value is None:
            assert smoothed is None
            continue
        known.append(value)
        weights = [weight ** (len(known) - 1 - place) for place in range(len(known))]
        assert smoothed == pytest.approx(np.average(known, weights=weights), rel=1e-6, abs=1e-6)


@given(VALUES)
def test_smoothing_by_nothing_changes_nothing(values):
    assert smooth(values, 0) == values


@pytest.mark.parametrize("weight", [-0.1, 1.0, math.nan])
def test_a_weight_out_of_range_is_refused(weight):
    with pytest.raises(ValueError, match="below 1"):
        smooth([1.0], weight)


@given(st.lists(st.dictionaries(NAMES, st.none() | FINITE | st.text(max_size=2) | st.booleans() | st.just(math.nan))))
def test_a_column_has_each_records_number_and_nothing_else(records):
    table = columns(records)
    for name, values in table.items():
        assert len(values) == len(records)
        assert any(value is not None for value in values)
        for record, value in zip(records, values, strict=True):
            given = record.get(name)
            is_number = type(given) in (int, float) and math.isfinite(given)
            assert value == (given if is_number else None)
    assert {n for r in records for n, v in r.items() if type(v) is float and math.isfinite(v)} == set(table)


@given(st.sets(NAMES))
def test_every_metric_is_in_one_group_and_the_chosen_ones_exist(names):
    found = groups(names)
    assert sorted(name for own in found.values() for name in own) == sorted(names)
    assert all(own for own in found.values())
    assert set(headlines(names)) <= names
    assert len(headlines(names)) == min(NUM_HEADLINES, len(names)) or any("/" in name for name in names)


def test_what_says_whether_it_learns_comes_first():
    names = ["timing_s/step", "actor/lr", "val-core/x/acc/mean@1", "perf/mfu", "curriculum/trained"]
    assert list(groups(names)) == ["val-core", "curriculum", "actor", "perf", "timing_s"]
    assert headlines(names) == ["val-core/x/acc/mean@1", "timing_s/step"]


def test_four_validation_sets_leave_room_for_what_else_says_whether_it_learns():
    sets = ("aime24", "aime25", "amc23", "math500")
    accuracy = [f"val-core/{name}/acc/mean@32" for name in sets]
    names = [*accuracy, *(f"val-core/{name}/acc/{kind}@32/mean" for name in sets for kind in ("best", "maj"))]
    others = ["critic/score/mean", "curriculum/qualified_share", "actor/entropy", "actor/grad_norm"]
    assert accuracies([*names, *others]) == accuracy
    assert headlines([*names, *others]) == [*accuracy[:3], *others]
    # A reward of another form has no mean@n.
    assert accuracies(["val-core/x/reward", "val-core/y/reward"]) == ["val-core/x/reward"]
    assert accuracies(others) == []


def test_metrics_are_explained_by_our_glossaries_and_verls_own_by_one_more():
    names = ["tracin/selection_ratio", "actor/grad_norm", "critic/score/mean", "my/own", "actor/new", "{model}/new"]
    found = explained(names)
    assert verls_own(names) == ["actor/new"]
    assert list(found) == ["tracin/selection_ratio", "actor/grad_norm", "critic/score/mean"]
    assert found["critic/score/mean"] == "reward of the batch's rollouts, as the reward function returns it [score]"


# ------------------------------ several runs ------------------------------

POINTS = st.lists(st.tuples(st.floats(0, 1), st.none() | st.integers(0, 99), st.none() | FINITE), max_size=9)


@given(st.lists(POINTS, min_size=1, max_size=4))
def test_an_accuracys_cost_is_that_of_the_first_validation_with_it(runs):
    levels = accuracy_levels(runs)
    assert levels == sorted(set(levels))
    assert len(levels) <= 5
    starts = [points[0][0] for points in runs if points]
    for level, row in level_rows(runs):
        assert all(level > start - 1e-6 for start in starts)
        assert any(found is not None for found in row)
        for points, found in zip(runs, row, strict=True):
            first = next((point for point in points if point[0] >= level), None)
            assert found == (None if first is None else first[1:])


def test_accuracies_of_several_sets_are_averaged_with_what_they_cost():
    records = [
        {STEP: 0, "val-core/a/acc/mean@1": 0.2, "val-core/b/acc/mean@1": 0.4, "training/total/rollouts_generated": 0},
        {STEP: 1, "training/total/rollouts_generated": 8},
        {STEP: 2, "val-core/a/acc/mean@1": 0.6, "val-core/b/acc/mean@1": 0.8, "training/total/rollouts_generated": 16},
    ]
    found = accuracy_points(columns(records))
    assert found == [(pytest.approx(0.3), 0, None), (pytest.approx(0.7), 16, None)]
    assert level_rows([found, found[:1]]) == [
        [level, [(16, None), None]] for level in (0.4, 0.5, 0.6, 0.7)
    ]  # fmt: skip
    assert accuracy_points(columns([{STEP: 1}])) == []


def test_runs_that_differ_in_their_seed_are_one_group():
    base = {"optim.lr": "1e-4", "data.seed": "1", "run_dir": "a"}
    configs = [base, base | {"data.seed": "2", "run_dir": "b"}, base | {"optim.lr": "2e-4"}, {}, {}, {}]
    names = ["a", "b", "c", "rloo-seed1", "rloo-seed2", "grpo_3"]
    assert seed_groups(names, configs) == [0, 0, 1, 2, 2, 3]


@given(st.lists(FINITE, min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_numpys(values, share):
    assert quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-6, abs=1e-6)


@given(FINITE)
def test_a_shortened_number_is_right_to_six_digits(value):
    assert short(value) == pytest.approx(value, rel=1e-5)


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=5))
def test_names_of_runs_tell_them_apart(tmp_path_factory, parts):
    root = tmp_path_factory.getbasetemp()
    names = names_of([root.joinpath(*own) for own in parts])
    assert len(set(names)) == len(parts)
    if len(parts) == 1:
        assert names == [parts[0][-1]]


def test_differences_of_numbers_are_to_the_first_run():
    rows = number_rows([{"a": 1.0, "b": 2.0}, {"a": 3.5, "c": 1.0}])
    assert rows == [["a", [1.0, 3.5], [0.0, 2.5]], ["b", [2.0, None], [0.0, None]], ["c", [None, 1.0], [None, None]]]


# ------------------------------ configurations ------------------------------

CONFIGS = st.recursive(
    st.integers() | st.text("xy", max_size=3) | st.none() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: isinstance(value, dict))


def _lookup(config, key):
    for name in key.split("."):
        config = config[name]
    return config


@given(CONFIGS)
def test_a_flattened_configuration_has_every_leaf(config):
    def num_leaves(value):
        return sum(map(num_leaves, value.values())) if isinstance(value, dict) and value else 1

    flat = flatten(config)
    assert len(flat) == (num_leaves(config) if config else 0)
    for key, text in flat.items():
        value = _lookup(config, key)
        assert text == value or text == "null" or str(value).replace("'", '"') == text


@given(st.lists(CONFIGS, min_size=1, max_size=3))
def test_differences_of_configurations_are_those_of_a_key_by_key_comparison(configs):
    flat = [flatten(config) for config in configs]
    expected = {key for own in flat for key in own if any(other.get(key) != own[key] for other in flat)}
    assert {key for key, _ in differences(flat)} == expected
    assert differences([flat[0], flat[0]]) == []


def test_what_was_typed_comes_first_and_then_what_this_project_chose():
    keys = override_keys(["+backend=cpu", "a.b=1", "++x={y: 2}", "~gone"])
    assert keys == ["backend", "a.b", "x", "gone"]
    layers = {"recipe": {"c": "1", "d": "1"}, "experiment": {"c": "2"}}
    assert [origin(key, keys, layers) for key in ("a.b", "a.bc", "x.y", "c", "d")] == [
        "command line",
        "default",
        "command line",
        "experiment",
        "recipe",
    ]
    rows = config_rows({"a.b": "1", "c": "2", "d": "1", "b": "0"}, keys, layers)
    assert [row[0] for row in rows] == ["a.b", "c", "d", "b"]
