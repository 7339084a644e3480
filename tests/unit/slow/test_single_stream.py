"""SPO: its tracker, its baselines and how it draws prompts."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from competitors_play import FixedPassRates, make
from single_stream import SingleStream, kept_evidence, normalized


def test_spo_keeps_half_at_the_half_life_within_bounds():
    np.testing.assert_allclose(kept_evidence(np.array([0.006, 0.0, 0.06, 5.0])), [2**-0.1, 0.96, 0.875, 0.875])
    np.testing.assert_allclose(kept_evidence(np.array([0.03, 0.06, 0.12]), 0.0, 1.0), [2**-0.5, 0.5, 0.25])


def test_spo_tracks_a_discounted_beta():
    method = make("spo", num_prompts=2)
    method.track(0, 1.0, kept=0.96)
    method.track(0, 0.0, kept=0.9)
    # By hand: a = .96 * .5 + 1 = 1.48, then .9 * 1.48; b = .96 * .5 = .48, then .9 * .48 + 1.
    assert method.passes[0] == pytest.approx(1.332)
    assert method.fails[0] == pytest.approx(1.432)
    assert method.values() == pytest.approx([1.332 / 2.764, 0.5])


def test_spo_baselines_are_from_before_the_rollout_and_normalized_over_the_batch():
    method = SingleStream(4, batch=4, group=1, seed=0)
    method.passes[:], method.fails[:] = [9, 1, 5, 1], [1, 9, 5, 3]
    before = method.values()
    batch = method.next_batch(FixedPassRates([1.0, 0.0, 1.0, 0.0]))
    raw = np.array([rollout.reward - before[rollout.prompt] for rollout in batch.rollouts])
    np.testing.assert_allclose(batch.advantages, (raw - raw.mean()) / raw.std(), rtol=1e-6)
    assert np.allclose(normalized(np.full(5, 0.25)), 0.0)


def test_spo_forgets_by_what_the_policy_moved_since_the_prompts_last_rollout():
    method, policy = SingleStream(1, batch=1, group=1, seed=0), FixedPassRates([1.0], drift=0.006)
    method.next_batch(policy)
    assert method.passes[0] == pytest.approx(0.96 * 0.5 + 1)  # nothing to compare with: the largest rho
    method.next_batch(policy)
    assert method.passes[0] == pytest.approx(2**-0.1 * 1.48 + 1)


def test_spo_draws_uncertain_prompts_in_proportion():
    method = make("spo", num_prompts=3)
    method.passes[:], method.fails[:] = [1e9, 5, 1], [0.0, 5, 9]
    weights = np.array([0.05, 0.55, 0.35])
    np.testing.assert_allclose(method.choice_probabilities(), weights / weights.sum())


def test_spo_estimates_all_prompts_first_where_it_is_told_to_and_that_counts():
    method, policy = SingleStream(5, batch=2, group=1, seed=0, initial_rollouts=8), FixedPassRates([0, 0, 1, 1, 0.5])
    method.next_batch(policy)
    assert method.counts.generated == 5 * 8 + 2
    fresh = SingleStream(5, batch=2, group=1, seed=0, initial_rollouts=8)
    fresh._estimate_all(policy)
    # The published start: evidence of 8 rollouts, of which (S + 1/2) / 9 are passes.
    np.testing.assert_allclose(fresh.passes[:4], [8 * 0.5 / 9, 8 * 0.5 / 9, 8 * 8.5 / 9, 8 * 8.5 / 9])
    np.testing.assert_allclose(fresh.passes + fresh.fails, 8.0)
