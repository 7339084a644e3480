"""The posterior baseline: exact against its formula, and unbiased by enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.baseline import RewardScale, credibility, leave_one_out_baselines

rates = st.floats(0.01, 0.99)
evidence = st.floats(0.01, 50.0)


def expected_gradient(rate, group_of, mean, strength):
    """E[sum of (r - b) d log P(y) / d rate] over all outcomes of a policy that passes with probability `rate`.

    Args:
        group_of: Yields (rewards, stages) of every possible group.
    """
    terms = []
    for rewards, stages in group_of:
        probability = math.prod(rate if reward else 1 - rate for reward in rewards)
        scores = np.where(np.array(rewards) == 1, 1 / rate, -1 / (1 - rate))
        baselines = leave_one_out_baselines(np.array(rewards), np.array(stages), mean, strength)
        terms += (probability * (np.array(rewards) - baselines) * scores).tolist()
    return math.fsum(terms)


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
@example(rate=0.01, alpha=0.01, beta=50.0)
@example(rate=0.99, alpha=0.01, beta=50.0)
def test_the_gradient_is_unbiased_for_any_prior(num_rollouts, rate, alpha, beta):
    got = expected_gradient(rate, one_stage(num_rollouts), alpha / (alpha + beta), alpha + beta)
    # The gradient of the pass rate with respect to itself is 1, and there are N rollouts of it.
    assert got == pytest.approx(num_rollouts, rel=0, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("num_continued", [1, 2])
@pytest.mark.parametrize("worth_it", [lambda first: 0 < sum(first) < len(first), lambda first: sum(first) == 0])
@given(rate=rates, alpha=evidence, beta=evidence)
def test_two_phases_add_the_prompts_own_gradient_times_the_rollouts_spent(
    n, num_continued, worth_it, rate, alpha, beta
):
    groups = list(two_phases(n, num_continued, worth_it))
    spent = math.fsum(
        math.prod(rate if reward else 1 - rate for reward in rewards) * len(rewards) for rewards, _ in groups
    )
    got = expected_gradient(rate, groups, alpha / (alpha + beta), alpha + beta)
    assert got == pytest.approx(spent, rel=0, abs=1e-12)


GRADES = (0.0, 0.25, 0.5, 1.0)


@pytest.mark.parametrize(("n", "num_continued"), [(1, 0), (2, 0), (3, 0), (2, 1), (2, 2), (3, 1)])
@given(logits=st.tuples(*[st.floats(-3, 3)] * 4), alpha=evidence, beta=evidence)
def test_the_gradient_of_graded_successes_is_unbiased_too(n, num_continued, logits, alpha, beta):
    """A policy over four grades, by its logits; a screening is continued where its successes differ."""
    chances = np.exp(logits) / np.exp(logits).sum()
    total, spent = np.zeros(4), 0.0
    for first in itertools.product(range(4), repeat=n):
        for second in itertools.product(range(4), repeat=num_continued if len(set(first)) > 1 else 0):
            rollouts = np.array(first + second)
            successes = np.array(GRADES)[rollouts]
            probability = chances[rollouts].prod()
            stages = np.array([0] * n + [1] * len(second))
            baselines = leave_one_out_baselines(successes, stages, alpha / (alpha + beta), alpha + beta)
            scores = np.eye(4)[rollouts] - chances  # of the logits
            total += probability * ((successes - baselines)[:, None] * scores).sum(0)
            spent += probability * len(rollouts)
    gradient = chances * (np.array(GRADES) - chances @ GRADES)  # of the mean success
    assert total == pytest.approx(spent * gradient, rel=0, abs=1e-12)


def test_using_a_later_stage_would_be_biased():
    """Why stages matter: the same two phases with all rollouts treated as one stage."""
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


# ------------------------------ what passes and failures are rewarded with ------------------------------

graded = st.lists(st.tuples(st.floats(0, 1), st.floats(-5, 5)), min_size=1, max_size=12)


def scale_of(*groups):
    scale = RewardScale()
    for successes, rewards in groups:
        scale.add(RewardScale.sums_of(successes, rewards))
    return scale


@given(rollouts=graded, others=graded)
def test_the_line_is_that_of_least_squares_through_all_rollouts(rollouts, others):
    (x, r), (more_x, more_r) = np.array(rollouts).T, np.array(others).T
    all_x, all_r = np.append(x, more_x), np.append(r, more_r)
    failure, gain = scale_of((x, r)).line(RewardScale.sums_of(more_x, more_r))
    if np.var(all_x) > 1e-3:
        slope, intercept = np.polyfit(all_x, all_r, 1)
        assert (failure, gain) == (pytest.approx(intercept, abs=1e-6), pytest.approx(slope, abs=1e-6))
    elif np.var(all_x) < 1e-10:  # nothing shows what a further success would earn
        assert gain == 1
    # The line goes through the mean in any case.
    assert failure + gain * all_x.mean() == pytest.approx(all_r.mean(), abs=1e-6)


def test_rewards_of_minus_one_and_one_are_a_line_of_their_own():
    scale = scale_of(([0, 0, 1], [-1, -1, 1]), ([1, 1], [1, 1]))
    assert scale.line(np.zeros(5)) == pytest.approx((-1, 2))


def test_where_nothing_is_known_a_reward_is_a_success_and_equal_successes_move_it():
    assert RewardScale().line(np.zeros(5)) == (0, 1)
    assert scale_of(([1, 1], [3, 5])).line(np.zeros(5)) == pytest.approx((3, 1))
    assert scale_of(([0], [-1])).line(np.zeros(5)) == pytest.approx((-1, 1))


@given(groups=st.lists(graded, min_size=2, max_size=4))
def test_a_prompt_is_left_out_of_its_own_line(groups):
    """As if it had not been there: its baselines must not depend on its rollouts."""
    columns = [np.array(rollouts).T for rollouts in groups]
    sums = [RewardScale.sums_of(x, r) for x, r in columns]
    before = scale_of(([0, 1], [-1, 1]))
    for place, _ in enumerate(groups):
        others = [columns[other] for other in range(len(groups)) if other != place]
        without = scale_of(([0, 1], [-1, 1]), *others).line(np.zeros(5))
        assert before.line(sum(sums) - sums[place]) == pytest.approx(without, rel=1e-4, abs=1e-4)


# ------------------------------ groups without a posterior ------------------------------


@pytest.mark.parametrize(("a", "b"), [(0.2, 0.2), (2.0, 1.0), (1.0, 4.0)])
@pytest.mark.parametrize("sizes", [(2,), (8,), (1, 3, 8)])
def test_credibility_finds_the_strength_of_the_beta_distribution_that_groups_were_drawn_from(a, b, sizes):
    rng = np.random.default_rng(0)
    groups = [
        rng.binomial(1, rate, size=sizes[place % len(sizes)]).astype(float)
        for place, rate in enumerate(rng.beta(a, b, 60_000))
    ]
    mean, strength = credibility(groups)
    assert mean == pytest.approx(a / (a + b), rel=0.02)
    assert strength == pytest.approx(a + b, rel=0.1)


def test_credibility_of_few_groups_by_hand():
    """Within: 1.5 / 7. Between: (0.9 - 2 * 1.5 / 7) / (10 - 36 / 10)."""
    groups = [np.array(rewards) for rewards in ([0.0, 0.0, 1.0, 0.0], [1.0, 1.0], [1.0, 0.0, 1.0, 1.0])]
    assert credibility(groups) == pytest.approx((0.6, 32 / 11))


def test_credibility_is_of_any_scale_of_rewards():
    rng = np.random.default_rng(1)
    groups = [rng.normal(mean, 2.0, size=6) for mean in rng.normal(3.0, 1.0, 20_000)]
    mean, strength = credibility(groups)
    assert mean == pytest.approx(3.0, rel=0.02)
    assert strength == pytest.approx(2.0**2 / 1.0**2, rel=0.1)


def test_prompts_that_are_all_alike_are_expected_to_stay_so():
    alike = [np.array([0.0, 1.0])] * 10
    assert credibility(alike) == (0.5, 1e6)
    rng = np.random.default_rng(2)
    assert credibility([rng.binomial(1, 0.3, 4).astype(float) for _ in range(20_000)])[1] > 30


def test_prompts_whose_rollouts_all_agree_need_no_others():
    assert credibility([np.zeros(4), np.ones(4), np.ones(4)]) == pytest.approx((2 / 3, 0.0))


@pytest.mark.parametrize(
    ("groups", "mean"),
    [([], 0.0), ([np.ones(3)], 1.0), ([np.array([0.0]), np.array([1.0])], 0.5), ([np.ones(3), np.zeros(1)], 0.75)],
)
def test_too_few_groups_expect_nothing(groups, mean):
    assert credibility(groups) == (mean, 0.0)
