"""The correction's algebra: by enumeration, and by a simulator that screens Bernoulli prompts."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.correction import (
    clip_weights,
    horvitz_thompson_weight,
    inflation,
    probability_kept,
    rloo_signal,
)
from recipe.fast_dapo.curriculum.screening import ScreeningPlan, fixed_plan

N_SCREENING, GROUP_SIZE = 4, 24
RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)


def screen(outcomes: np.ndarray, plan: ScreeningPlan) -> np.ndarray:
    """Which rows of outcomes, (prompts, samples) of 0/1, a plan keeps: stage by stage, as the controller does."""
    kept = np.zeros(len(outcomes), dtype=bool)
    for row, samples in enumerate(outcomes):
        taken = 0
        while num_next := plan.next_rollouts(int(samples[:taken].sum()), taken):
            taken += num_next
        kept[row] = 0 < samples[:taken].sum() < taken
    return kept


def mean_weight(pass_rate: float, weights: np.ndarray, kept: np.ndarray, num_passes: np.ndarray) -> float:
    """Ratio of the gradient that screened prompts contribute to the one that they should: 1 is unbiased."""
    signal = rloo_signal(num_passes, GROUP_SIZE)
    return float((signal * weights * kept).mean() / (pass_rate * (1 - pass_rate)))


@pytest.mark.parametrize(
    ("group_size", "max_fails", "max_passes"), [(4, 2, 2), (6, 4, 4), (6, 2, 4), (7, 3, 2), (5, 5, 5)]
)
def test_the_probability_is_that_of_all_orders(group_size: int, max_fails: int, max_passes: int):
    for num_passes in range(group_size + 1):
        orders = list(itertools.combinations(range(group_size), num_passes))
        plan = ScreeningPlan(1, max_fails, max_passes)
        outcomes = np.zeros((len(orders), group_size), dtype=int)
        for row, places in enumerate(orders):
            outcomes[row, list(places)] = 1
        exact = Fraction(int(screen(outcomes, plan).sum()), len(orders))
        assert probability_kept(num_passes, group_size, max_fails, max_passes) == pytest.approx(float(exact))


@settings(deadline=None)
@given(
    group_size=st.integers(4, 24),
    limits=st.tuples(st.integers(2, 4), st.integers(2, 4)),
    pass_rate=st.floats(0.01, 0.99),
)
def test_the_weighted_expectation_is_that_of_all_prompts(group_size: int, limits: tuple[int, int], pass_rate: float):
    from scipy.stats import binom

    counts = np.arange(group_size + 1)
    kept = np.array([probability_kept(int(c), group_size, *limits) for c in counts])
    weights = np.array(
        [horvitz_thompson_weight(int(c), group_size, *limits) if k else 0 for c, k in zip(counts, kept, strict=True)]
    )
    contribution = binom.pmf(counts, group_size, pass_rate) * kept * weights * rloo_signal(counts, group_size)
    assert contribution.sum() == pytest.approx(pass_rate * (1 - pass_rate))


@pytest.mark.parametrize("pass_rate", RATES)
@pytest.mark.parametrize(
    "plan", [fixed_plan(N_SCREENING), ScreeningPlan(2, 2, 4), ScreeningPlan(1, 3, 2)], ids=["fixed", "2-4", "3-2"]
)
def test_simulated_screening_is_unbiased_within_two_percent(pass_rate: float, plan: ScreeningPlan):
    """Independent Bernoulli prompts, screened sample by sample, against the same prompts without screening."""
    rng = np.random.default_rng(7)
    num_prompts = 1_000_000
    outcomes = (rng.random((num_prompts, GROUP_SIZE), dtype=np.float32) < pass_rate).astype(np.int8)
    num_passes = outcomes.sum(1)
    first_fails = (outcomes[:, : plan.max_fails] == 0).all(1)
    first_passes = (outcomes[:, : plan.max_passes] == 1).all(1)
    kept = ~first_fails & ~first_passes
    # The short form above equals the stage-by-stage one.
    assert (kept[:2000] == screen(outcomes[:2000], plan)).all()
    table = [
        horvitz_thompson_weight(c, GROUP_SIZE, plan.max_fails, plan.max_passes) if 0 < c < GROUP_SIZE else 0.0
        for c in range(GROUP_SIZE + 1)
    ]
    weights = np.array(table)[num_passes]
    everyone = mean_weight(pass_rate, np.ones(num_prompts), np.ones(num_prompts), num_passes)
    assert everyone == pytest.approx(1, abs=0.02)
    assert mean_weight(pass_rate, weights, kept, num_passes) / everyone == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("pass_rate", "expected"), [(0.01, 5.0), (0.05, 1.7), (0.1, 1.29)])
def test_without_a_correction_rare_passes_are_inflated(pass_rate: float, expected: float):
    assert inflation(pass_rate, N_SCREENING, GROUP_SIZE) == pytest.approx(expected, rel=0.01)
    rng = np.random.default_rng(3)
    outcomes = (rng.random((400_000, GROUP_SIZE)) < pass_rate).astype(np.int8)
    screened = outcomes[:, :N_SCREENING].sum(1)
    kept = (screened > 0) & (screened < N_SCREENING)
    signal = rloo_signal(outcomes.sum(1), GROUP_SIZE)
    assert signal[kept].mean() / (pass_rate * (1 - pass_rate)) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("pass_rate", RATES)
def test_the_continuation_alone_is_unbiased_given_the_prompt(pass_rate: float):
    rng = np.random.default_rng(5)
    outcomes = (rng.random((400_000, GROUP_SIZE)) < pass_rate).astype(np.int8)
    screened = outcomes[:, :N_SCREENING].sum(1)
    kept = (screened > 0) & (screened < N_SCREENING)
    rest = outcomes[kept, N_SCREENING:]
    signal = rloo_signal(rest.sum(1), rest.shape[1])
    error = signal.std() / np.sqrt(len(signal)) / (pass_rate * (1 - pass_rate))
    assert signal.mean() / (pass_rate * (1 - pass_rate)) == pytest.approx(1, abs=max(0.02, 3 * error))


def test_the_largest_weight_belongs_to_a_single_pass():
    weights = [horvitz_thompson_weight(c, 16, 4, 4) for c in range(1, 16)]
    assert max(weights) == weights[0] == weights[-1] == pytest.approx(4)
    assert min(weights) >= 1


def test_clipping_counts_what_it_cut():
    weights, share = clip_weights(np.array([1.0, 2.0, 6.0, 8.0]), 5.0)
    assert weights.tolist() == [1, 2, 5, 5]
    assert share == 0.5
    assert clip_weights(np.array([9.0]), None) == (np.array([9.0]), 0.0)
    with pytest.raises(ValueError, match="clip must be at least 1"):
        clip_weights(weights, 0.5)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="num_passes must be from 0 to group_size=4, got 5"):
        probability_kept(5, 4, 2, 2)
    with pytest.raises(ValueError, match="max_fails must be from 2"):
        probability_kept(1, 4, 1, 2)
    with pytest.raises(ValueError, match="never kept"):
        horvitz_thompson_weight(0, 4, 2, 2)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        inflation(0.0, 4, 16)
