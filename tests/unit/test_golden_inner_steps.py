"""The steps of one update on tokens that respond linearly to weights: they end at the targets, and go no further."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.method.inner_steps import SHORTEST, SHORTEST_WAY, WHOLE, Goals, shortened
from recipe.golden_redaction.method.movement import movement

AIM = 0.9


def run(
    jacobian: np.ndarray, targets: np.ndarray, advantages: np.ndarray, rate: float, steps: int, aim: float = AIM
) -> tuple[np.ndarray, list[float]]:
    """Log-probs after an update, and the sum of squares after each step, as the worker does it but in numpy.

    Args:
        jacobian: (M, D) of the log-probs in the weights; the log-probs start at -1.
        rate: Length of a whole step in the weights.
    """
    weights = np.ones(len(targets)) / len(targets)
    start = now = -np.ones(len(targets))
    goals = Goals.of(start, targets, advantages, weights, aim)
    labelled, distances, length = advantages != 0, [], 1.0
    for _ in range(steps):
        if goals.are_near(now):
            break
        left = np.where(labelled, np.nan_to_num(goals.log_probs) - now, 0.0)
        gradient = jacobian.T @ (goals.weights * left)
        direction = gradient * rate / max(np.linalg.norm(gradient), 1e-12)
        share = length
        while share and (best := goals.best_share(now, now + share * jacobian @ direction)) < WHOLE:
            share = shortened(share, best)
        before, now = now, now + share * jacobian @ direction
        length = goals.next_share(share, before, now) if share else 1.0
        distances.append(squares(goals, now))
    return now, distances


def squares(goals: Goals, log_probs: np.ndarray) -> float:
    return float(np.nansum(goals.weights * (goals.log_probs - log_probs) ** 2))


@pytest.mark.parametrize("rate", [0.01, 0.3, 30.0])
def test_a_token_ends_shortly_before_its_target_whatever_the_length_of_a_step(rate: float):
    targets = np.array([-0.4])
    now, _ = run(np.array([[2.0, 1.0]]), targets, np.array([1]), rate, steps=100)
    way = (now[0] + 1) / (targets[0] + 1)
    assert 0.8 < way < 1.0


def test_tokens_that_pull_each_other_along_end_at_targets_of_their_own():
    """A near target and a far one; the second is the first one's neighbour, so a plain step passes the near one."""
    jacobian, targets, advantages = np.array([[1.0, 0.2], [1.0, -0.2]]), np.array([-0.9, -0.3]), np.array([1, 1])
    one, _ = run(jacobian, targets, advantages, rate=0.5, steps=1, aim=1.0)
    assert movement([-1, -1], one, targets, advantages).kinds[0] == "overshot"
    now, _ = run(jacobian, targets, advantages, rate=0.5, steps=200)
    assert movement([-1, -1], now, targets, advantages).kinds == ("intended", "intended")


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0.001, 100))
def test_every_step_brings_the_tokens_nearer(seed: int, count: int, rate: float):
    rng = np.random.default_rng(seed)
    advantages = rng.choice([-1, 0, 1], count)
    targets = np.where(advantages == 0, np.nan, -1 + advantages * rng.uniform(0, 1, count))
    _, distances = run(rng.normal(size=(count, 5)), targets, advantages, rate, steps=20)
    start = -np.ones(count)
    distances.insert(0, squares(Goals.of(start, targets, advantages, np.ones(count) / count, AIM), start))
    assert all(after <= before + 1e-12 for before, after in pairwise(distances))


def test_a_far_target_does_not_push_a_near_one_the_wrong_way():
    """A token with ten nats to go, and one with a twentieth that their common weights move the wrong way."""
    jacobian, targets, advantages = np.array([[1.0, 0.0], [-0.1, 0.3]]), np.array([9.0, -0.95]), np.array([1, 1])
    now, _ = run(jacobian, targets, advantages, rate=2.0, steps=4)
    assert now[0] > 2.0
    assert movement([-1, -1], now, targets, advantages).kinds[1] != "wrong_way"


def goals_of(targets: list[float], advantages: list[int], weights: list[float] | None = None) -> Goals:
    """Goals of tokens that all begin at -1."""
    one = np.ones(len(targets))
    return Goals.of(-one, np.array(targets), np.array(advantages), one if weights is None else np.array(weights), AIM)


def test_goals_are_a_share_of_the_way_and_none_is_behind():
    goals = goals_of([-0.5, -2.0, np.nan, -2.0], [1, -1, 0, 1])
    assert goals.log_probs.tolist() == pytest.approx([-0.55, -1.9, np.nan, -1.0], nan_ok=True)


def test_every_token_begins_with_the_pull_of_its_weight():
    goals = goals_of([-0.5, -9.0, np.nan], [1, -1, 0], [0.25, 0.75, 0.0])
    pulls = goals.weights * (goals.log_probs - goals.start)
    assert pulls[:2].tolist() == pytest.approx([0.25, -0.75])
    near = goals_of([-1 + 1e-9], [1])
    assert near.weights[0] == pytest.approx(1 / SHORTEST_WAY)  # finite for a token at its goal


def test_near_is_a_tenth_of_each_tokens_own_way():
    goals = Goals(np.array([-1.0, -1.0, -1.0, -1.0]), np.array([-0.5, -2.0, np.nan, -1.0]), np.ones(4))
    assert goals.are_near(np.array([-0.549, -1.901, 7.0, -3.0]))
    assert goals.are_near(np.array([-0.451, -2.099, 7.0, -3.0]))
    assert not goals.are_near(np.array([-0.56, -2.0, 7.0, -1.0]))
    assert not goals.are_near(np.array([-0.5, -2.2, 7.0, -1.0]))


def test_the_best_share_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    before, after, wanted = rng.normal(size=(3, 6))
    wanted[2] = np.nan
    goals = Goals(before, wanted, rng.uniform(size=6))
    shares = np.linspace(-3, 3, 60001)
    distances = [squares(goals, before + share * (after - before)) for share in shares]
    assert goals.best_share(before, after) == pytest.approx(shares[int(np.argmin(distances))], abs=1e-4)
    assert goals.best_share(before, before) == 1.0  # learning rate 0


def test_a_step_is_shortened_by_at_most_ten_and_given_up_when_next_to_nothing_is_left():
    assert shortened(1.0, 0.5) == 0.5
    assert shortened(0.5, -7.0) == pytest.approx(0.05)
    assert shortened(2 * SHORTEST, 0.2) == 0.0


def test_the_next_step_is_as_long_as_the_rest_of_the_way_takes_and_at_most_whole():
    before = np.array([-1.0, -1.0, 5.0])
    goals = Goals(before, np.array([-0.2, np.nan, 5.0]), np.ones(3))
    after = np.array([-0.6, -9.0, 5.0])
    assert goals.next_share(0.1, before, after) == pytest.approx(0.1)  # half of the way is left
    assert goals.next_share(0.1, before, np.array([-0.25, -9.0, 5.0])) == pytest.approx(0.1 * 0.05 / 0.75)
    assert goals.next_share(0.9, before, np.array([-0.99, -9.0, 5.0])) == 1.0
    assert goals.next_share(0.1, before, np.array([-0.2, -9.0, 5.0])) == SHORTEST
    assert goals.next_share(0.1, before, before) == 1.0  # learning rate 0
