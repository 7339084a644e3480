"""The steps of one update on tokens that respond linearly to weights: they end at the targets, and go no further."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.method.inner_steps import (
    SHORTEST,
    WHOLE,
    are_near,
    best_share,
    goals,
    next_share,
    shortened,
)
from recipe.golden_redaction.method.movement import movement

AIM = 0.9


def run(
    jacobian: np.ndarray, targets: np.ndarray, advantages: np.ndarray, rate: float, steps: int, aim: float = AIM
) -> tuple[np.ndarray, list[float]]:
    """Log-probs after an update, and the squared distance after each step, as the worker does it but in numpy.

    Args:
        jacobian: (M, D) of the log-probs in the weights; the log-probs start at -1.
        rate: Length of a whole step in the weights.
    """
    weights = np.ones(len(targets)) / len(targets)
    start = now = -np.ones(len(targets))
    wanted = goals(start, targets, advantages, aim)
    labelled, distances, length = advantages != 0, [], 1.0
    for _ in range(steps):
        if are_near(now, wanted, start):
            break
        gradient = jacobian.T @ np.where(labelled, weights * (np.nan_to_num(wanted) - now), 0.0)
        direction = gradient * rate / max(np.linalg.norm(gradient), 1e-12)
        share = length
        while share and (best := best_share(now, now + share * jacobian @ direction, wanted, weights)) < WHOLE:
            share = shortened(share, best)
        before, now = now, now + share * jacobian @ direction
        length = next_share(share, before, now, wanted, weights) if share else 1.0
        distances.append(float((weights * (wanted - now) ** 2)[labelled].sum()))
    return now, distances


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
    start = float(((AIM * np.abs(np.nan_to_num(targets, nan=-1) + 1)) ** 2).sum() / count)
    assert all(after <= before + 1e-12 for before, after in zip([start, *distances], distances, strict=False))


def test_goals_are_a_share_of_the_way_and_none_is_behind():
    wanted = goals(
        np.array([-1.0, -1.0, -1.0, -1.0]), np.array([-0.5, -2.0, np.nan, -2.0]), np.array([1, -1, 0, 1]), AIM
    )
    assert wanted.tolist() == pytest.approx([-0.55, -1.9, np.nan, -1.0], nan_ok=True)


def test_near_is_a_tenth_of_each_tokens_own_way():
    start, wanted = np.array([-1.0, -1.0, -1.0, -1.0]), np.array([-0.5, -2.0, np.nan, -1.0])
    assert are_near(np.array([-0.549, -1.901, 7.0, -3.0]), wanted, start)
    assert are_near(np.array([-0.451, -2.099, 7.0, -3.0]), wanted, start)
    assert not are_near(np.array([-0.56, -2.0, 7.0, -1.0]), wanted, start)
    assert not are_near(np.array([-0.5, -2.2, 7.0, -1.0]), wanted, start)


def test_the_best_share_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    before, after, wanted = rng.normal(size=(3, 6))
    weights = rng.uniform(size=6)
    wanted[2] = np.nan
    shares = np.linspace(-3, 3, 60001)
    distances = [np.nansum(weights * (wanted - before - share * (after - before)) ** 2) for share in shares]
    assert best_share(before, after, wanted, weights) == pytest.approx(shares[int(np.argmin(distances))], abs=1e-4)
    assert best_share(before, before, wanted, weights) == 1.0  # learning rate 0


def test_a_step_is_shortened_by_at_most_ten_and_given_up_when_next_to_nothing_is_left():
    assert shortened(1.0, 0.5) == 0.5
    assert shortened(0.5, -7.0) == pytest.approx(0.05)
    assert shortened(2 * SHORTEST, 0.2) == 0.0


def test_the_next_step_is_as_long_as_the_rest_of_the_way_takes_and_at_most_whole():
    before, wanted, weights = np.array([-1.0, -1.0, 5.0]), np.array([-0.2, np.nan, 5.0]), np.ones(3)
    after = np.array([-0.6, -9.0, 5.0])
    assert next_share(0.1, before, after, wanted, weights) == pytest.approx(0.1)  # half of the way is left
    assert next_share(0.1, before, np.array([-0.25, -9.0, 5.0]), wanted, weights) == pytest.approx(0.1 * 0.05 / 0.75)
    assert next_share(0.9, before, np.array([-0.99, -9.0, 5.0]), wanted, weights) == 1.0
    assert next_share(0.1, before, np.array([-0.2, -9.0, 5.0]), wanted, weights) == SHORTEST
    assert next_share(0.1, before, before, wanted, weights) == 1.0  # learning rate 0
