"""MoPPS and DPS: their beliefs against sums over all paths, and what they draw."""

import itertools
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from competitors_play import FixedPassRates
from predicting_methods import Dps, Mopps

# ------------------------------ MoPPS ------------------------------


def test_mopps_forgets_half_towards_the_prior():
    method = Mopps(3, batch=2, group=8, seed=0)
    method.observe(np.array([0, 2]), np.array([0.25, 1.0]))
    method.observe(np.array([0]), np.array([0.5]))
    # By hand: a = .5 * 1 + .5 + 2 = 3, then .5 * 3 + .5 + 4 = 6; b = .5 + .5 + 6 = 7, then 3.5 + .5 + 4 = 8.
    np.testing.assert_allclose(method.passes, [6.0, 1.0, 9.0])
    np.testing.assert_allclose(method.fails, [8.0, 1.0, 1.0])


def test_mopps_without_decay_counts_everything():
    method = Mopps(1, batch=1, group=4, seed=0, decay=1.0)
    for _ in range(5):
        method.observe(np.array([0]), np.array([0.75]))
    assert (method.passes[0], method.fails[0]) == (16.0, 6.0)


def test_mopps_draws_what_is_nearest_to_one_half():
    method = Mopps(20, batch=5, group=8, seed=0)
    method.passes[:] = [1000] * 5 + [10] * 10 + [500] * 5
    method.fails[:] = [10] * 5 + [1000] * 10 + [500] * 5
    policy = FixedPassRates([0.5] * 20)
    method.next_batch(policy)
    assert set(policy.asked) == set(range(15, 20))


def test_mopps_scores_are_draws_not_means():
    method = Mopps(2, batch=1, group=8, seed=0)
    scores = [tuple(method._scores(np.array([0, 1]))) for _ in range(400)]
    means = np.mean(scores, axis=0)
    np.testing.assert_allclose(means, [-1 / 12, -1 / 12], atol=0.02)  # variance of a uniform rate


# ------------------------------ DPS ------------------------------


def paths_prediction(matrices, seen):
    """State after the last step, by summing over every path: uniform start, seen[t] a state or None."""
    joint = np.zeros(3)
    for path in itertools.product(range(3), repeat=len(seen) + 2):
        if any(state is not None and path[step + 1] != state for step, state in enumerate(seen)):
            continue
        chance = 1 / 3
        for step, matrix in enumerate(matrices):
            chance *= matrix[path[step], path[step + 1]]
        joint[path[-1]] += chance
    return joint / joint.sum()


@given(st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=5))
def test_dps_filters_as_the_sum_over_all_paths_does(seen):
    method = Dps(1, batch=1, group=4, seed=0)
    matrices = [method.transitions()[0]]  # from the start to the first step: uniform
    for state in seen:
        if state is None:
            method.observe(np.array([], dtype=int), np.array([]))
        else:
            method.observe(np.array([0]), np.array([[0.0, 0.5, 1.0][state]]))
        matrices.append(method.transitions()[0])
    np.testing.assert_allclose(method.predicted_PJ[0], paths_prediction(matrices, seen), atol=1e-12)


def test_dps_adds_the_posterior_of_the_transition():
    method = Dps(1, batch=1, group=4, seed=0, decay=0.5)
    method.observe(np.array([0]), np.array([0.0]))
    # The first state has no past but the uniform one: a third of a transition to 0 from each.
    first = np.ones((3, 3)) + np.array([[1 / 3, 0, 0]] * 3)
    np.testing.assert_allclose(method.counts_PIJ[0], first)
    np.testing.assert_allclose(method.predicted_PJ[0], np.array([4 / 3, 1, 1]) / (10 / 3))
    method.observe(np.array([0]), np.array([0.25]))
    second = 0.5 * first + 0.5
    second[0, 1] += 1.0  # certain: from unsolved to partly solved
    np.testing.assert_allclose(method.counts_PIJ[0], second)
    np.testing.assert_allclose(method.predicted_PJ[0], second[1] / second[1].sum())


def test_dps_weighs_unseen_transitions_by_both_ends():
    method = Dps(1, batch=1, group=4, seed=0, decay=1.0)
    method.observe(np.array([0]), np.array([1.0]))
    method.observe(np.array([], dtype=int), np.array([]))
    before, matrix = method.posterior_PJ[0].copy(), method.transitions()[0]
    counts = method.counts_PIJ[0].copy()
    method.observe(np.array([0]), np.array([0.0]))
    pairs = np.zeros((3, 3))
    for i in range(3):
        pairs[i, 0] = before[i] * matrix[i, 0]
    np.testing.assert_allclose(method.counts_PIJ[0] - counts, pairs / pairs.sum())


def test_dps_prefers_what_was_partly_solved_and_forgets_what_it_does_not_see():
    method = Dps(30, batch=5, group=4, seed=0)
    rates = np.array([0.0] * 10 + [0.5] * 10 + [1.0] * 10)
    for _ in range(3):
        method.observe(np.arange(30), rates)
    policy = FixedPassRates(rates)
    method.next_batch(policy)
    assert set(policy.asked) <= set(range(10, 20))
    for _ in range(60):
        method.observe(np.array([], dtype=int), np.array([]))
    np.testing.assert_allclose(method.predicted_PJ, 1 / 3, atol=1e-3)
