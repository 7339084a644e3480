"""What all competing methods of the leaderboard have in common: counts, groups, seeds, and the real policy."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from competitors import COMPETITORS
from competitors_play import NUM_PROMPTS, RATES, FixedPassRates, group_sizes, make, play, share_on_learnable
from learning_lab import Policy, make_task
from sampling_methods import Uniform

from data_preprocess.arithmetic_model import BaseModelSettings, train_cached

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
    leave_one_out = np.array([1.0, -1.0, -1.0, 1.0])  # r minus the other reward
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
