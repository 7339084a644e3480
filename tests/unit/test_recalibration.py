"""Predictions that follow the policy: the correction against an optimizer, and on pools whose pass rates move."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit

from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings
from recipe.fast_dapo.curriculum.recalibration import MEMORY, NUM_VERSIONS, SCALE, Recalibration


@given(means=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=5), share=st.floats(0, 1))
def test_nothing_is_corrected_before_anything_was_seen(means, share):
    corrected = Recalibration()(np.array(means), np.full(len(means), share))
    assert corrected == pytest.approx(means, abs=1e-9)


def test_the_coefficients_are_the_most_likely_ones():
    rng = np.random.default_rng(0)
    recalibration = Recalibration()
    rows = []
    for version in range(4):
        for _ in range(60):
            mean, strength, share = rng.uniform(0.02, 0.98), rng.uniform(1, 20), rng.uniform()
            passes = rng.binomial(4, expit(logit(mean) + 0.8))
            recalibration.observe(version, mean, strength, share, passes, 4)
            rows.append((version, mean, strength, share, passes))
    recalibration.fit(5)
    version, mean, strength, share, passes = np.array(rows).T

    def loss(w):
        middle = 4 * mean * (1 - mean)
        rate = expit(logit(mean) + w[0] + w[1] * logit(mean) + w[2] * middle + w[3] * share * middle)
        likelihood = passes * np.log(rate) + (4 - passes) * np.log(1 - rate)
        weights = MEMORY ** (5 - version) * (strength + 1) / (strength + 4)
        return -(weights * likelihood).sum() + 0.5 * (w**2).sum() / SCALE**2

    assert recalibration.coefficients == pytest.approx(minimize(loss, np.zeros(4), tol=1e-10).x, abs=1e-4)
    assert recalibration.coefficients[0] > 0


def play(recalibrate, versions=120, learning=0.04):
    """The reliability table of a pool that is partly learned, with the size and pace of the benchmark's."""
    rng = np.random.default_rng(1)
    logits = np.concatenate([np.full(600, -9.0), np.full(250, 3.0), rng.normal(-1.5, 0.8, 400)])
    moves = np.concatenate([np.zeros(850), np.full(400, learning)])
    settings = PredictorSettings(recalibrate=recalibrate, seed=3)
    posterior = PassRatePosterior(len(logits), settings)
    for version in range(versions):
        posterior.set_weight_version(version)
        for position in posterior.choose(64):
            passes = int(rng.binomial(4, expit(logits[position] + version * moves[position])))
            posterior.observe(int(position), passes, 4 - passes)
    return [row for row in posterior.reliability.rows() if row["rollouts"] >= 1000]


def test_predictions_stay_within_a_twentieth_while_the_policy_learns():
    worst = {kind: max(abs(row["predicted"] - row["observed"]) for row in play(kind)) for kind in (True, False)}
    assert worst[True] <= 0.05
    assert worst[False] > 0.1


def test_only_the_last_versions_count_and_a_version_is_bounded():
    recalibration = Recalibration()
    for version in range(3 * NUM_VERSIONS):
        for _ in range(500):
            recalibration.observe(version, 0.5, 4.0, 0.5, 2, 4)
    assert len(recalibration.outcomes) == NUM_VERSIONS
    assert max(len(rows) for _, rows in recalibration.outcomes) < 500


def test_a_state_is_plain_json_and_goes_on_in_the_same_way():
    recalibration, resumed = Recalibration(), Recalibration()
    for version in range(3):
        recalibration.observe(version, 0.4, 3.0, 0.5, 3, 4)
        recalibration.fit(version)
    resumed.restore(json.loads(json.dumps(recalibration.state())))
    for each in (recalibration, resumed):
        each.observe(3, 0.4, 3.0, 0.5, 3, 4)
        each.fit(3)
    assert resumed.coefficients.tolist() == recalibration.coefficients.tolist()
    assert resumed.state() == recalibration.state()
