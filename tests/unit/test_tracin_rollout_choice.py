"""Which rollouts make a validation gradient, against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.tracin.method.rollout_choice import all_centred, best_and_worst, best_rollouts, two_halves

ROLLOUTS = st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.integers(0, 5)), min_size=1, max_size=24)


@settings(deadline=None)
@given(ROLLOUTS, st.integers(1, 8), st.sampled_from([None, 0.0, 0.5]), st.integers(0, 3))
def test_quality_takes_the_best_one_a_prompt_first(
    rollouts: list[tuple[float, int]], k: int, minimum: float | None, seed: int
):
    rewards, prompts = np.array([r for r, _ in rollouts]), np.array([p for _, p in rollouts])
    ties = np.random.default_rng(seed).permutation(6)[prompts]
    chosen, advantages = best_rollouts(rewards, prompts, ties, k, minimum)
    eligible = [i for i in range(len(rewards)) if minimum is None or rewards[i] > minimum]
    assert len(chosen) == len(set(chosen.tolist())) == min(k, len(eligible))
    assert set(chosen.tolist()) <= set(eligible)
    assert advantages.tolist() == [1.0] * len(chosen)
    num_prompts = len({prompts[i] for i in eligible})
    if k <= num_prompts:
        best = sorted(max(rewards[i] for i in eligible if prompts[i] == p) for p in {prompts[i] for i in eligible})
        assert len(set(prompts[chosen])) == k
        assert rewards[chosen].tolist() == best[::-1][:k]
    else:
        assert set(prompts[chosen]) == {prompts[i] for i in eligible}


def test_a_second_rollout_of_a_prompt_comes_only_when_prompts_run_out():
    rewards, prompts = np.array([0.9, 1.0, 0.8, 0.1]), np.array([0, 0, 1, 2])
    for k, expected in ((1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 3, 0]), (9, [1, 2, 3, 0])):
        assert best_rollouts(rewards, prompts, prompts, k, 0.0)[0].tolist() == expected


@settings(deadline=None)
@given(ROLLOUTS, st.integers(1, 4), st.integers(0, 3))
def test_contrast_takes_two_disjoint_sides_of_equal_size_that_differ(
    rollouts: list[tuple[float, int]], half: int, seed: int
):
    rewards, prompts = np.array([r for r, _ in rollouts]), np.array([p for _, p in rollouts])
    ties = np.random.default_rng(seed).permutation(6)[prompts]
    chosen, advantages = best_and_worst(rewards, prompts, ties, 2 * half)
    best, worst = chosen[advantages == 1], chosen[advantages == -1]
    assert len(best) + len(worst) == len(chosen) == len(set(chosen.tolist()))
    assert len(best) == len(worst) <= half
    assert (rewards[best] > rewards[worst]).all()
    assert bool(len(best)) == (rewards.max() > rewards.min())
    if len(best):
        assert rewards[best].max() == rewards.max()
        assert rewards[worst].min() == rewards.min()
    if len({int(p) for p in prompts}) >= half:
        assert len(set(prompts[best])) == len(best)
        assert len(set(prompts[worst])) == len(worst)


def test_contrast_of_few_passes_uses_as_many_failures():
    rewards = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    chosen, advantages = best_and_worst(rewards, np.arange(8), np.arange(8), 6)
    assert chosen[:2].tolist() == [1, 4]
    assert rewards[chosen].tolist() == [1, 1, 0, 0]
    assert advantages.tolist() == [1, 1, -1, -1]


@settings(deadline=None)
@given(ROLLOUTS, st.booleans())
def test_centred_rewards_leave_out_what_is_zero(rollouts: list[tuple[float, int]], by_prompt: bool):
    rewards = 0.1 * np.array([r for r, _ in rollouts])  # no exact binary fractions
    groups = np.array([p if by_prompt else 0 for _, p in rollouts])
    chosen, advantages = all_centred(rewards, groups)
    assert (advantages != 0).all()
    for i in range(len(rewards)):
        expected = rewards[i] - rewards[groups == groups[i]].mean()
        got = advantages[chosen == i]
        assert (got[0] if len(got) else 0.0) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 6)), min_size=1, max_size=40))
def test_the_halves_divide_the_prompts_and_the_advantages_evenly(rollouts: list[tuple[float, int]]):
    advantages, prompts = np.array([a for a, _ in rollouts]), np.array([p for _, p in rollouts])
    first, second = two_halves(advantages, prompts)
    assert sorted([*first, *second]) == list(range(len(rollouts)))
    if len(set(prompts)) == 1:
        assert abs(len(first) - len(second)) <= 1
        return
    assert set(prompts[first]).isdisjoint(prompts[second])
    assert abs(len(set(prompts[first])) - len(set(prompts[second]))) <= 1
    sums = np.bincount(prompts, weights=advantages)[np.unique(prompts)]
    # Signed differences of neighbors, so within the range; a prompt without a partner adds its own.
    limit = np.ptp(sums) + (len(sums) % 2) * np.abs(sums).max()
    assert abs(advantages[first].sum() - advantages[second].sum()) <= limit + 1e-9


@pytest.mark.parametrize("per_prompt", [1, 4])
def test_what_all_rollouts_have_in_common_does_not_make_the_halves_of_centred_rewards_disagree(per_prompt: int):
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(64), per_prompt)
    advantages = all_centred(rng.normal(size=len(prompts)), prompts if per_prompt > 1 else 0 * prompts)[1]
    common = rng.normal(size=300)
    gradients = advantages[:, None] * (3 * common + rng.normal(size=(len(prompts), 300)))

    def agreement(halves: tuple[np.ndarray, ...]) -> float:
        one, other = (gradients[half].sum(0) for half in halves)
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))

    assert abs(agreement(two_halves(advantages, prompts))) < 0.2
    in_turns = np.arange(len(prompts)) % 2
    assert agreement((np.flatnonzero(in_turns == 0), np.flatnonzero(in_turns == 1))) < -0.8
