"""Bootstrap intervals: they cover the truth about as often as they say, and are empty where there is no data."""

import numpy as np
import pytest

from verl_ext.evaluation.statistics.estimates import (
    CONFIDENCE,
    Estimate,
    bootstrap_macro_mean,
    bootstrap_mean,
    macro_repeat_error,
    repeat_error,
)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    truth, trials = 0.3, 200
    covered = 0
    for _ in range(trials):
        estimate = bootstrap_mean(random.binomial(4, truth, size=60) / 4)
        covered += estimate.low <= truth <= estimate.high
    assert covered / trials == pytest.approx(CONFIDENCE, abs=0.05)


def test_the_interval_agrees_with_the_normal_approximation():
    values = np.random.default_rng(1).random(400)
    estimate = bootstrap_mean(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_equal_seeds_give_equal_intervals():
    values = np.random.default_rng(2).random(20)
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


def test_data_sets_count_the_same_however_long_they_are():
    estimate = bootstrap_macro_mean([[1.0] * 99 + [0.0], [0.0, 0.2]])
    assert estimate.value == pytest.approx((0.99 + 0.1) / 2)
    assert estimate.low < estimate.value < estimate.high


def test_the_macro_averages_interval_is_of_independent_data_sets():
    random = np.random.default_rng(5)
    first, second = random.random(300), random.random(300)
    half = 1.96 * np.sqrt(first.var() / 300 + second.var() / 300) / 2
    estimate = bootstrap_macro_mean([first, second])
    assert estimate.high - estimate.low == pytest.approx(2 * half, rel=0.1)


@pytest.mark.filterwarnings("error")
def test_values_that_are_all_the_same_have_an_interval_without_width():
    assert bootstrap_mean([0.0, 0.0, 0.0]) == Estimate(0.0, 0.0, 0.0)


def test_one_prompt_has_no_interval():
    assert bootstrap_mean([0.5]) == Estimate(0.5)
    assert bootstrap_mean([0.5]).render() == "0.5000"


@pytest.mark.parametrize("data_sets", [[], [[]], [[1.0], []]])
def test_no_prompts_are_refused(data_sets):
    with pytest.raises(ValueError, match="at least one prompt"):
        bootstrap_macro_mean(data_sets)


def test_repeats_move_as_far_as_their_standard_error_says():
    random = np.random.default_rng(5)
    truths_P = random.random(50)
    draws = [random.random((50, 8)) < truths_P[:, None] for _ in range(400)]
    moved = np.std([draw.mean() for draw in draws])
    said = np.sqrt(np.mean([repeat_error(draw) ** 2 for draw in draws]))
    assert said == pytest.approx(moved, rel=0.1)
    # Prompts differ much more than repeats do, which is what the bootstrap over prompts measures.
    assert bootstrap_mean(draws[0].mean(axis=1)).high - draws[0].mean() > 3 * said


def test_one_sample_was_not_repeated():
    assert repeat_error([[1.0], [0.0]]) is None
    assert repeat_error([[1.0, 1.0], [0.0, 0.0]]) == 0.0
    assert macro_repeat_error([0.3, None]) is macro_repeat_error([None]) is None


def test_errors_of_data_sets_are_independent():
    assert macro_repeat_error([0.3, 0.4]) == pytest.approx(0.25)
