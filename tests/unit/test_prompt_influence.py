"""Influence scores of groups make harmful prompts and sources come last in the choice."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings
from recipe.fast_dapo.curriculum.prompt_influence import PROMPT, SOURCE, PromptInfluence

P = 40
SOURCES = np.arange(P) % 4
SCORE = st.floats(-1e6, 1e6).filter(lambda score: score == 0 or abs(score) > 1e-6)


def make(**settings) -> PassRatePosterior:
    known = {"use_influence": True, "exploration_epochs": 1e9, "min_source_share": 0.0, "rest_epochs": 0.0}
    return PassRatePosterior(P, PredictorSettings(**known | settings), sources_P=SOURCES)


def teach(posterior: PassRatePosterior, steps: int) -> None:
    """Choose, and learn that source 2 harms."""
    for step in range(steps):
        posterior.set_weight_version(step)
        chosen = posterior.choose(8)
        posterior.observe_influence(chosen.tolist(), np.where(SOURCES[chosen] == 2, -1.0, 1.0).tolist())


class NoNoise:
    """Draws every source's mean."""

    def standard_normal(self, count: int) -> np.ndarray:
        return np.zeros(count)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 9), SCORE), max_size=6)), max_size=6),
    st.floats(0.5, 1.0),
)
def test_values_are_those_of_the_formula(updates, discount: float):
    sources = np.arange(10) % 3
    influence, evidence, version = PromptInfluence(sources, discount), [], 0
    for later, groups in updates:
        version += later
        influence.observe([place for place, _ in groups], [score for _, score in groups], version)
        told = [(place, score) for place, score in groups if score]
        size = np.sqrt(np.mean([score**2 for _, score in told])) if told else 1.0
        evidence += [(version, place, score / size) for place, score in told]
    last = max((age for age, _, _ in evidence), default=0)
    for place in range(10):
        same_source = [(discount ** (last - age), z) for age, other, z in evidence if other % 3 == place % 3]
        own = [(discount ** (last - age), z) for age, other, z in evidence if other == place]
        of_source = sum(weight * z for weight, z in same_source) / (SOURCE + sum(weight for weight, _ in same_source))
        expected = PROMPT * of_source + sum(weight * z for weight, z in own)
        if abs(expected) > 1e-9:
            assert influence.is_harmful(np.array([place]), NoNoise())[0] == (expected < 0)


def test_a_harmful_source_comes_last_and_a_helpful_one_does_not():
    posterior = make()
    teach(posterior, 30)
    assert not (SOURCES[posterior.choose(30)] == 2).any()
    assert posterior.harmful_share == pytest.approx(0.25)
    # If they are needed, they are still chosen.
    assert len(posterior.choose(P)) == P


def test_a_harmful_prompt_of_a_helpful_source_comes_last():
    posterior = make(discount=1.0)
    for _ in range(60):
        posterior.observe_influence(range(P), [-1.0 if place == 7 else 0.1 for place in range(P)])
    assert 7 not in posterior.choose(P - 1)


def test_without_the_setting_scores_change_no_choice():
    told, untold = make(use_influence=False), make(use_influence=False)
    told.observe_influence(range(P), [-1.0] * P)
    assert [told.choose(8).tolist() for _ in range(5)] == [untold.choose(8).tolist() for _ in range(5)]
    assert "predictor/harmful_share" not in told.calibration()


def test_a_resting_prompt_comes_after_a_harmful_one():
    posterior = make(rest_epochs=0.11)  # for another .4 choices after the loop
    for _ in range(25):
        posterior._rest.begin(np.arange(4))
    posterior.observe_influence(range(P), [1.0 if SOURCES[place] < 3 else -1.0 for place in range(P)])
    for _ in range(30):
        posterior.observe_influence(range(4, P), [-1.0 if SOURCES[place] == 3 else 1.0 for place in range(4, P)])
    order = posterior.choose(P).tolist()
    harmful = [place for place in range(4, P) if SOURCES[place] == 3]
    assert set(order[-4:]) == {0, 1, 2, 3}
    assert set(order[-4 - len(harmful) : -4]) == set(harmful)


@pytest.mark.parametrize("score", [0.0, np.nan, np.inf, -np.inf])
def test_a_score_that_says_nothing_is_left_out(score: float):
    influence = PromptInfluence(SOURCES, 1.0)
    influence.observe([3, 4], [score, score], 0)
    assert not influence.has_evidence
    influence.observe([3, 4], [score, -1e-300], 0)  # whose square underflows
    assert influence.arrays()["influence_sum"].tolist() == [-1.0 if place == 4 else 0.0 for place in range(P)]


def test_it_is_part_of_a_checkpoint():
    saved = make()
    teach(saved, 20)
    resumed = make(seed=5)
    resumed.load_state_dict(json.loads(json.dumps(saved.state_dict())))
    assert [saved.choose(8).tolist() for _ in range(5)] == [resumed.choose(8).tolist() for _ in range(5)]


def test_a_checkpoint_from_before_it_is_read():
    state = make().state_dict()
    del state["influence_version"], state["arrays"]["influence_sum"], state["arrays"]["influence_count"]
    resumed = make()
    resumed.observe_influence(range(P), [1.0] * P)
    resumed.load_state_dict(state)
    assert not resumed.influence.has_evidence
