"""The posterior baseline: exact against its formula, and unbiased by enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.baseline import leave_one_out_baselines

rates = st.floats(0.01, 0.99)
evidence = st.floats(0.01, 50.0)


def expected_gradient(rate, group_of, mean, strength):
    """E[sum of (r - b) d log P(y) / d rate] over all outcomes of a policy that passes with probability `rate`.

    Args:
        group_of: Yields (rewards, stages) of every possible group.
    """
    total = 0.0
    for rewards, stages in group_of:
        probability = np.prod([rate if reward else 1 - rate for reward in rewards])
        scores = np.where(np.array(rewards) == 1, 1 / rate, -1 / (1 - rate))
        baselines = leave_one_out_baselines(np.array(rewards), np.array(stages), mean, strength)
        total += probability * float(((np.array(rewards) - baselines) * scores).sum())
    return total


def one_stage(num_rollouts):
    for rewards in itertools.product((0.0, 1.0), repeat=num_rollouts):
        yield rewards, [0] * num_rollouts


def two_phases(n, num_continued, worth_it):
    """n rollouts, and `num_continued` more where `worth_it(rewards)`."""
    for first in itertools.product((0.0, 1.0), repeat=n):
        for second in itertools.product((0.0, 1.0), repeat=num_continued if worth_it(first) else 0):
            yield first + second, [0] * n + [1] * len(second)


@pytest.mark.parametrize("num_rollouts", [1, 2, 3, 4])
@given(rate=rates, alpha=evidence, beta=evidence)
def test_the_gradient_is_unbiased_for_any_prior(num_rollouts, rate, alpha, beta):
    got = expected_gradient(rate, one_stage(num_rollouts), alpha / (alpha + beta), alpha + beta)
    # The gradient of the pass rate with respect to itself is 1, and there are N rollouts of it.
    assert got == pytest.approx(num_rollouts, abs=1e-12 * num_rollouts / (rate * (1 - rate)))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("num_continued", [1, 2])
@pytest.mark.parametrize("worth_it", [lambda first: 0 < sum(first) < len(first), lambda first: sum(first) == 0])
@given(rate=rates, alpha=evidence, beta=evidence)
def test_two_phases_add_the_prompts_own_gradient_times_the_rollouts_spent(
    n, num_continued, worth_it, rate, alpha, beta
):
    groups = list(two_phases(n, num_continued, worth_it))
    spent = sum(np.prod([rate if reward else 1 - rate for reward in rewards]) * len(rewards) for rewards, _ in groups)
    got = expected_gradient(rate, groups, alpha / (alpha + beta), alpha + beta)
    assert got == pytest.approx(spent, abs=1e-12 * spent / (rate * (1 - rate)))


def test_using_a_later_stage_would_be_biased():
    """Why stages matter: the same two phases with all rollouts taken for one stage."""
    groups = [(rewards, [0] * len(rewards)) for rewards, _ in two_phases(2, 2, lambda first: sum(first) == 1)]
    spent = 2 + 2 * 2 * 0.3 * 0.7
    assert abs(expected_gradient(0.3, groups, 0.5, 1.0) - spent) > 0.05


@given(
    rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6),
    alpha=evidence,
    beta=evidence,
)
def test_one_stage_is_the_mean_of_the_posterior_given_the_others(rewards, alpha, beta):
    got = leave_one_out_baselines(np.array(rewards), np.zeros(len(rewards)), alpha / (alpha + beta), alpha + beta)
    others = sum(rewards) - np.array(rewards)
    assert got == pytest.approx((alpha + others) / (alpha + beta + len(rewards) - 1))


@given(
    rewards=st.lists(st.floats(-5, 5), min_size=1, max_size=6),
    mean=st.floats(-5, 5),
    strength=st.floats(0.1, 20),
    data=st.data(),
)
def test_graded_rewards_by_brute_force(rewards, mean, strength, data):
    stages = sorted(data.draw(st.lists(st.integers(0, 2), min_size=len(rewards), max_size=len(rewards))))
    got = leave_one_out_baselines(np.array(rewards), np.array(stages), mean, strength)
    for i, stage in enumerate(stages):
        others = [r for j, r in enumerate(rewards) if j != i and stages[j] <= stage]
        assert got[i] == pytest.approx((strength * mean + sum(others)) / (strength + len(others)), abs=1e-9)


def test_without_an_expectation_it_is_leave_one_out():
    rewards, stages = np.array([1.0, 0.0, 0.0]), np.zeros(3)
    assert leave_one_out_baselines(rewards, stages, mean=0.7, strength=0.0) == pytest.approx([0.0, 0.5, 0.5])
    assert leave_one_out_baselines(rewards[:1], stages[:1], mean=0.7, strength=0.0) == pytest.approx([0.0])


def test_what_is_refused():
    with pytest.raises(ValueError, match="one stage per reward"):
        leave_one_out_baselines(np.zeros(2), np.zeros(3), 0.5, 1.0)
    with pytest.raises(ValueError, match="strength"):
        leave_one_out_baselines(np.zeros(2), np.zeros(2), 0.5, -1.0)
