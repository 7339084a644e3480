"""pass@k against brute force, and histograms that account for every prompt."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.evaluation.statistics.pass_rates import PassRateHistogram, histogram, pass_at_k, summarize


@st.composite
def counts(draw, most=40):
    samples = draw(st.lists(st.integers(1, most), min_size=1, max_size=20))
    return [draw(st.integers(0, n)) for n in samples], samples


@st.composite
def one_prompt(draw):
    n = draw(st.integers(1, 9))
    return draw(st.integers(0, n)), n, draw(st.integers(1, n))


@given(one_prompt())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(case):
    c, n, k = case
    subsets = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k([c], n, k)[0] == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@given(counts())
def test_pass_at_1_is_the_pass_rate(case):
    correct, samples = case
    np.testing.assert_allclose(pass_at_k(correct, samples, 1), np.divide(correct, samples), atol=1e-12)


@given(counts(), st.integers(1, 10))
def test_pass_at_k_never_falls_with_k(case, k):
    correct, samples = case
    k = min(k, *samples)
    assert (pass_at_k(correct, samples, k) >= pass_at_k(correct, samples, max(k - 1, 1)) - 1e-12).all()


@pytest.mark.parametrize(("c", "n", "k"), [(1, 10**6, 1), (3, 10**6, 10), (500_000, 10**6, 3), (10, 10**5, 99_000)])
def test_pass_at_k_keeps_its_digits_for_many_samples(c, n, k):
    exact = 1 - Fraction(comb(n - c, k), comb(n, k)) if k < 50 else 1 - Fraction(comb(n - k, c), comb(n, c))
    assert pass_at_k([c], n, k)[0] == pytest.approx(float(exact), rel=1e-12, abs=0)


def test_every_prompt_keeps_its_own_number_of_samples():
    np.testing.assert_allclose(pass_at_k([1, 1, 0, 1], [2, 4, 4, 2], 2), [1.0, 0.5, 0.0, 1.0])


@pytest.mark.parametrize("k", [0, 5])
def test_k_beyond_the_samples_is_an_error(k):
    with pytest.raises(ValueError, match=r"k must be from 1 to the number of samples \(4\)"):
        pass_at_k([1], 4, k)


@pytest.mark.parametrize(
    ("correct", "samples", "message"),
    [
        ([5], 4, "0 <= num_correct <= num_samples"),
        ([-1], 4, "0 <= num_correct"),
        ([], 4, "at least one prompt"),
        ([0.5], 4, "must be counts"),
        ([0], 0, "num_samples >= 1"),
    ],
)
def test_impossible_counts_are_refused(correct, samples, message):
    with pytest.raises(ValueError, match=message):
        histogram(correct, samples)


@given(counts())
def test_zeros_bins_and_ones_account_for_every_prompt_once(case):
    correct, samples = case
    shares = histogram(correct, samples)
    expected = [0.0] * 10
    for c, n in zip(correct, samples, strict=True):
        if 0 < c < n:
            expected[next(i for i in range(10) if Fraction(c, n) < Fraction(i + 1, 10))] += 1 / len(correct)
    assert shares.bins == pytest.approx(expected)
    assert shares.zeros == pytest.approx(sum(c == 0 for c in correct) / len(correct))
    assert shares.ones == pytest.approx(sum(map(np.equal, correct, samples)) / len(correct))
    assert shares.mixed + shares.zeros + shares.ones == pytest.approx(1)


def test_rates_on_the_border_of_a_bin_fall_into_the_upper_one():
    assert histogram([3, 6, 7, 9], 10).bins == (0, 0, 0, 0.25, 0, 0, 0.25, 0.25, 0, 0.25)


def test_a_histogram_that_does_not_sum_to_one_is_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        PassRateHistogram(0.5, (0.0,) * 10, 0.4)


def test_the_text_shows_the_tallest_bar_in_full_and_hides_no_prompt():
    lines = histogram([0] * 999 + [8], 16).render(width=20).splitlines()
    assert len(lines) == 12
    assert lines[0].endswith("99.9 %  " + "#" * 20)
    assert lines[6] == "[0.5, 0.6)    0.1 %  #"
    assert lines[-1] == "n/n           0.0 %"


def test_the_summary_averages_over_prompts():
    summary = summarize([0, 2, 4, 4], 4, ks=(1, 2))
    assert (summary.num_prompts, summary.num_samples) == (4, 16)
    assert summary.pass_rate == summary.pass_at[1] == 0.625
    assert summary.pass_at[2] == pytest.approx((0 + 5 / 6 + 1 + 1) / 4)
    assert summary.standard_error == pytest.approx(np.std([0, 0.5, 1, 1], ddof=1) / 2)
    assert "pass@2   0.7083" in summary.render()


def test_one_prompt_has_no_standard_error_to_show():
    summary = summarize([1], 2)
    assert np.isnan(summary.standard_error)
    assert "+-" not in summary.render()
