"""The leaderboard's methods and runs: filter_groups is verl's, updates use verl's loss, a job determines its run."""

import itertools
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from each import check_each
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.trainer.ppo.v1 import replay_buffer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import leaderboard_training
from filtering_methods import PlainFilterGroups
from leaderboard_protocol import FULL, METHODS, NUM_PROMPTS, Job, Settings, Spacing, cut
from leaderboard_training import make_method, run
from learning_lab import Policy, Rollout, make_task
from sampling_methods import FilterGroups

from data_preprocess.arithmetic_model import BaseModelSettings, train_cached
from verl_ext.serving import data_plane

# ------------------------------ filter_groups ------------------------------


class FixedPassRates:
    """A policy that never learns: each rollout has its own number, and the seed decides every reward."""

    def __init__(self, rates, seed):
        self.rates, self.version = np.asarray(rates), 0
        self.calls, self.rewards = [], []
        self._rng = np.random.default_rng(seed)
        self._numbers = itertools.count()

    def sample(self, prompts):
        self.calls.append(list(prompts))
        rewards = (self._rng.random(len(prompts)) < self.rates[prompts]).astype(float)
        self.rewards += rewards.tolist()
        return [
            Rollout(prompt, [next(self._numbers)], torch.zeros(1), reward)
            for prompt, reward in zip(prompts, rewards, strict=True)
        ]


class Store:
    """TransferQueue in memory: what verl's buffer and `FilterGroups` call of it."""

    def __init__(self, monkeypatch):
        self.tags, self.scores = {}, {}
        for name in ("kv_list", "kv_clear", "kv_batch_get"):
            monkeypatch.setattr(replay_buffer.tq, name, getattr(self, name))
        monkeypatch.setattr(data_plane, "write", self.write)
        monkeypatch.setattr(data_plane, "clear", self.kv_clear)
        monkeypatch.setattr("ray.is_initialized", lambda: True)

    def kv_list(self):
        return {"train": dict(self.tags)}

    def kv_clear(self, keys, partition_id):
        for key in keys:
            self.tags.pop(key, None)

    def kv_batch_get(self, keys, partition_id, select_fields):
        assert select_fields == ["rm_scores"]
        return {"rm_scores": torch.stack([self.scores[key] for key in keys])}

    def write(self, keys, partition, columns, tags):
        self.tags |= dict(zip(keys, tags, strict=True))
        if columns is not None:
            self.scores |= dict(zip(keys, columns["rm_scores"], strict=True))


def groups_of(batch):
    """The numbers of each group's rollouts."""
    groups = defaultdict(list)
    for rollout, name in zip(batch.rollouts, batch.groups, strict=True):
        groups[name] += rollout.response
    return {tuple(sorted(numbers)) for numbers in groups.values()}


def mixed_groups(policy, group, first):
    """The numbers of the groups from rollout `first` on that have differing rewards, in order."""
    starts = range(first, len(policy.rewards), group)
    return [tuple(range(start, start + group)) for start in starts if len(set(policy.rewards[start:][:group])) > 1]


@pytest.mark.parametrize(("batch", "group"), [(4, 2), (8, 4), (3, 8)])
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_filter_groups_without_transfer_queue_generates_and_keeps_what_verl_does(monkeypatch, batch, group, share):
    Store(monkeypatch)
    rates = np.where(np.arange(100) < 100 * share, 0.5, 0.0)
    settings = {"batch": batch, "group": group, "seed": 5}
    verls, plain = FilterGroups(100, **settings), PlainFilterGroups(100, **settings)
    for_verl, for_plain = FixedPassRates(rates, seed=1), FixedPassRates(rates, seed=1)
    without_surplus = 0
    for step in range(30):
        for_verl.version = for_plain.version = step
        first = len(for_plain.rewards)
        of_verl, of_plain = groups_of(verls.next_batch(for_verl)), groups_of(plain.next_batch(for_plain))
        assert for_verl.calls == for_plain.calls
        assert verls.counts == plain.counts
        mixed = mixed_groups(for_plain, group, first)
        assert of_plain == set(mixed[:batch])
        # verl sorts the groups of a step by that same step, so which of a surplus it discards is arbitrary.
        assert len(of_verl) == batch
        assert of_verl <= set(mixed)
        without_surplus += len(mixed) == batch
    assert without_surplus > 0  # without a surplus, the batches are identical


def test_filter_groups_ends_a_step_where_there_is_nothing_to_keep():
    method, policy = PlainFilterGroups(10, batch=4, group=2, seed=0), FixedPassRates([1.0] * 10, seed=0)
    batch = method.next_batch(policy)
    assert len(batch.rollouts) == 8
    assert method.counts.generated == 2 * 40  # four times the pool
    assert method.counts.informative == 0


# ------------------------------ the policy's updates ------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    settings = BaseModelSettings(
        steps=60, batch_size=8, num_layers=1, hidden_size=32, num_heads=1, intermediate_size=16
    )
    return train_cached(settings, tmp_path_factory.mktemp("models") / "base", report_every=0)


@pytest.fixture(scope="module")
def task():
    return make_task("E", 64, held_out=16)


def make_policy(base, task, *, estimator="rloo", compact=False):
    return Policy(base, task, learning_rate=3e-3, estimator=estimator, seed=0, compact=compact)


def made_rollouts(policy, rewards):
    """Two per prompt, of different lengths."""
    rollouts = policy.sample([place // 2 for place in range(len(rewards))])
    for length, (rollout, reward) in enumerate(zip(rollouts, rewards, strict=True)):
        length = 1 + length % len(rollout.response)
        rollout.response, rollout.log_probs = rollout.response[:length], rollout.log_probs[:length]
        rollout.reward = reward
    return rollouts, [str(rollout.prompt) for rollout in rollouts]


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


@pytest.mark.parametrize("updates", [1, 2, 3])
def test_updates_are_steps_on_verls_loss_with_the_first_log_probs(base, task, updates):
    policy, other = make_policy(base, task), make_policy(base, task)
    rollouts, groups = made_rollouts(policy, [1.0, 0.0, 0.0, 1.0])
    policy.update(rollouts, groups, updates=updates)
    assert policy.version == 1
    advantages = torch.tensor([1.0, -1.0, -1.0, 1.0])  # a reward minus the other one
    responses, sampled, mask = other._padded_responses(rollouts)
    old = other._log_probs(torch.tensor([0, 0, 1, 1]), responses).detach()
    weights, _ = compute_rollout_correction_weights(old - sampled, mask, rollout_is="token", rollout_is_threshold=2.0)
    for _ in range(updates):
        log_probs = other._log_probs(torch.tensor([0, 0, 1, 1]), responses)
        loss, _ = compute_policy_loss_vanilla(
            old, log_probs, advantages[:, None] * mask, mask, "token-mean", other.loss_config, weights
        )
        other.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(other.model.parameters(), 1.0)
        other.optimizer.step()
    assert torch.equal(weights_of(policy), weights_of(other))


def test_past_the_clip_a_second_update_has_no_gradient(base, task):
    policy = make_policy(base, task)
    policy.optimizer.param_groups[0]["lr"] = 0.02
    rollouts, groups = made_rollouts(policy, [1.0])  # a single token
    before = float(policy.drift(rollouts)[0])
    info = policy.update(rollouts, groups, advantages=np.array([1.0]), updates=2)
    assert before < 1e-5
    assert policy.drift(rollouts)[0] > np.log(1.28)
    assert info["grad_norm"] == 0.0


@pytest.mark.parametrize("estimator", ["rloo", "grpo"])
@pytest.mark.parametrize("updates", [1, 2])
def test_a_compact_update_is_the_whole_one(base, task, estimator, updates):
    policies = [make_policy(base, task, estimator=estimator, compact=compact) for compact in (False, True)]
    before = weights_of(policies[0])
    # Mixed groups among uniform ones, then only uniform ones: AdamW still moves the weights.
    for rewards in ([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0], [0.0] * 8, [1.0, 0.0, 0.0, 0.0]):
        rollouts, groups = made_rollouts(policies[0], rewards)
        for policy in policies:
            policy.update(rollouts, groups, updates=updates)
        # AdamW divides by the gradient's size: where that is close to 0, the order of a sum decides the step.
        torch.testing.assert_close(weights_of(policies[0]), weights_of(policies[1]), rtol=0, atol=1e-4)
        assert (weights_of(policies[0]) - before).abs().max() > 1e-3
        before = weights_of(policies[0])


def test_a_compact_policy_sees_the_same_log_probs_and_accuracy(base, task):
    plain, compact = (make_policy(base, task, compact=compact) for compact in (False, True))
    rollouts, _ = made_rollouts(plain, [0.0] * 40)
    np.testing.assert_allclose(plain.drift(rollouts), compact.drift(rollouts), atol=1e-5)
    assert plain.accuracy() == pytest.approx(compact.accuracy(), rel=1e-4)


# ------------------------------ runs ------------------------------

RARE = Spacing(128, 0.0)


@pytest.fixture
def small_lab(monkeypatch, base, task):
    monkeypatch.setattr(leaderboard_training, "base_of", lambda pool: base)
    monkeypatch.setattr(leaderboard_training, "task_of", lambda pool: task)
    monkeypatch.setattr(leaderboard_training, "NUM_PROMPTS", 64)


def job_of(method, **changes):
    batch, group = METHODS[method].shapes[0]
    return replace(Job(method, "E", 0, Settings(1e-3, batch, group, 1), 300, looks=RARE), **changes)


def test_every_method_can_be_made_with_each_of_its_batches():
    task = replace(make_task("E", NUM_PROMPTS), states=np.zeros((NUM_PROMPTS, 16)))

    def check(method):
        for settings in FULL.grid(method):
            made = make_method(Job(method, "E", 0, settings, 100), task)
            assert made.counts.generated == 0

    check_each(METHODS, check)


def test_the_seed_of_a_job_decides_the_order_of_its_prompts(task):
    orders = [list(itertools.islice(make_method(job_of("greso", seed=seed), task)._order, 64)) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_two_phases_need_four_rollouts(task):
    with pytest.raises(ValueError, match="at least 4 rollouts per prompt, two in each phase, got 2"):
        make_method(Job("two_phase", "E", 0, Settings(1e-3, 16, 2, 1), 100), task)


def test_a_run_depends_on_its_job_only(small_lab):
    first, between, second = (
        run(job_of("uniform_rloo")),
        run(job_of("uniform_rloo", seed=1)),
        run(job_of("uniform_rloo")),
    )
    assert first["history"] == second["history"] != between["history"]


def test_a_longer_run_begins_as_the_shorter_one(small_lab):
    longer = run(job_of("mopps", budget=900))
    shorter = run(job_of("mopps"))
    assert cut(longer, job_of("mopps"))["history"] == shorter["history"]
    assert len(longer["history"]) > len(shorter["history"])


def test_what_is_updated_twice_is_trained_on_twice(small_lab):
    settings = Settings(1e-3, 64, 2, 2)
    result = run(job_of("uniform_grpo", settings=settings))
    last = result["history"][-1]
    assert last["rollouts"] == 256
    assert last["trained"] == 2 * last["rollouts"]
    assert last["trained_tokens"] == 2 * last["tokens"]
    assert last["accuracy"] == pytest.approx(np.mean(list(last["accuracy_by_domain"].values())))
    assert set(result["seconds"]) == {"generating", "updating", "looking"}
