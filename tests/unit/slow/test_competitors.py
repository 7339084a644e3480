"""The competing methods of the leaderboard: each paper's equation, the counts, and what each method prefers."""

import itertools
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from allocating_methods import Knapsack, allocate, value
from competitors import COMPETITORS
from filtering_methods import Greso, PilotCommit
from learning_lab import Policy, Rollout, make_task
from predicting_methods import Dps, Mopps
from sampling_methods import Uniform
from single_stream import SingleStream, kept_evidence, normalized

from data_preprocess.arithmetic_model import BaseModelSettings, train_cached

# A pool with a bit of everything: 60 hopeless, 30 easy, 30 learnable prompts.
HOPELESS, EASY = range(60), range(60, 90)
RATES = np.array([0.0] * 60 + [1.0] * 30 + [0.4] * 30)
NUM_PROMPTS = len(RATES)


class FixedPassRates:
    """A policy that never learns: answers a prompt with its pass rate, in two tokens, and moves by a given drift."""

    def __init__(self, rates, drift=0.0, seed=0):
        self.rates, self.moved = np.asarray(rates), drift
        self.asked = Counter()
        self._rng = np.random.default_rng(seed)
        self.version = 0

    def sample(self, prompts):
        self.asked.update(prompts)
        rewards = (self._rng.random(len(prompts)) < self.rates[prompts]).astype(float)
        return [
            Rollout(prompt, [1, 2], torch.zeros(2), reward) for prompt, reward in zip(prompts, rewards, strict=True)
        ]

    def drift(self, rollouts):
        return np.full(len(rollouts), self.moved)


def make(name, num_prompts=NUM_PROMPTS, batch=8, group=4, seed=0):
    return COMPETITORS[name](num_prompts, batch=batch, group=group, seed=seed)


def play(method, policy, steps):
    return [method.next_batch(policy) for _ in range(steps)]


def group_sizes(batch):
    return list(Counter(batch.groups).values())


def share_on_learnable(policy):
    """Of the rollouts that the policy was asked for, those of prompts that are sometimes solved."""
    learnable = (policy.rates > 0) & (policy.rates < 1)
    return sum(count for prompt, count in policy.asked.items() if learnable[prompt]) / policy.asked.total()


# ------------------------------ all of them ------------------------------

every_method = pytest.mark.parametrize("name", COMPETITORS)


@every_method
def test_what_is_counted_as_generated_is_what_the_policy_was_asked_for(name):
    method, policy = make(name), FixedPassRates(RATES)
    batches = play(method, policy, 12)
    assert method.counts.generated == policy.asked.total() > 0
    assert method.counts.generated_tokens == 2 * policy.asked.total()
    assert method.counts.trained == sum(len(batch.rollouts) for batch in batches)
    assert method.counts.trained <= method.counts.generated


@every_method
def test_a_batch_has_the_size_that_was_asked_for(name):
    for batch in play(make(name), FixedPassRates(RATES), 6):
        assert len(batch.rollouts) == len(batch.groups) == 8 * 4
        if name == "spo":
            assert group_sizes(batch) == [1] * 32
            assert batch.advantages.shape == (32,)
        else:
            assert len(group_sizes(batch)) == 8
            assert batch.advantages is None
        if name not in ("spo", "knapsack"):
            assert set(group_sizes(batch)) == {4}


@every_method
def test_a_group_is_of_one_prompt_and_no_rollout_is_trained_on_twice(name):
    batches = play(make(name), FixedPassRates(RATES), 12)
    trained = [id(rollout) for batch in batches for rollout in batch.rollouts]
    assert len(set(trained)) == len(trained)
    for batch in batches:
        prompts = {}
        for rollout, group in zip(batch.rollouts, batch.groups, strict=True):
            assert prompts.setdefault(group, rollout.prompt) == rollout.prompt


@every_method
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_pool_without_anything_to_learn_gives_batches_without_advantages(name, rate):
    method, policy = make(name, num_prompts=12), FixedPassRates([rate] * 12)
    for batch in play(method, policy, 8):
        assert batch.rollouts
        assert {rollout.reward for rollout in batch.rollouts} == {rate}
    assert method.counts.informative == 0
    assert method.counts.generated == policy.asked.total()


@every_method
@pytest.mark.parametrize("num_prompts", [1, 3])
def test_a_pool_smaller_than_a_batch_works(name, num_prompts):
    method, policy = make(name, num_prompts=num_prompts), FixedPassRates([0.5] * num_prompts)
    for batch in play(method, policy, 10):
        assert 0 < len(batch.rollouts) <= 8 * 4
    assert set(policy.asked) == set(range(num_prompts))


@every_method
def test_the_seed_decides_everything(name):
    first, second, other = (FixedPassRates(RATES) for _ in range(3))
    for policy, seed in ((first, 1), (second, 1), (other, 2)):
        play(make(name, seed=seed), policy, 5)
    assert first.asked == second.asked != other.asked


@pytest.mark.parametrize("name", ["pilot_commit", "greso", "mopps", "dps", "spo"])
def test_after_a_few_epochs_more_is_generated_where_something_can_be_learned(name):
    uniform, policy = FixedPassRates(RATES), FixedPassRates(RATES)
    play(Uniform(NUM_PROMPTS, batch=8, group=4, seed=0), uniform, 60)
    method = make(name)
    play(method, policy, 60)
    assert share_on_learnable(policy) > 1.2 * share_on_learnable(uniform)


def test_knapsack_gives_the_learnable_prompts_more_than_their_share():
    method, policy = make("knapsack", batch=30), FixedPassRates(RATES)
    play(method, policy, 4)  # the first epoch is uniform
    policy.asked.clear()
    play(method, policy, 40)
    assert share_on_learnable(policy) > 0.35  # 30 of 120 prompts


# ------------------------------ Pilot-Commit ------------------------------


@pytest.mark.parametrize(
    ("rate", "kept"), [(0.0, False), (0.124, False), (0.125, True), (0.75, True), (0.751, False), (1.0, False)]
)
def test_pilot_commit_keeps_the_band_from_an_eighth_to_three_quarters(rate, kept):
    assert make("pilot_commit").is_kept(rate) == kept


def test_pilot_commit_spends_a_quarter_on_a_prompt_that_it_does_not_commit_to():
    method = PilotCommit(120, batch=4, group=16, seed=0)
    policy = FixedPassRates(RATES)
    batch = method.next_batch(policy)
    assert set(group_sizes(batch)) == {16}
    trained = {rollout.prompt for rollout in batch.rollouts}
    waiting = {entry.prompt for entry in method.waiting}
    assert {policy.asked[prompt] for prompt in set(policy.asked) - trained} <= {4, 8}  # two passes at most
    assert all(policy.asked[prompt] % 16 in (0, 4) for prompt in trained)
    assert all(RATES[prompt] == 0.4 for prompt in trained | waiting)


def test_pilot_commit_evicts_prompts_after_eight_right_pilots_and_defers_hopeless_ones():
    method, policy = PilotCommit(120, batch=4, group=16, seed=0), FixedPassRates(RATES)  # 4 pilots a visit
    play(method, policy, 40)
    assert {policy.asked[prompt] for prompt in EASY} == {8}
    assert set(EASY) <= method.evicted
    assert all(policy.asked[prompt] >= 12 for prompt in HOPELESS)
    assert not set(HOPELESS) & method.evicted


@pytest.mark.parametrize(("group", "visits"), [(8, 4), (64, 1)])
def test_pilot_commit_needs_eight_right_pilots_however_many_a_visit_has(group, visits):
    method = PilotCommit(2, batch=1, group=group, seed=0)
    right = [Rollout(0, [1], torch.zeros(1), 1.0)] * method.num_pilots
    for visit in range(1, visits + 1):
        assert 0 not in method.evicted, visit
        method._judge(0, right)
    assert 0 in method.evicted


def test_pilot_commit_lets_survivors_wait_four_steps():
    # All are in the band, 3 x batch are piloted per round and only `batch` committed to: most must go unused.
    method = PilotCommit(1000, batch=4, group=8, seed=0)
    method.p_lower, method.p_upper = 0.0, -1.0
    policy = FixedPassRates([0.5] * 1000)
    for step in range(1, 9):
        method.next_batch(policy)
        assert min(entry.step for entry in method.waiting) >= step - 4
    assert min(entry.step for entry in method.waiting) == 4
    assert max(entry.step for entry in method.waiting) == 8


def test_pilot_commit_trains_on_pilots_and_commitment_together():
    method, policy = PilotCommit(120, batch=4, group=16, seed=0), FixedPassRates(RATES)
    method.next_batch(policy)
    held = {entry.prompt: list(map(id, entry.pilots)) for entry in method.waiting}
    batch = method.next_batch(policy)
    trained = set(map(id, batch.rollouts))
    used = [ids for prompt, ids in held.items() if prompt not in {entry.prompt for entry in method.waiting}]
    assert used
    assert all(set(ids) <= trained for ids in used)


# ------------------------------ GRESO ------------------------------


def test_greso_explores_with_the_power_of_the_streak():
    method = make("greso")
    method.explore_easy, method.explore_hard = 0.5, 0.3
    method.streaks[:4] = [0, 1, 3, -2]
    chances = [method.explore_probability(prompt) for prompt in range(4)]
    assert chances == pytest.approx([1.0, 0.5, 0.125, 0.09])
    method.streaks[0] = -20
    assert method.explore_probability(0) == 0.01


def test_greso_counts_a_streak_of_one_direction():
    method = make("greso", num_prompts=1)
    seen = []
    for sign in (1, 1, -1, -1, 0, 1):
        method._extend_streaks([0], [sign])
        seen.append(int(method.streaks[0]))
    assert seen == [1, 2, -1, -2, 0, 1]


def test_greso_skips_as_often_as_it_says():
    method = make("greso", num_prompts=2)
    method.streaks[:] = [2, 0]  # explored with 1/4 and 1
    drawn = Counter(itertools.chain.from_iterable(method._unskipped(1) for _ in range(8000)))
    assert drawn[0] / drawn[1] == pytest.approx(0.25, abs=0.03)


def test_greso_turns_towards_its_targets_within_bounds():
    method = make("greso")
    method.adjust(easy_share=1 / 12, hard_share=0.1)
    assert (method.explore_easy, method.explore_hard) == pytest.approx((0.49, 0.51))
    for _ in range(100):
        method.adjust(easy_share=1.0, hard_share=0.0)
    assert (method.explore_easy, method.explore_hard) == pytest.approx((0.05, 0.95))


def test_greso_rounds_are_as_large_as_what_is_missing_needs():
    method = Greso(1000, batch=64, group=8, seed=0)
    assert method.round_size(missing=64, zero_share=0.9) == 96  # 1.5 x 64, not 1.25 x 640
    assert method.round_size(missing=8, zero_share=0.75) == 40  # 1.25 x 8 / .25
    assert method.round_size(missing=1, zero_share=1.0) == 96


def test_greso_trains_on_mixed_groups_only():
    method = make("greso")
    for batch in play(method, FixedPassRates(RATES), 20):
        rewards = {}
        for rollout, group in zip(batch.rollouts, batch.groups, strict=True):
            rewards.setdefault(group, set()).add(rollout.reward)
        assert all(len(values) == 2 for values in rewards.values())


def test_greso_adjusts_from_the_second_epoch_on():
    method = make("greso")
    policy = FixedPassRates(RATES)
    changed_at = None
    while changed_at is None:
        method.next_batch(policy)
        if method.explore_hard != 0.5:
            changed_at = method._offered
    assert 120 < changed_at < 240


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
    matrices = [method.transitions()[0]]  # of the start to the first step: uniform
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


# ------------------------------ Knapsack ------------------------------


def test_the_value_of_rollouts_is_the_chance_of_a_gradient_times_its_gain():
    assert value(2, 0.5) == pytest.approx(0.5 * 0.125)
    assert value(3, 0.25) == pytest.approx((1 - 1 / 64 - 27 / 64) * 0.25 * 0.5625)
    assert value(1, 0.3) == pytest.approx(0.0)
    # Brute force over all outcomes of four rollouts.
    mixed = sum(
        math.prod(0.2 if right else 0.8 for right in outcome)
        for outcome in itertools.product((0, 1), repeat=4)
        if len(set(outcome)) == 2
    )
    assert value(4, 0.2) == pytest.approx(mixed * 0.2 * 0.64)


@given(
    st.lists(st.sampled_from([0.0, 0.05, 0.25, 1 / 3, 0.5, 0.7, 0.95, 1.0]), min_size=1, max_size=4),
    st.integers(0, 8),
    st.integers(3, 6),
)
def test_no_other_allocation_is_worth_more(rates, extra, highest):
    budget = min(2 * len(rates) + extra, highest * len(rates))
    counts = allocate(np.array(rates), budget, 2, highest)
    assert counts.sum() == budget
    assert counts.min() >= 2
    assert counts.max() <= highest
    best = max(
        sum(value(count, rate) for count, rate in zip(other, rates, strict=True))
        for other in itertools.product(range(2, highest + 1), repeat=len(rates))
        if sum(other) == budget
    )
    assert sum(map(value, counts.tolist(), rates)) == pytest.approx(best)


def test_what_is_left_over_goes_to_the_unsolved():
    counts = allocate(np.array([0.5, 0.0, 1.0, 0.0]), 20, 2, 6)
    assert counts.tolist() == [6, 6, 2, 6]
    assert allocate(np.array([0.0, 1.0, 1.0]), 9, 2, 4).tolist() == [4, 3, 2]


def test_a_budget_below_the_least_is_refused():
    with pytest.raises(ValueError, match=r"at least 6 rollouts \(2 each\), got 5"):
        allocate(np.array([0.5, 0.5, 0.5]), 5, 2, 8)


def test_knapsack_prefers_hard_prompts_to_easy_ones_and_both_to_solved_ones():
    counts = allocate(np.array([0.05, 0.2, 0.8, 0.95, 1.0]), 60, 2, 128)
    assert counts[1] > counts[2] > counts[4] == 2
    assert counts[0] > counts[3]


def test_knapsack_is_uniform_in_the_first_epoch_and_keeps_the_sum_after():
    method, policy = Knapsack(120, batch=30, group=4, seed=0), FixedPassRates(RATES)
    first = play(method, policy, 4)
    assert all(set(group_sizes(batch)) == {4} for batch in first)
    assert (method.rates[HOPELESS] == 0).all()
    assert (method.rates[EASY] == 1).all()
    later = play(method, policy, 4)
    assert all(len(batch.rollouts) == 120 for batch in later)
    assert max(group_sizes(later[0])) > 4


# ------------------------------ SPO ------------------------------


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
    # The published start: 8 of evidence, (S + 1/2) / 9 of it passes.
    np.testing.assert_allclose(fresh.passes[:4], [8 * 0.5 / 9, 8 * 0.5 / 9, 8 * 8.5 / 9, 8 * 8.5 / 9])
    np.testing.assert_allclose(fresh.passes + fresh.fails, 8.0)


# ------------------------------ the policy's side ------------------------------


@pytest.fixture(scope="module")
def task():
    return make_task("E", 64, held_out=8)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    settings = BaseModelSettings(steps=3, batch_size=4, num_layers=1, hidden_size=32, num_heads=1, intermediate_size=16)
    return train_cached(settings, tmp_path_factory.mktemp("models") / "base", report_every=0)


def make_policy(base, task):
    return Policy(base, task, learning_rate=1e-2, estimator="rloo", seed=0)


def rewarded(policy, prompts, rewards):
    rollouts = policy.sample(prompts)
    for rollout, reward in zip(rollouts, rewards, strict=True):
        rollout.reward = reward
    return rollouts


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def test_given_advantages_take_the_place_of_the_estimators(base, task):
    prompts, groups, rewards = [0, 0, 1, 1], ["a", "a", "b", "b"], [1.0, 0.0, 0.0, 1.0]
    leave_one_out = np.array([1.0, -1.0, -1.0, 1.0])  # r - the other's
    estimated, given_ones, opposite = (make_policy(base, task) for _ in range(3))
    estimated.update(rewarded(estimated, prompts, rewards), groups)
    given_ones.update(rewarded(given_ones, prompts, [0.0] * 4), groups, advantages=leave_one_out)
    opposite.update(rewarded(opposite, prompts, rewards), groups, advantages=-leave_one_out)
    torch.testing.assert_close(weights_of(estimated), weights_of(given_ones), rtol=0, atol=1e-6)
    assert (weights_of(estimated) - weights_of(opposite)).abs().max() > 1e-3


def test_drift_is_zero_until_the_policy_moves(base, task):
    policy = make_policy(base, task)
    rollouts = rewarded(policy, [0, 0, 1, 5], [1.0, 0.0, 1.0, 0.0])
    for length, rollout in enumerate(rollouts, start=1):  # an untrained model rarely ends early
        rollout.response, rollout.log_probs = rollout.response[:length], rollout.log_probs[:length]
    np.testing.assert_allclose(policy.drift(rollouts), 0.0, atol=1e-5)
    policy.update(rollouts, ["a", "a", "b", "c"], advantages=np.array([1.0, -1.0, 1.0, 0.0]))
    moved = policy.drift(rollouts)
    assert (moved > 1e-3).all()
    for rollout, mean_change in zip(rollouts, moved, strict=True):  # one by one, without padding
        now = policy._log_probs(torch.tensor([rollout.prompt]), torch.tensor([rollout.response]))[0]
        assert (now - rollout.log_probs).abs().mean().item() == pytest.approx(mean_change, rel=1e-4)


@every_method
def test_every_method_drives_the_real_policy(name, base, task):
    policy, method = make_policy(base, task), make(name, num_prompts=64, batch=4, group=2)
    for _ in range(2):
        batch = method.next_batch(policy)
        metrics = policy.update(batch.rollouts, batch.groups, batch.weights, batch.advantages)
        assert math.isfinite(metrics["loss"])
    assert policy.version == 2
