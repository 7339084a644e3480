"""Knapsack: the value of a rollout, and that no other allocation is worth more."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from allocating_methods import Knapsack, allocate, value
from competitors_play import EASY, HOPELESS, RATES, FixedPassRates, group_sizes, play


def test_the_value_of_rollouts_is_the_chance_of_a_gradient_times_its_gain():
    assert value(2, 0.5) == pytest.approx(0.5 * 0.125)
    assert value(3, 0.25) == pytest.approx((1 - 1 / 64 - 27 / 64) * 0.25 * 0.5625)
    assert value(1, 0.3) == pytest.approx(0.0)
    # Brute force over all outcomes of four rollouts.
    mixed = sum(
        math.prod(0.2 if right else 0.8 for right in outcome)
        for outcome in itertools.product((0, 1), repeat=4)
        if len(set(outcome)) == 2
    )
    assert value(4, 0.2) == pytest.approx(mixed * 0.2 * 0.64)


@given(
    st.lists(st.sampled_from([0.0, 0.05, 0.25, 1 / 3, 0.5, 0.7, 0.95, 1.0]), min_size=1, max_size=4),
    st.integers(0, 8),
    st.integers(3, 6),
)
def test_no_other_allocation_is_worth_more(rates, extra, highest):
    budget = min(2 * len(rates) + extra, highest * len(rates))
    counts = allocate(np.array(rates), budget, 2, highest)
    assert counts.sum() == budget
    assert counts.min() >= 2
    assert counts.max() <= highest
    best = max(
        sum(value(count, rate) for count, rate in zip(other, rates, strict=True))
        for other in itertools.product(range(2, highest + 1), repeat=len(rates))
        if sum(other) == budget
    )
    assert sum(map(value, counts.tolist(), rates)) == pytest.approx(best)


def test_what_is_left_over_goes_to_the_unsolved():
    counts = allocate(np.array([0.5, 0.0, 1.0, 0.0]), 20, 2, 6)
    assert counts.tolist() == [6, 6, 2, 6]
    assert allocate(np.array([0.0, 1.0, 1.0]), 9, 2, 4).tolist() == [4, 3, 2]


def test_a_budget_below_the_least_is_refused():
    with pytest.raises(ValueError, match=r"at least 6 rollouts \(2 each\), got 5"):
        allocate(np.array([0.5, 0.5, 0.5]), 5, 2, 8)


def test_knapsack_prefers_hard_prompts_to_easy_ones_and_both_to_solved_ones():
    counts = allocate(np.array([0.05, 0.2, 0.8, 0.95, 1.0]), 60, 2, 128)
    assert counts[1] > counts[2] > counts[4] == 2
    assert counts[0] > counts[3]


def test_knapsack_is_uniform_in_the_first_epoch_and_keeps_the_sum_after():
    method, policy = Knapsack(120, batch=30, group=4, seed=0), FixedPassRates(RATES)
    first = play(method, policy, 4)
    assert all(set(group_sizes(batch)) == {4} for batch in first)
    assert (method.rates[HOPELESS] == 0).all()
    assert (method.rates[EASY] == 1).all()
    later = play(method, policy, 4)
    assert all(len(batch.rollouts) == 120 for batch in later)
    assert max(group_sizes(later[0])) > 4
