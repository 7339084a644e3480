"""What verl's own tests say about its trainer and replay buffer, checked on verl's classes and on ours in their place.

The statements are those of `test_trainer_base_on_cpu.py`, `test_rollout_profiling_on_cpu.py` and
`test_replay_buffer_on_cpu.py` in its repository, rewritten: each runs on verl's synchronous trainer and on those of the
recipes, with their configurations.
"""

import contextlib
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.replay_buffer import DAPO_FILTERED_REWARD_COUNTS_KEY, ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.fast_dapo.settings import resolve_group_size
from recipe.fast_dapo.trainer import FastDapoTrainer
from recipe.golden_redaction.trainer import GoldenTrainer
from recipe.tracin.trainer import TracInTrainer
from verl_ext.data.schema import write_parquet
from verl_ext.launch.recipe import PROJECT_ROOT
from verl_ext.trainer.trainer import SignalTrainer
from verl_ext.trainer.verl_collector import CollectedBuffer, VerlCollector

# verl's trainer, then ours: with each recipe's configuration, and the plain trainer of one.
TRAINERS: dict[str, tuple[type[PPOTrainer], str]] = {
    "verl": (PPOTrainerSync, "tracin"),
    "signal": (SignalTrainer.in_mode("sync"), "tracin"),
    "fast_dapo": (FastDapoTrainer.in_mode("sync"), "fast_dapo"),
    "fast_dapo_plain": (FastDapoTrainer.in_mode("sync"), "fast_dapo curriculum.enable=false"),
    "tracin": (TracInTrainer.in_mode("sync"), "tracin"),
    "golden_redaction": (GoldenTrainer.in_mode("sync"), "golden_redaction"),
}
LOGGER = "verl.trainer.ppo.v1.trainer_base"


@dataclass
class Maker:
    """Makes trainers of one kind as verl's tests make theirs: with a configuration, but without a run."""

    kind: type[PPOTrainer]
    recipe: str

    def __call__(self, mode: str = "sync", **filter_groups: Any) -> Any:
        name, *overrides = self.recipe.split()
        with initialize_config_dir(str(PROJECT_ROOT / "configs"), version_base=None):
            config = compose(name, overrides=overrides)
        if "curriculum" in config:
            resolve_group_size(config)
        with open_dict(config):
            config.trainer.v1.trainer_mode = mode
            config.data.train_batch_size, config.data.gen_batch_size = 64, 8
            config.trainer.v1.sampler.max_off_policy_threshold = 1
            config.algorithm.filter_groups.update(filter_groups)
        trainer: Any = object.__new__(self.kind)
        trainer.config, trainer.trainer_mode = config, mode
        return trainer


@pytest.fixture(params=TRAINERS)
def make(request: pytest.FixtureRequest) -> Maker:
    return Maker(*TRAINERS[request.param])


# ------------------------------ the trainer's sampler and loader ------------------------------


def test_the_sampler_is_of_the_trainers_mode(make: Maker):
    assert type(make()._build_replay_buffer()) is ReplayBuffer
    for mode in ("colocate_async", "separate_async"):
        sampler = make(mode, enable=True, metric="acc")._build_replay_buffer()
        assert type(sampler) is ReplayBufferAsync
        assert (sampler.filter_groups_metric, sampler.train_batch_size, sampler.gen_batch_size) == ("acc", None, None)


def test_a_sampler_of_ones_own_is_built_by_its_own_contract(make: Maker, tmp_path: Path):
    (tmp_path / "mine.py").write_text("class Mine:\n    def __init__(self, **kwargs):\n        self.kwargs = kwargs\n")
    trainer = make(enable=True, metric=None)  # which verl's own sampler would refuse
    trainer.config.trainer.v1.sampler.custom_sampler = {"path": f"{tmp_path}/mine.py", "name": "Mine"}
    sampler = trainer._build_replay_buffer()
    assert type(sampler).__name__ == "Mine"
    assert sampler.kwargs.keys() == {
        "trainer_mode", "trainer_config", "max_off_policy_threshold", "max_off_policy_strategy", "sampler_kwargs",
        "refill_fn",
    }  # fmt: skip


@pytest.mark.parametrize("inflight", [None, 3])
def test_dynamic_sampling_has_its_metric_and_its_limits(make: Maker, inflight: int | None):
    limits = {} if inflight is None else {"max_inflight_gen_batches": inflight}
    sampler = make(enable=True, metric="acc", **limits)._build_replay_buffer()
    assert (sampler.filter_groups_metric, sampler.train_batch_size, sampler.gen_batch_size) == ("acc", 64, 1)
    assert sampler.max_inflight_gen_batches == (inflight or 1)


def test_dynamic_sampling_needs_a_metric_and_rewards_in_time(make: Maker):
    with pytest.raises(ValueError, match="metric must be set"):
        make(enable=True, metric=None)._build_replay_buffer()
    trainer = make(enable=True, metric="acc")
    trainer.config.reward.reward_model.enable = True
    with pytest.raises(AssertionError, match="enable_resource_pool=True"):
        trainer._build_replay_buffer()


def test_a_limit_of_generation_that_has_no_say_is_warned_of(make: Maker, caplog: pytest.LogCaptureFixture):
    trainer = make(enable=True, metric="acc", max_num_gen_batches=10)
    with caplog.at_level(logging.WARNING, LOGGER):
        trainer._build_replay_buffer()
    assert [record.args for record in caplog.records if "max_num_gen_batches" in record.msg] == [(10,)]


def test_failed_groups_are_made_again_one_prompt_at_a_time(
    make: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    row = {"data_source": "mine", "prompt": [{"role": "user", "content": "?"}], "ability": "none",
           "reward_model": {"style": "rule", "ground_truth": "1"}}  # fmt: skip
    write_parquet([row | {"extra_info": {"index": index}} for index in range(70)], tmp_path / "rows.parquet")
    trainer = make()
    sampler, data = trainer.config.trainer.v1.sampler, trainer.config.data
    with open_dict(trainer.config):
        sampler.sync_refill_failed_groups = True
        data.update({"train_files": f"{tmp_path}/rows.parquet", "val_files": f"{tmp_path}/rows.parquet"})
        data.update({"dataloader_num_workers": 0, "filter_overlong_prompts": False})
        trainer.config.trainer.update({"total_epochs": 1, "total_training_steps": None})
    buffer = trainer._build_replay_buffer()
    assert (buffer.sync_refill_failed_groups, buffer.gen_batch_size) == (True, 1)
    trainer.parameter_sync_step, trainer.tokenizer, trainer.processor = 1, None, None
    with caplog.at_level(logging.WARNING, LOGGER):
        trainer._init_dataloader()
    assert (data.gen_batch_size, trainer.train_dataloader.batch_size, trainer.steps_per_epoch) == (1, 1, 1)
    assert "data.gen_batch_size=8 is overridden to 1." in caplog.messages


# ------------------------------ profiles ------------------------------


@dataclass
class Profiled:
    """Workers or engines that record the calls of their profiler."""

    asked: list[str] = field(default_factory=list)

    def start_profile(self, **_: Any) -> None:
        self.asked.append("start")

    def stop_profile(self, **_: Any) -> None:
        self.asked.append("stop")

    def sleep_replicas(self) -> None:
        self.asked.append("sleep")


def _profiled(make: Maker, is_profiled: bool = True) -> Any:
    trainer = make()
    profiler = trainer.config.global_profiler
    with open_dict(profiler):
        profiler.steps, profiler.profile_continuous_steps = [1], False
    trainer.global_steps, trainer.total_training_steps = 1, 10
    trainer.prev_step_profile, trainer.curr_step_profile, trainer.next_step_profile = False, is_profiled, False
    trainer.use_reference_policy = trainer.use_critic = False
    trainer.actor_rollout_wg, trainer.ref_policy_wg, trainer.critic_wg = Profiled(), Profiled(), Profiled()
    trainer.llm_server_manager = trainer.checkpoint_manager = Profiled()
    return trainer


@pytest.mark.parametrize(("is_profiled", "asked"), [(True, ["start", "sleep", "stop"]), (False, ["sleep"])])
def test_the_engines_are_profiled_while_a_step_samples(make: Maker, is_profiled: bool, asked: list[str]):
    trainer = _profiled(make, is_profiled)
    trainer._start_profiling()
    trainer.on_sample_end()
    trainer._stop_profiling()
    assert trainer.llm_server_manager.asked == asked
    assert trainer.actor_rollout_wg.asked == (["start", "stop"] if is_profiled else [])


def test_a_step_of_every_trainer_says_when_it_has_sampled(make: Maker):
    """verl's trainer does so in `_step_once`; one that makes its own steps, in those."""
    own = make.kind.step is not PPOTrainer.step and "super().step" not in inspect.getsource(make.kind.step)
    step = make.kind.step if own else PPOTrainer._step_once
    assert inspect.getsource(step).count("self.on_sample_end()") == 1


def test_a_profile_that_goes_on_is_not_started_again(make: Maker):
    trainer = _profiled(make)
    trainer.config.global_profiler.update({"profile_continuous_steps": True, "steps": [1, 2]})
    trainer.prev_step_profile = True
    trainer._start_profiling()
    assert trainer.actor_rollout_wg.asked == trainer.llm_server_manager.asked == []


@pytest.mark.parametrize("is_shared", [True, False])
def test_each_group_of_workers_is_profiled_once_whatever_its_roles(make: Maker, is_shared: bool):
    trainer = _profiled(make)
    trainer.use_reference_policy = trainer.use_critic = True
    if is_shared:
        trainer.ref_policy_wg = trainer.critic_wg = trainer.actor_rollout_wg
    trainer._start_profiling()
    trainer._stop_profiling()
    for group in (trainer.actor_rollout_wg, trainer.ref_policy_wg, trainer.critic_wg):
        assert group.asked == ["start", "stop"]


# ------------------------------ the replay buffer ------------------------------


class Store:
    """The functions of TransferQueue that verl's buffer calls, in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {}
        self.rewards: dict[str, float] = {}
        self.asked: list[set[str]] = []
        for name in ("kv_list", "kv_clear", "kv_batch_get"):
            monkeypatch.setattr(replay_buffer.tq, name, getattr(self, name))

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        return {name: dict(rows) for name, rows in self.tags.items() if partition_id in (None, name)}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        self.asked.append(set(keys))
        infos = [{"reward_extra_info": {"acc": self.rewards[key]}} for key in keys]
        scores = torch.nested.as_nested_tensor([torch.tensor([self.rewards[key]]) for key in keys], layout=torch.jagged)
        columns = {"extra_fields": np.array(infos, dtype=object), "rm_scores": scores}
        return {name: columns[name] for name in select_fields}

    def put(
        self, uid: str, status: str = "finished", *, at: int = 0, rewards: tuple[float, ...] = (0.0,), to: str = "train"
    ) -> list[str]:
        """Store a prompt with one rollout per reward; returns the rollouts' keys."""
        keys = [f"{uid}_{session}_0" for session in range(len(rewards))]
        self.rewards |= dict(zip(keys, rewards, strict=True))
        rows = {key: {"is_prompt": False, "seq_len": 3, "global_steps": at} for key in keys}
        self.tags.setdefault(to, {}).update(rows | {uid: {"is_prompt": True, "status": status, "global_steps": at}})
        return keys


@dataclass
class Refill:
    """Stores as many new prompts as it is asked for, numbered in order."""

    store: Store
    rewards: tuple[float, ...] = (0.0, 1.0)
    calls: list[int] = field(default_factory=list)
    first: Callable[[], None] | None = None

    def __call__(self, num_prompts: int) -> None:
        for number in range(num_prompts):
            self.store.put(f"refill{sum(self.calls) + number}", at=1, rewards=self.rewards)
        self.calls.append(num_prompts)
        if self.first is not None:
            then, self.first = self.first, None
            then()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(monkeypatch)


class Buffers:
    """Makes buffers of a class of verl's as a trainer of one kind has them: verl's, or verl's behind a collector."""

    def __init__(self, kind: type, is_ours: bool, **own: Any) -> None:
        self.kind, self.is_ours = kind, is_ours
        self.settings = {
            "trainer_config": DictConfig({}), "max_off_policy_strategy": "drop", "sampler_kwargs": DictConfig({}),
            "poll_interval": 0.01,
        } | own  # fmt: skip

    def __call__(self, **changes: Any) -> Any:
        verls = self.kind(**self.settings | changes)
        if not self.is_ours:
            return verls
        trainer: Any = SimpleNamespace(global_steps=1, waiting_for_rollouts=contextlib.nullcontext)
        collector = VerlCollector(trainer)
        trainer.replay_buffer = CollectedBuffer(verls, collector.collect)
        trainer.replay_buffer.collector = collector
        return trainer.replay_buffer


@pytest.fixture(params=["verl", "ours"])
def buffers(request: pytest.FixtureRequest) -> Buffers:
    sizes = {"max_off_policy_threshold": 8, "train_batch_size": 2, "gen_batch_size": 1}
    return Buffers(ReplayBuffer, request.param == "ours", trainer_mode="sync", **sizes)


def _sample(buffer: Any, batch_size: int, partition: str = "train") -> tuple[set[str], dict[str, Any]]:
    """The prompts of a batch, each with all its rollouts, and the metrics of the sampling."""
    batch, metrics = buffer.sample(global_steps=1, partition_id=partition, batch_size=batch_size)
    assert batch.partition_id == partition
    assert len(batch.keys) == len(set(batch.keys)) == len(batch.tags)
    collector = getattr(buffer, "collector", None) if isinstance(buffer, CollectedBuffer) else None
    if collector is not None and partition == "train":
        metrics = metrics | collector.metrics()
    return {key.split("_")[0] for key in batch.keys}, metrics


@contextlib.contextmanager
def _sampling(buffer: Any, batch_size: int) -> Iterator[list[Any]]:
    """Sample in a thread; the result is in the list at the latest when the block ends."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(_sample(buffer, batch_size)), daemon=True)
    thread.start()
    yield results
    thread.join(20)
    assert results


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"max_off_policy_threshold": 0}, AssertionError, "max off policy threshold"),
        ({"max_off_policy_strategy": "bogus"}, AssertionError, "max off policy strategy"),
        ({"filter_groups_metric": "acc", "max_inflight_gen_batches": 0, "refill_fn": print}, ValueError, "positive"),
        ({"filter_groups_metric": "acc"}, ValueError, "requires refill_fn"),
        ({"sync_refill_failed_groups": True}, ValueError, "requires refill_fn"),
        ({"sync_refill_failed_groups": True, "refill_fn": print, "gen_batch_size": 2}, ValueError, "gen_batch_size=1"),
    ],
)
def test_a_buffer_that_cannot_work_is_refused(buffers: Buffers, changes: dict[str, Any], error: Any, message: str):
    with pytest.raises(error, match=message):
        buffers(**changes)


def test_prompts_are_told_apart_by_their_status_and_from_rollouts(buffers: Buffers, store: Store):
    keys = [key for status in ("running", "finished", "failure") for key in store.put(status, status)]
    store.put("pending", "pending", rewards=())
    buffer = buffers()
    buffer._sync_metadata_from_transfer_queue()
    for status in ("pending", "running", "finished", "failure"):
        assert getattr(buffer, f"{status}_keys")["train"] == {status}
    assert buffer.partitions["train"].keys() == set(keys)
    store.put("other", "bogus")
    with pytest.raises(ValueError, match="Unknown status"):
        buffer._sync_metadata_from_transfer_queue()


def test_a_group_that_is_cleared_leaves_the_snapshot(buffers: Buffers, store: Store):
    dropped, kept = store.put("dropped"), store.put("kept", at=2)
    buffer = buffers()
    buffer._sync_metadata_from_transfer_queue()
    buffer._dapo_classification_cache["train"] = {"dropped": 0.0, "kept": None}
    buffer._clear_groups("train", {"dropped"})
    assert store.tags["train"].keys() == {"kept", *kept}
    assert buffer.partitions["train"].keys() == set(kept) != set(dropped)
    assert buffer.finished_keys["train"] == {"kept"}
    assert buffer.prompt_global_steps["train"] == {"kept": 2}
    assert buffer._dapo_classification_cache["train"] == {"kept": None}


def test_a_batch_is_whole_groups_that_have_ended_well_or_badly(buffers: Buffers, store: Store):
    ended = [*store.put("finished", rewards=(0.0,) * 4), *store.put("failure", "failure", rewards=(0.0,) * 3)]
    running = store.put("running", "running")
    batch, _ = buffers().sample(global_steps=1, partition_id="train", batch_size=2)
    assert sorted(batch.keys) == sorted(ended)
    # The prompts are consumed; the rollouts stay until they are trained on.
    assert store.tags["train"].keys() == {*ended, "running", *running}


def test_a_prompt_without_rollouts_is_left_to_padding_but_not_a_whole_batch(buffers: Buffers, store: Store):
    store.put("finished")
    store.put("empty", "failure", rewards=())
    assert _sample(buffers(), 2) == ({"finished"}, {})
    for name in ("a", "b"):
        store.put(name, "failure", rewards=())
    with pytest.raises(RuntimeError, match="sync_refill_failed_groups"):
        _sample(buffers(), 2)


def test_the_oldest_prompts_come_first_and_each_once(buffers: Buffers, store: Store):
    for uid, at in (("newest", 5), ("oldest", 1), ("middle", 2)):
        store.put(uid, at=at)
    buffer = buffers()
    assert _sample(buffer, 2)[0] == {"oldest", "middle"}
    assert _sample(buffer, 1)[0] == {"newest"}


def test_it_waits_until_there_are_enough(buffers: Buffers, store: Store):
    store.put("first")
    with _sampling(buffers(), 2) as results:
        time.sleep(0.1)
        assert not results
        store.put("second")
    assert results[0][0] == {"first", "second"}


@pytest.mark.parametrize("strategy", ["drop", "wait"])
def test_synchronous_sampling_knows_no_staleness(buffers: Buffers, store: Store, strategy: str):
    store.put("stale", at=-100)
    store.put("fresh", at=1)
    buffer = buffers(max_off_policy_strategy=strategy, max_off_policy_threshold=1)
    assert _sample(buffer, 2) == ({"stale", "fresh"}, {})


def test_validation_takes_everything_as_it_is(buffers: Buffers, store: Store):
    store.put("same", rewards=(1.0, 1.0), to="val")
    store.put("failed", "failure", to="val")
    refill = Refill(store)
    buffer = buffers(filter_groups_metric="acc", sync_refill_failed_groups=True, refill_fn=refill)
    assert _sample(buffer, 2, "val") == ({"same", "failed"}, {})
    assert refill.calls == []


@pytest.mark.parametrize("num_failed", [1, 2])
def test_failed_groups_without_rollouts_are_replaced(buffers: Buffers, store: Store, num_failed: int):
    store.put("finished")
    store.put("partly", "failure")
    store.put("running", "running")
    for number in range(num_failed):
        store.put(f"failed{number}", "failure", rewards=())
    refill = Refill(store)
    found, metrics = _sample(buffers(sync_refill_failed_groups=True, refill_fn=refill), 2 + num_failed)
    assert found == {"finished", "partly", *(f"refill{number}" for number in range(num_failed))}
    assert refill.calls == [num_failed]
    assert metrics["training/rollout_failure/evicted_samples"] == num_failed


def test_groups_that_agree_are_replaced_twice_over_and_what_is_too_much_is_cleared(buffers: Buffers, store: Store):
    store.put("same", rewards=(0.0, 0.0))
    store.put("mixed", rewards=(0.0, 1.0))
    refill = Refill(store)
    found, metrics = _sample(buffers(filter_groups_metric="acc", refill_fn=refill), 2)
    assert refill.calls == [2]
    assert found in ({"mixed", "refill0"}, {"mixed", "refill1"})
    assert metrics["training/filter_groups/evicted_samples"] == 1
    assert metrics["training/filter_groups/discarded_surplus_samples"] == 1
    assert metrics[DAPO_FILTERED_REWARD_COUNTS_KEY] == {0.0: 1}
    assert {key.split("_")[0] for key in store.tags["train"]} == found


def test_the_metric_may_be_the_reward_itself(buffers: Buffers, store: Store):
    store.put("same", rewards=(1.0, 1.0))
    store.put("mixed", rewards=(0.0, 1.0))
    refill = Refill(store)
    found, metrics = _sample(buffers(filter_groups_metric="reward", refill_fn=refill), 1)
    assert found == {"mixed"}
    assert metrics[DAPO_FILTERED_REWARD_COUNTS_KEY] == {1.0: 1}


def test_both_reasons_to_replace_add_up(buffers: Buffers, store: Store):
    store.put("same", rewards=(0.0, 0.0))
    store.put("empty", "failure", rewards=())
    store.put("mixed", rewards=(0.0, 1.0))
    refill = Refill(store)
    settings = {"filter_groups_metric": "acc", "sync_refill_failed_groups": True, "train_batch_size": 3}
    found, metrics = _sample(buffers(refill_fn=refill, **settings), 3)
    assert refill.calls == [2 + 1]
    assert "mixed" in found
    assert not {"same", "empty"} & found
    assert metrics["training/rollout_failure/evicted_samples"] == 1
    assert metrics["training/filter_groups/evicted_samples"] == 1


def test_nothing_is_replaced_where_the_rest_is_a_batch(buffers: Buffers, store: Store):
    store.put("same", rewards=(0.0, 0.0))
    for uid in ("a", "b"):
        store.put(uid, rewards=(0.0, 1.0))
    refill = Refill(store)
    buffer = buffers(filter_groups_metric="acc", refill_fn=refill, train_batch_size=3)
    assert _sample(buffer, 2)[0] == {"a", "b"}
    assert refill.calls == []


def test_no_more_prompts_are_under_way_than_allowed(buffers: Buffers, store: Store):
    store.put("same", rewards=(0.0, 0.0))
    store.put("slow", "running", rewards=(0.0, 1.0))
    refill = Refill(store)
    buffer = buffers(filter_groups_metric="acc", refill_fn=refill, train_batch_size=2, max_inflight_gen_batches=1)
    with _sampling(buffer, 2) as results:
        deadline = time.monotonic() + 20
        while len(refill.calls) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        # One prompt is in flight, so the credit of two is spent one by one; the prompt is of this step and waited for.
        assert refill.calls == [1, 1]
        assert not results
        store.put("slow", "finished", rewards=(0.0, 1.0))
    assert len(results[0][0]) == 2
    assert results[0][1]["training/filter_groups/discarded_surplus_samples"] == 1


def test_credit_that_is_left_when_the_batch_is_full_is_forgotten(buffers: Buffers, store: Store):
    store.put("same", rewards=(0.0, 0.0))
    store.put("slow", "running", rewards=(0.0, 1.0))
    refill = Refill(store, first=lambda: store.put("slow", "finished", rewards=(0.0, 1.0)) and None)
    found, metrics = _sample(buffers(filter_groups_metric="acc", refill_fn=refill), 2)
    assert refill.calls == [1]
    assert found == {"slow", "refill0"}
    assert "training/filter_groups/discarded_surplus_samples" not in metrics


def test_a_group_is_judged_once(buffers: Buffers, store: Store):
    first = [*store.put("same", rewards=(1.0, 1.0)), *store.put("mixed", rewards=(0.0, 1.0))]
    buffer = buffers(filter_groups_metric="acc", refill_fn=print)
    for _ in range(2):
        buffer._sync_metadata_from_transfer_queue()
        uids, counts = buffer._dapo_filtered_keys("train")
        assert (uids, dict(counts)) == ({"same"}, {1.0: 1})
    second = store.put("other", rewards=(0.0, 0.0))
    buffer._sync_metadata_from_transfer_queue()
    assert buffer._dapo_filtered_keys("train")[0] == {"same", "other"}
    assert store.asked == [set(first), set(second)]


def test_reasons_of_one_partition_are_not_those_of_another(buffers: Buffers, store: Store):
    store.put("zeros", rewards=(0.0, 0.0))
    store.put("ones", rewards=(1.0, 1.0))
    buffer = buffers(filter_groups_metric="acc", refill_fn=print)
    buffer._sync_metadata_from_transfer_queue()
    reasons = buffer._terminal_eviction_reasons(global_steps=0, partition_id="train")
    buffer._terminal_eviction_reasons(global_steps=0, partition_id="val")
    *_, count, metrics = buffer._evict_terminal_groups(0, "train", reasons)
    assert count == 2
    assert metrics[DAPO_FILTERED_REWARD_COUNTS_KEY] == {0.0: 1, 1.0: 1}
