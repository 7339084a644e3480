"""Whether a prompt's rewards can be believed: Bayes' rule, and what it does to the choice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings
from recipe.fast_dapo.curriculum.prior import Beta
from recipe.fast_dapo.curriculum.soundness import soundness

STRENGTHS = st.floats(0.05, 50.0)


def of(prior, passes, fails, share):
    arrays = [np.asarray(value, dtype=float) for value in (passes, fails)]
    return soundness(Beta(*map(np.asarray, prior)), *arrays, share)


@given(
    st.tuples(STRENGTHS, STRENGTHS),
    st.integers(0, 30),
    st.integers(0, 30),
    st.floats(0.001, 0.9),
)
def test_it_is_bayes_rule_for_two_beta_binomials(prior, passes, fails, share):
    sound = (1 - share) * betabinom.pmf(passes, passes + fails, *prior)
    faulty = share * betabinom.pmf(passes, passes + fails, 1, 1)
    assert of(prior, passes, fails, share) == pytest.approx(sound / (sound + faulty), rel=1e-6, abs=1e-12)


def test_without_rollouts_it_is_the_share_expected():
    assert of((3.0, 1.0), 0, 0, 0.05) == pytest.approx(0.95)


def test_a_prompt_that_fails_among_solved_ones_is_doubted_and_one_like_the_others_is_not():
    solved = (18.0, 1.0)
    assert of(solved, 4, 4, 0.05) < 0.5
    assert of(solved, 7, 1, 0.05) > 0.9


def seen_pool(faulty_share: float, *, use_features: bool = True) -> tuple[PassRatePosterior, np.ndarray]:
    """Easy prompts, of which one of twenty is solved half the time, and hopeless ones; and which of them are odd."""
    rng = np.random.default_rng(0)
    is_easy = np.arange(600) % 2 == 0
    is_odd = is_easy & (np.arange(600) % 40 == 0)
    rates = np.where(is_odd, 0.5, np.where(is_easy, 0.92, 0.01))
    features = is_easy[:, None].astype(float) if use_features else None
    posterior = PassRatePosterior(600, PredictorSettings(faulty_share=faulty_share, seed=1), features)
    for position in range(600):
        passes = int(rng.binomial(24, rates[position]))
        posterior.observe(position, passes, 24 - passes)
    posterior.set_weight_version(1)
    return posterior, is_odd


def test_prompts_that_contradict_those_like_them_are_chosen_less_often():
    shares = {}
    for faulty_share in (0.0, 0.05):
        posterior, is_odd = seen_pool(faulty_share)
        shares[faulty_share] = np.mean([is_odd[posterior.choose(20)].mean() for _ in range(20)])
    assert shares[0.05] < 0.6 * shares[0.0]
    assert shares[0.0] > 0.5


def test_doubt_finds_most_of_the_odd_ones_and_says_how_many():
    posterior, is_odd = seen_pool(0.05)
    doubted = posterior.soundness(np.arange(600)) < 0.5
    assert (doubted & is_odd).sum() > 0.5 * is_odd.sum()
    assert (doubted & ~is_odd).sum() <= 0.02 * 600
    posterior.observe(1, 0, 1)  # a score needs a rollout
    assert posterior.calibration()["predictor/doubted"] == pytest.approx(doubted.mean(), abs=0.005)


def test_without_features_nothing_is_doubted_and_every_choice_is_the_same():
    believed, _ = seen_pool(0.0, use_features=False)
    posterior, _ = seen_pool(0.3, use_features=False)
    assert (posterior.soundness(np.arange(600)) == 1).all()
    for _ in range(10):
        assert (posterior.choose(20) == believed.choose(20)).all()
    posterior.observe(1, 0, 1)
    assert "predictor/doubted" not in posterior.calibration()


def test_evidence_that_fades_gives_a_prompt_its_credit_back():
    posterior, is_odd = seen_pool(0.05)
    odd = np.flatnonzero(is_odd)
    before = posterior.soundness(odd)
    posterior.weight_version += 2000
    assert before.mean() < 0.4
    assert posterior.soundness(odd) == pytest.approx(0.95, abs=1e-3)
