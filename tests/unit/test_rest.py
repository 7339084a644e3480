"""A prompt rests after each choice, the longer the more often it was chosen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings
from recipe.fast_dapo.curriculum.rest import Rest

P = 40


def make(**settings) -> PassRatePosterior:
    return PassRatePosterior(P, PredictorSettings(exploration_epochs=1e9, discount=1.0, **settings))


def play(posterior: PassRatePosterior, rates: np.ndarray, choices: int, count: int = 4) -> np.ndarray:
    """The prompts that were chosen, (choices / count, count)."""
    chosen = []
    for _ in range(choices // count):
        chosen.append(posterior.choose(count))
        for position in chosen[-1]:
            posterior.observe(int(position), 8 * rates[position], 8 * (1 - rates[position]))
    return np.array(chosen)


@given(st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=4), max_size=90), st.floats(0, 2))
def test_a_rest_grows_until_the_twentieth_choice(choices: list[set[int]], rest_epochs: float):
    rest = Rest(10, rest_epochs)
    for chosen in choices:
        rest.begin(np.array(sorted(chosen)))
    for position in range(10):
        own = [number for number, chosen in enumerate(choices) if position in chosen]
        since = sum(len(chosen) for chosen in choices[own[-1] :]) if own else sum(map(len, choices))
        longest = 10 * rest_epochs * (min(20, len(own)) / 20) ** 2
        assert rest.remaining(np.array([position]))[0] == pytest.approx(longest - since)


def test_a_prompt_that_stays_at_one_half_is_not_chosen_all_the_time():
    """Four prompts are worth more than all others for good."""
    rates = np.where(np.arange(P) < 4, 0.5, 0.02)
    shares = {}
    for rest_epochs in (0.0, 0.3):
        chosen = play(make(rest_epochs=rest_epochs), rates, 20 * P)[-9 * P // 4 :]
        shares[rest_epochs] = (chosen < 4).mean()
    assert shares[0.0] > 0.9
    assert shares[0.3] == pytest.approx(4 / (0.3 * P), abs=0.02)  # each once in .3 epochs


def test_the_first_choices_come_nearly_as_often_as_without_a_rest():
    rates = np.where(np.arange(P) < 12, 0.5, 0.0)
    chosen = {rest: (play(make(rest_epochs=rest, seed=1), rates, 2 * P) < 12).sum() for rest in (0.0, 0.5)}
    assert chosen[0.5] >= 0.9 * chosen[0.0]


def test_where_all_others_are_taken_the_one_that_has_rested_longest_comes_first():
    posterior = make(rest_epochs=1.0)
    for _ in range(22):
        for start in range(0, P, 8):
            posterior._rest.begin(np.arange(start, start + 8))
    assert sorted(posterior.choose(8)) == list(range(8))
    assert sorted(posterior.choose(8, exclude=range(8, 16))) == list(range(16, 24))
    assert sorted(posterior.choose(P)) == list(range(P))


def test_a_resumed_run_chooses_as_one_that_went_on():
    rates = np.linspace(0, 1, P)
    posterior = make(rest_epochs=0.25)
    play(posterior, rates, 3 * P)
    resumed = make(rest_epochs=0.25)
    resumed.load_state_dict(posterior.state_dict())
    assert (play(resumed, rates, 2 * P) == play(posterior, rates, 2 * P)).all()


def test_a_state_of_before_there_was_a_rest_begins_rested():
    posterior = make(rest_epochs=0.25)
    play(posterior, np.linspace(0, 1, P), 3 * P)
    state = posterior.state_dict() | {"state_version": 3}
    del state["choices"]
    for name in ("times_chosen", "last_chosen"):
        del state["arrays"][name]
    old = make(rest_epochs=0.25)
    old.load_state_dict(state)
    assert (old._rest.remaining(np.arange(P)) <= 0).all()


def test_positions_of_a_new_order_keep_their_rest():
    posterior = make(rest_epochs=1.0)
    for _ in range(20):
        posterior._rest.begin(np.array([3]))
    order = np.random.default_rng(0).permutation(P)
    moved = make(rest_epochs=1.0)
    moved.load_state_dict(posterior.state_dict(), order)
    assert order[np.flatnonzero(moved._rest.remaining(np.arange(P)) > 0)].tolist() == [3]
