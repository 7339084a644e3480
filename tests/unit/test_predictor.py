"""The posterior of pass rates: its arithmetic, its choices, its floor and its calibration."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings, fit_prior


def make(num_prompts: int = 10, **settings) -> PassRatePosterior:
    return PassRatePosterior(num_prompts, PredictorSettings(**settings))


@given(
    history=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), max_size=8),
    discount=st.floats(0.5, 1),
)
def test_evidence_is_discounted_by_its_age_in_versions(history: list[tuple[int, int, int]], discount: float):
    posterior = make(discount=discount, prior_weight=None)
    version = 0
    for steps, passes, fails in history:
        version += steps
        posterior.set_weight_version(version)
        posterior.observe(3, passes, fails)
    alpha, beta = posterior.posterior(3)
    times = np.cumsum([steps for steps, _, _ in history])
    kept = [discount ** (version - time) for time in times]
    assert alpha == pytest.approx(0.2 + sum(k * passes for k, (_, passes, _) in zip(kept, history, strict=True)))
    assert beta == pytest.approx(0.2 + sum(k * fails for k, (_, _, fails) in zip(kept, history, strict=True)))
    assert posterior.posterior([0, 1])[0].tolist() == [0.2, 0.2]


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.3), (0.2, 0.2), (2.0, 1.0)])
def test_the_fitted_prior_is_the_one_that_the_pool_was_drawn_from(a: float, b: float):
    rng = np.random.default_rng(0)
    outcomes: dict[tuple[int, int], float] = {}
    for rate in rng.beta(a, b, 20_000):
        passes = int(rng.binomial(4, rate))
        outcomes[passes, 4 - passes] = outcomes.get((passes, 4 - passes), 0) + 1
    assert fit_prior(outcomes, (0.2, 0.2), 20) == pytest.approx((a, b), rel=0.1)


def test_without_evidence_the_prior_stays_and_its_weight_resists():
    a, b = fit_prior({(2, 0): 1e-9}, (0.3, 0.6), 20)
    assert a / (a + b) == pytest.approx(1 / 3, rel=1e-3)
    assert a + b == pytest.approx(0.9, rel=1e-2)
    means = [a / (a + b) for a, b in (fit_prior({(0, 4): 50}, (0.2, 0.2), weight) for weight in (1, 20, 500))]
    assert means == sorted(means)
    assert means[0] < 0.1 < 0.4 < means[2]


def test_a_pool_of_hopeless_prompts_lowers_the_prior_and_the_appeal_of_unknown_ones():
    posterior = make(1000, discount=1.0, exploration_epochs=1e9)
    for position in range(300):
        posterior.observe(position, 0, 4)
    for position in range(300, 320):
        posterior.observe(position, 2, 2)
    assert posterior.prior == (0.2, 0.2)
    posterior.set_weight_version(1)
    assert posterior.prior[0] / sum(posterior.prior) < 0.2
    fixed = make(1000, discount=1.0, exploration_epochs=1e9, prior_weight=None)
    fixed._passes, fixed._fails = posterior._passes.copy(), posterior._fails.copy()
    known = np.arange(300, 320)
    fitted_picks = sum(np.isin(posterior.choose(20), known).sum() for _ in range(50))
    fixed_picks = sum(np.isin(fixed.choose(20), known).sum() for _ in range(50))
    assert fitted_picks > 1.5 * fixed_picks
    assert posterior.calibration()["predictor/prior_mean"] == posterior.prior[0] / sum(posterior.prior)


def test_only_a_prompts_first_outcomes_speak_for_the_pool_and_they_are_discounted():
    posterior = make(discount=0.5)
    posterior.observe(0, 1, 3)
    posterior.observe(0, 4, 0)
    posterior.set_weight_version(2)
    posterior.observe(1, 1, 3)
    assert posterior._first_outcomes == {(1, 3): 1.25}


def test_prompts_near_one_half_are_chosen_before_hopeless_and_solved_ones():
    posterior = make(300, exploration_epochs=1e9, discount=1.0)
    for position in range(300):
        passes = (0, 8, 16)[position % 3]
        posterior.observe(position, passes, 16 - passes)
    assert set((posterior.choose(80) % 3).tolist()) == {1}


def test_unknown_prompts_are_tried_as_well_as_promising_ones():
    posterior = make(2000, exploration_epochs=1e9)
    for position in range(20):
        posterior.observe(position, 8, 8)
    chosen = posterior.choose(40)
    assert np.isin(np.arange(20), chosen).sum() >= 1
    assert (chosen >= 20).any()


@pytest.mark.parametrize("epochs", [1.0, 2.0, 5.5])
@pytest.mark.parametrize("count", [1, 7, 16])
def test_every_prompt_is_chosen_within_the_stated_number_of_epochs(epochs: float, count: int):
    """Also a prompt that every posterior draw would avoid."""
    num_prompts = 50
    posterior = make(num_prompts, exploration_epochs=epochs, discount=1.0)
    for position in range(num_prompts):
        passes = 50 if position < 5 else 0
        posterior.observe(position, passes, 100 - passes)
    last, worst, choices = np.zeros(num_prompts), 0, 0
    for _ in range(200):
        for position in posterior.choose(count):
            choices += 1
            worst = max(worst, choices - last[position])
            last[position] = choices
    worst = max(worst, float((choices - last).max()))
    assert worst <= epochs * num_prompts + count + epochs


def test_excluded_prompts_are_never_chosen_and_a_choice_has_no_repeats():
    posterior = make(20, exploration_epochs=2.0)
    for _ in range(50):
        chosen = posterior.choose(8, exclude=[1, 2, 3]).tolist()
        assert len(set(chosen)) == 8
        assert not {1, 2, 3} & set(chosen)
    assert sorted(posterior.choose(100, exclude=range(15)).tolist()) == [15, 16, 17, 18, 19]
    assert posterior.choose(3, exclude=range(20)).tolist() == []


def test_large_data_sets_are_sampled():
    posterior = make(1000, max_candidates=50, exploration_epochs=1e9)
    assert len(set(posterior.choose(40).tolist())) == 40


def test_calibration_compares_the_prediction_from_before_with_the_outcome():
    posterior = make(discount=1.0, prior_passes=1, prior_fails=1)
    posterior.observe(0, 3, 1)  # predicted 1/2
    posterior.observe(0, 0, 1)  # predicted 4/6
    calibration = posterior.calibration()
    assert calibration["predictor/brier"] == pytest.approx((4 * 0.25 + (4 / 6) ** 2) / 5)
    assert calibration["predictor/brier_of_the_mean"] == pytest.approx(0.6 * 0.4)
    assert calibration["predictor/bias"] == pytest.approx((4 * 0.5 + 4 / 6 - 3) / 5)
    assert posterior.reliability_table() == [
        {"bin": 0.5, "rollouts": 4, "predicted": 0.5, "observed": 0.75},
        {"bin": 0.6, "rollouts": 1, "predicted": pytest.approx(4 / 6), "observed": 0},
    ]
    posterior.reset_calibration()
    assert posterior.calibration() == {}
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(posterior.state_dict())))
    assert resumed.reliability_table() == posterior.reliability_table() != []


def test_predictions_are_calibrated_on_prompts_drawn_from_the_prior():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.2, 0.2, 4000)
    posterior = make(4000, discount=1.0, exploration_epochs=4.0)
    for _ in range(30):
        for position in posterior.choose(400):
            passes = int(rng.binomial(4, rates[position]))
            posterior.observe(position, passes, 4 - passes)
    for row in posterior.reliability_table():
        if row["rollouts"] > 2000:
            assert row["observed"] == pytest.approx(row["predicted"], abs=0.05)
    calibration = posterior.calibration()
    assert calibration["predictor/brier"] < calibration["predictor/brier_of_the_mean"]


def test_a_resumed_predictor_makes_the_same_choices():
    posterior = make(50)
    for version in range(5):
        posterior.set_weight_version(version)
        for position in posterior.choose(8):
            posterior.observe(position, 2, 2)
    state = json.loads(json.dumps(posterior.state_dict()))
    resumed = make(50, seed=99)
    resumed.load_state_dict(state)
    for _ in range(5):
        assert resumed.choose(6).tolist() == posterior.choose(6).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state_version": 7}, "expected state_version 1, got 7"),
        ({"num_prompts": 9}, "knows 9 prompts, the data set has"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: dict, message: str):
    posterior = make()
    with pytest.raises(ValueError, match=message):
        posterior.load_state_dict(posterior.state_dict() | change)


@pytest.mark.parametrize(
    "settings",
    [{"prior_passes": 0}, {"prior_fails": -1}, {"prior_weight": 0}, {"discount": 0}, {"discount": 1.1},
     {"exploration_epochs": 0.5}, {"max_candidates": 0}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict):
    with pytest.raises(ValueError, match=next(iter(settings))):
        make(**settings)


def test_misuse_is_refused():
    posterior = make()
    posterior.set_weight_version(3)
    with pytest.raises(ValueError, match="weight_version >= 3, got 2"):
        posterior.set_weight_version(2)
    with pytest.raises(ValueError, match="counts of at least 0"):
        posterior.observe(0, -1, 2)
    with pytest.raises(ValueError, match="at least one prompt"):
        make(0)
