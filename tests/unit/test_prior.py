"""The prior of pass rates: recovered from outcomes drawn from it, and no worse with uninformative features."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import expit, logit
from scipy.stats import betabinom

from recipe.fast_dapo.curriculum.prior import (
    LARGEST_LOG_STRENGTH,
    LARGEST_LOGIT,
    MEAN_SCALE,
    STRENGTH_SCALE,
    FeaturePrior,
    Outcomes,
    loss,
)

INITIAL = (0.2, 0.2)
LIMITS = np.array([LARGEST_LOGIT, LARGEST_LOG_STRENGTH])


def no_features(num_prompts: int) -> np.ndarray:
    return np.empty((num_prompts, 0))


def fitted(features: np.ndarray, passes: np.ndarray, num_rollouts: int = 4, weight: float = 20) -> FeaturePrior:
    """The prior of a data set in which every prompt was seen."""
    prior = FeaturePrior(features, INITIAL, weight)
    prior.fit(np.arange(len(features)), passes, num_rollouts - passes)
    return prior


def drawn_passes(rng: np.random.Generator, alpha: np.ndarray, beta: np.ndarray, num_rollouts: int = 4) -> np.ndarray:
    return rng.binomial(num_rollouts, rng.beta(alpha, beta)).astype(float)


# ------------------------------ what is found ------------------------------


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.3), (0.2, 0.2), (2.0, 1.0), (3.0, 9.0)])
def test_the_fitted_prior_is_the_one_that_the_pool_was_drawn_from(a: float, b: float):
    passes = drawn_passes(np.random.default_rng(0), np.full(20_000, a), np.full(20_000, b))
    prior = fitted(no_features(20_000), passes)
    assert prior.average == pytest.approx((a, b), rel=0.1)
    alpha, beta = prior(np.array([[0, 1], [2, 19_999]]))
    assert alpha == pytest.approx(np.full((2, 2), prior.average[0]))
    assert beta == pytest.approx(np.full((2, 2), prior.average[1]))


def test_a_telling_feature_gives_each_group_its_mean_and_its_strength():
    """A level of difficulty: the easy prompts pass often and are alike, the hard ones seldom and are not."""
    rng = np.random.default_rng(1)
    level = np.repeat([0.0, 1.0], 8000)
    means, strengths = np.where(level, 0.15, 0.7), np.where(level, 0.6, 3.0)
    passes = drawn_passes(rng, strengths * means, strengths * (1 - means))
    prior = fitted(level[:, None], passes)
    alpha, beta = prior(np.array([0, 15_999]))
    assert alpha / (alpha + beta) == pytest.approx([0.7, 0.15], rel=0.05)
    assert alpha + beta == pytest.approx([3.0, 0.6], rel=0.15)


def test_a_graded_feature_moves_the_odds_by_its_slope():
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, 8000)
    means = expit(-0.5 + 0.8 * x)
    prior = fitted(x[:, None], drawn_passes(rng, 2 * means, 2 * (1 - means)))
    alpha, beta = prior(np.array([int(x.argmin()), int(x.argmax())]))
    low, high = logit(alpha / (alpha + beta))
    assert (high - low) / (x.max() - x.min()) == pytest.approx(0.8, rel=0.1)


def test_features_that_tell_nothing_cost_next_to_nothing():
    """On the priors, and on the likelihood of outcomes of prompts that were not fitted."""
    rng = np.random.default_rng(3)
    num_seen, num_fresh = 4000, 4000
    noise = rng.normal(size=(num_seen + num_fresh, 8))
    passes = drawn_passes(rng, np.full(len(noise), 0.4), np.full(len(noise), 0.8))
    seen, fresh = np.arange(num_seen), np.arange(num_seen, len(noise))
    flat, noisy = FeaturePrior(noise[:, :0], INITIAL, 20), FeaturePrior(noise, INITIAL, 20)
    for prior in (flat, noisy):
        prior.fit(seen, passes[seen], 4 - passes[seen])
    assert noisy.average == pytest.approx(flat.average, rel=0.03)
    alpha, beta = noisy(fresh)
    assert np.mean(alpha / (alpha + beta)) == pytest.approx(flat.average[0] / sum(flat.average), rel=0.03)
    assert np.std(alpha / (alpha + beta)) < 0.05
    log_likelihoods = [betabinom.logpmf(passes[fresh], 4, *prior(fresh)).mean() for prior in (flat, noisy)]
    assert log_likelihoods[1] > 1.01 * log_likelihoods[0]


@pytest.mark.parametrize("num_features", [1, 8, 40])
@pytest.mark.parametrize("num_seen", [16, 64, 192])
def test_many_features_that_tell_nothing_do_little_harm_while_few_prompts_were_seen(num_features: int, num_seen: int):
    """With as many features as outcomes, an unregularized fit predicts these perfectly and all else wrongly."""
    losses = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=(num_seen + 1000, num_features))
        passes = drawn_passes(rng, np.full(len(noise), 0.4), np.full(len(noise), 0.8))
        seen, fresh = np.arange(num_seen), np.arange(num_seen, len(noise))
        scores = []
        for features in (noise[:, :0], noise):
            prior = FeaturePrior(features, INITIAL, 20)
            prior.fit(seen, passes[seen], 4 - passes[seen])
            scores.append(betabinom.logpmf(passes[fresh], 4, *prior(fresh)).mean())
        losses.append((scores[0] - scores[1]) / abs(scores[0]))
    assert np.mean(losses) < 0.05


def test_a_telling_feature_predicts_fresh_prompts_better():
    rng = np.random.default_rng(4)
    level = rng.integers(0, 2, 4000).astype(float)
    means = np.where(level, 0.05, 0.8)
    passes = drawn_passes(rng, means, 1 - means)
    seen, fresh = np.arange(2000), np.arange(2000, 4000)
    scores = []
    for features in (no_features(4000), level[:, None]):
        prior = FeaturePrior(features, INITIAL, 20)
        prior.fit(seen, passes[seen], 4 - passes[seen])
        scores.append(betabinom.logpmf(passes[fresh], 4, *prior(fresh)).mean())
    assert scores[1] > scores[0] + 0.2


# ------------------------------ what holds it back ------------------------------


def test_the_initial_opinion_holds_it_back_by_its_weight():
    def mean_after_fifty_failures(weight: float) -> float:
        alpha, beta = fitted(no_features(50), np.zeros(50), weight=weight).average
        return alpha / (alpha + beta)

    means = [mean_after_fifty_failures(weight) for weight in (1, 20, 500, np.inf)]
    assert means == sorted(means)
    assert means[0] < 0.1
    assert 0.4 < means[2] < means[3] == pytest.approx(0.5)


def test_without_outcomes_the_initial_opinion_is_kept():
    for initial in ((0.3, 0.6), (2.0, 5.0), (100.0, 100.0), (0.002, 0.004)):
        prior = FeaturePrior(np.arange(6.0)[:, None], initial, 20)
        assert prior.average == pytest.approx(initial)
        prior.fit(np.empty(0, dtype=int), np.empty(0), np.empty(0))
        assert prior.average == pytest.approx(initial, rel=1e-2)
        assert prior(np.arange(6)).alpha == pytest.approx(np.full(6, initial[0]), rel=1e-2)


@pytest.mark.parametrize("num_features", [0, 1, 9])
def test_one_prompt_is_little_evidence(num_features: int):
    features = np.random.default_rng(0).normal(size=(10, num_features))
    prior = FeaturePrior(features, INITIAL, 20)
    prior.fit(np.array([7]), np.array([4.0]), np.array([0.0]))
    alpha, beta = prior(np.arange(10))
    assert alpha / (alpha + beta) == pytest.approx(np.full(10, 0.5), abs=0.25)
    assert alpha[7] / (alpha[7] + beta[7]) > 0.5


def test_a_fit_begins_where_the_last_one_ended_and_does_not_stay_there():
    """A pool of prompts that are all alike drives the strength to its limit; another pool brings it back."""
    prior = FeaturePrior(no_features(2000), INITIAL, 1)
    positions = np.arange(2000)
    prior.fit(positions, np.full(2000, 50.0), np.full(2000, 50.0))
    assert sum(prior.average) == pytest.approx(np.exp(LARGEST_LOG_STRENGTH))
    passes = drawn_passes(np.random.default_rng(5), np.full(2000, 0.4), np.full(2000, 0.8))
    prior.fit(positions, passes, 4 - passes)
    assert prior.average == pytest.approx(fitted(no_features(2000), passes, weight=1).average, rel=1e-3)


@given(
    passes=st.sampled_from([0.0, 1.0, 1000.0]),
    fails=st.sampled_from([0.0, 1.0, 1000.0]),
    num_prompts=st.sampled_from([1, 2, 300]),
    data=st.data(),
)
def test_extreme_outcomes_give_finite_priors(passes: float, fails: float, num_prompts: int, data: st.DataObject):
    features = np.array(
        data.draw(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2), min_size=6, max_size=6))
    )
    features = np.resize(features, (num_prompts, 2))
    prior = FeaturePrior(features, INITIAL, 20)
    everything = np.arange(num_prompts)
    for _ in range(2):
        prior.fit(everything, np.full(num_prompts, passes), np.full(num_prompts, fails))
        alpha, beta = prior(everything)
        assert np.isfinite([alpha, beta]).all()
        assert (alpha > 0).all()
        assert (beta > 0).all()
        assert (alpha + beta <= np.exp(LARGEST_LOG_STRENGTH) * (1 + 1e-9)).all()


def test_a_feature_that_parts_solved_from_hopeless_prompts_stays_finite():
    solved = np.repeat([1.0, 0.0], 500)
    prior = fitted(solved[:, None], 4 * solved)
    alpha, beta = prior(np.array([0, 999]))
    assert (alpha / (alpha + beta))[0] > 0.95
    assert (alpha / (alpha + beta))[1] < 0.05
    assert np.isfinite(prior.coefficients).all()


# ------------------------------ the loss ------------------------------


@given(
    coefficients=st.lists(st.floats(-1.5, 1.5), min_size=6, max_size=6),
    outcomes=st.lists(st.tuples(st.floats(0, 8), st.floats(0, 8), st.floats(0.1, 5)), min_size=1, max_size=6),
    seed=st.integers(0, 9),
)
def test_the_gradient_of_the_loss_is_that_of_finite_differences(
    coefficients: list[float], outcomes: list[tuple[float, float, float]], seed: int
):
    features = np.random.default_rng(seed).uniform(-1, 1, (len(outcomes), 2))
    x = np.concatenate([np.ones((len(outcomes), 1)), features], 1)
    seen = Outcomes(x, *np.array(outcomes).T)

    def value(flat: np.ndarray) -> float:
        return loss(flat.reshape(2, 3), seen, LIMITS)[0]

    flat = np.array(coefficients)
    expected = approx_fprime(flat, value, 1e-6)
    assert loss(flat.reshape(2, 3), seen, LIMITS)[1].ravel() == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_beyond_its_limits_the_loss_is_flat_but_for_the_penalty_and_its_gradient_says_so():
    x = np.array([[1.0, 0.0], [1.0, 3.0]])
    seen = Outcomes(x, np.array([1.0, 3.0]), np.array([3.0, 1.0]), np.ones(2))
    flat = np.array([0.5, 4.0, -0.5, 2.5])  # for the second prompt, the logit is 12.5 and the log strength 7

    def value(flat: np.ndarray) -> float:
        return loss(flat.reshape(2, 2), seen, LIMITS)[0]

    gradient = loss(flat.reshape(2, 2), seen, LIMITS)[1].ravel()
    assert gradient == pytest.approx(approx_fprime(flat, value, 1e-6), abs=1e-3)
    assert gradient[[1, 3]] == pytest.approx([4.0 / MEAN_SCALE**2, 2.5 / STRENGTH_SCALE**2])


def test_the_loss_is_the_beta_binomial_likelihood():
    """Except for the number of orders, which does not depend on the coefficients."""
    passes, fails, counts = np.array([0.0, 2.0, 4.0]), np.array([4.0, 2.0, 0.0]), np.array([3.0, 1.0, 2.0])
    seen = Outcomes(np.ones((3, 1)), passes, fails, counts)

    def log_likelihood(a: float, b: float) -> float:
        return float(counts @ betabinom.logpmf(passes, 4, a, b))

    def value(a: float, b: float) -> float:
        return loss(np.array([[logit(a / (a + b))], [np.log(a + b)]]), seen, LIMITS)[0]

    assert value(0.3, 0.9) - value(2.0, 1.0) == pytest.approx(log_likelihood(2.0, 1.0) - log_likelihood(0.3, 0.9))


# ------------------------------ features ------------------------------


def test_a_feature_that_is_the_same_for_all_is_left_out():
    """Also where rounding makes its standard deviation differ from 0."""
    rng = np.random.default_rng(6)
    varied = rng.normal(size=4001)
    for constant in (0.0, 0.1, 7.3, -1e12):
        assert FeaturePrior(np.full((4001, 1), constant), INITIAL, 20).coefficients.shape == (2, 1)
    passes = drawn_passes(rng, np.full(4001, 0.5), np.full(4001, 0.5))
    alone = fitted(varied[:, None], passes)
    beside = fitted(np.stack([np.full(4001, 7.3), varied], 1), passes)
    assert beside.coefficients == pytest.approx(alone.coefficients)


def test_the_scale_of_a_feature_does_not_matter():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(1000, 1))
    means = expit(x[:, 0])
    passes = drawn_passes(rng, means, 1 - means)
    one, other = fitted(x, passes), fitted(1e6 * x - 3e6, passes)
    assert one(np.arange(1000)).alpha == pytest.approx(other(np.arange(1000)).alpha, rel=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused(bad: float):
    with pytest.raises(ValueError, match="expected finite features"):
        FeaturePrior(np.array([[0.0], [bad]]), INITIAL, 20)
    with pytest.raises(ValueError, match=r"shape \(prompts, features\), got \(3,\)"):
        FeaturePrior(np.zeros(3), INITIAL, 20)
