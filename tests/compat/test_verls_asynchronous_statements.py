"""What verl's own tests say about its asynchronous trainers, checked on verl's classes and on ours in their place.

The statements are those of `test_reissue_inflight_on_cpu.py`, `test_streaming_feed_on_cpu.py`,
`test_separate_async_step_switch_on_cpu.py` and the asynchronous half of `test_replay_buffer_on_cpu.py`, rewritten.
`test_verls_own_statements.py` has the synchronous ones.
"""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_verls_own_statements import Buffers, Maker, Refill, Store, _sample, _sampling
from verl.trainer.config import HybridRolloutSwitchConfig
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import get_trainer_cls
from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode
from verl.utils import tensordict_utils as tu

from recipe.fast_dapo.trainer import FastDapoTrainer
from recipe.tracin.trainer import TracInTrainer
from verl_ext.run.status import StatusFile
from verl_ext.trainer.trainer import SignalTrainer
from verl_ext.trainer.verl_collector import VerlCollector

MODES = ("colocate_async", "separate_async")
KINDS = ("verl", "signal", "tracin", "fast_dapo_plain")
OURS: dict[str, tuple[type[SignalTrainer], str]] = {
    "signal": (SignalTrainer, "tracin"),
    "tracin": (TracInTrainer, "tracin"),
    "fast_dapo_plain": (FastDapoTrainer, "fast_dapo curriculum.enable=false"),
}
EACH = [pytest.param(kind, mode, id=f"{kind}-{mode}") for kind in KINDS for mode in MODES]


def made(kind: str, mode: str, folder: Path = Path("none"), gen_batch_size: int = 8) -> Any:
    """A trainer of a kind in a mode, with a configuration and a loader that numbers its prompts, but without a run."""
    base, recipe = OURS.get(kind, (None, "tracin"))
    trainer = Maker(get_trainer_cls(mode) if base is None else base.in_mode(mode), recipe)(mode)
    trainer.config.data.gen_batch_size = gen_batch_size
    trainer.global_steps, trainer.submitted, fetched = 5, [], iter(range(1000))

    def fetch() -> Any:
        numbers = [next(fetched) for _ in range(gen_batch_size)]
        return tu.get_tensordict({"uid": np.array([f"new{number}" for number in numbers], dtype=object)})

    trainer._fetch_one_gen_batch = fetch
    trainer.agent_loop_manager = SimpleNamespace(generate_sequences=trainer.submitted.append)
    if kind != "verl":
        trainer.collector, trainer.observers = VerlCollector(trainer), []
        trainer.status = StatusFile(folder / "status.json")
    return trainer


class Prompts(Store):
    """A store that also takes rows from a trainer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.written: list[str] = []
        from verl.trainer.ppo.v1 import trainer_base

        for name in ("kv_batch_put", "kv_list", "kv_clear", "kv_batch_get"):
            monkeypatch.setattr(trainer_base.tq, name, getattr(self, name))

    def kv_batch_put(self, keys: list[str], partition_id: str, tags: list[dict[str, Any]], fields: Any = None) -> None:
        self.written += keys if fields is not None else []
        self.tags.setdefault(partition_id, {}).update(zip(keys, tags, strict=True))

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> Any:
        if select_fields is not None:
            return super().kv_batch_get(keys, partition_id, select_fields)
        return tu.get_tensordict({"uid": np.array(keys, dtype=object)})


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Prompts:
    return Prompts(monkeypatch)


# ------------------------------ prompts on their way to the engines ------------------------------


@pytest.mark.parametrize(("kind", "mode"), EACH)
def test_a_request_is_submitted_at_once_with_what_it_needs_to_be_made_again(kind: str, mode: str, store: Prompts):
    trainer = made(kind, mode)
    assert trainer._add_prompts_to_generate(24) == 24
    (batch,) = trainer.submitted
    uids = [f"new{number}" for number in range(24)]
    assert list(batch["uid"]) == store.written == list(store.tags["train"]) == uids
    assert all(
        tag == {"is_prompt": True, "status": "pending", "global_steps": 5} for tag in store.tags["train"].values()
    )


@pytest.mark.parametrize(("kind", "mode"), EACH)
def test_a_request_is_whole_fetches_and_by_default_a_batch(kind: str, mode: str):
    trainer = made(kind, mode)
    assert len(trainer._next_train_batch()) == 64
    for wrong in (0, -8, 12):
        with pytest.raises(ValueError, match="positive multiple of gen_batch_size"):
            trainer._next_train_batch(wrong)


@pytest.mark.parametrize(("batches", "restored", "missing"), [(1.5, 0, 96), (1.3, 0, 80), (1.5, 40, 56), (1, 64, 0)])
@pytest.mark.parametrize(("kind", "mode"), EACH)
def test_the_first_batches_are_filled_up_by_whole_fetches(
    kind: str, mode: str, batches: float, restored: int, missing: int, store: Prompts
):
    trainer = made(kind, mode)
    trainer._restored_tq_prompt_count = restored
    trainer._add_async_warmup_batches(batches)
    assert sum(map(len, trainer.submitted)) == missing


@pytest.mark.parametrize(("kind", "mode"), EACH)
def test_only_prompts_in_flight_are_made_again_and_under_the_resumed_step(kind: str, mode: str, store: Prompts):
    store.put("waiting", "pending", at=2, rewards=())
    store.put("half", "running", at=3, rewards=(0.0, 0.0))
    ended = [*store.put("finished", at=1), *store.put("failed", "failure", at=1)]
    trainer = made(kind, mode)
    assert trainer._reissue_inflight_prompts() == 2
    assert [sorted(batch["uid"]) for batch in trainer.submitted] == [["half", "waiting"]]
    tags = store.tags["train"]
    assert tags.keys() == {"waiting", "half", "finished", "failed", *ended}
    assert tags["half"] == tags["waiting"] == {"is_prompt": True, "status": "pending", "global_steps": 5}
    assert tags["finished"]["global_steps"] == 1
    assert tu.get(trainer.submitted[0], "global_steps") == 5


@pytest.mark.parametrize(("kind", "mode"), EACH)
def test_without_prompts_in_flight_nothing_is_made_again(kind: str, mode: str, store: Prompts):
    trainer = made(kind, mode)
    assert trainer._reissue_inflight_prompts() == 0
    store.put("finished")
    assert trainer._reissue_inflight_prompts() == 0
    assert trainer.submitted == []


@pytest.mark.parametrize("mode", MODES)
def test_a_collector_that_submits_prompts_itself_gets_none_from_verl(mode: str, store: Prompts):
    store.put("half", "running")
    trainer = made("signal", mode)
    trainer.collector = SimpleNamespace(submits_prompts=True)
    trainer._restored_tq_prompt_count = 0
    trainer._add_async_warmup_batches(1.5)
    assert (trainer._reissue_inflight_prompts(), trainer.submitted) == (0, [])


# ------------------------------ the replay buffer ------------------------------


@pytest.fixture(params=["verl", "ours"])
def buffers(request: pytest.FixtureRequest) -> Buffers:
    """Makes buffers as an asynchronous trainer has them."""
    is_ours = request.param == "ours"
    return Buffers(ReplayBufferAsync, is_ours, trainer_mode="colocate_async", max_off_policy_threshold=2)


def test_what_is_too_old_is_replaced_by_as_many(buffers: Buffers, store: Prompts):
    store.put("old", at=-1)
    store.put("fresh", at=0)
    refill = Refill(store)
    found, metrics = _sample(buffers(refill_fn=refill), 2)
    assert (found, refill.calls) == ({"fresh", "refill0"}, [1])
    assert metrics["training/off_policy/evicted_samples"] == 1


def test_with_wait_nothing_is_dropped_and_what_gets_old_is_waited_for(buffers: Buffers, store: Prompts):
    store.put("old", at=-1)
    store.put("fresh", at=1)
    store.put("late", "running", at=0)
    with _sampling(buffers(max_off_policy_strategy="wait"), 2) as results:
        time.sleep(0.1)
        assert not results
        store.put("late", at=0)
    assert results[0][0] == {"old", "late"}


def test_a_fresh_prompt_in_flight_is_not_waited_for(buffers: Buffers, store: Prompts):
    store.put("fresh", at=1)
    store.put("running", "running", at=1)
    assert _sample(buffers(max_off_policy_strategy="wait"), 1)[0] == {"fresh"}


def test_failed_groups_are_replaced_by_as_many_in_every_case(buffers: Buffers, store: Prompts):
    store.put("finished", at=1)
    store.put("failed", "failure", at=1)
    store.put("empty", "failure", at=1, rewards=())
    refill = Refill(store)
    found, metrics = _sample(buffers(refill_fn=refill), 3)
    assert (found, refill.calls) == ({"finished", "refill0", "refill1"}, [2])
    assert metrics["training/rollout_failure/evicted_samples"] == 2


def test_a_group_with_several_reasons_is_replaced_once(buffers: Buffers, store: Prompts):
    store.put("old and equal", at=-1, rewards=(0.0, 0.0))
    refill = Refill(store)
    found, _ = _sample(buffers(refill_fn=refill, filter_groups_metric="acc"), 1)
    assert (found, refill.calls) == ({"refill0"}, [1])


def test_surplus_is_handed_out_batch_by_batch_and_once(buffers: Buffers, store: Prompts):
    for number in range(5):
        store.put(f"p{number}", at=1)
    buffer = buffers()
    first, second = _sample(buffer, 2)[0], _sample(buffer, 2)[0]
    assert len(first | second) == 4
    assert _sample(buffer, 1)[0].isdisjoint(first | second)


def test_counting_what_is_ready_takes_nothing(buffers: Buffers, store: Prompts):
    store.put("old", at=-1)
    store.put("fresh", at=1)
    buffer = buffers()
    assert [buffer.get_sampleable_count(1, "train") for _ in range(2)] == [1, 1]
    assert buffer.wait_for_sampleable(1, "train", 1)[0] == {"fresh"}
    assert _sample(buffer, 1)[0] == {"fresh"}


# ------------------------------ devices that are lent to generation ------------------------------


class Recorded:
    """Engines or their weights; records what is asked of them."""

    def __init__(self, name: str, events: list[str]) -> None:
        self._name, self._events = name, events

    def __getattr__(self, asked: str) -> Callable[..., dict[str, Any]]:
        def record(*_: Any, **__: Any) -> dict[str, Any]:
            self._events.append(f"{self._name} {asked}")
            return {}

        return record


def lending(kind: str, folder: Path, ready: int = 0, *, is_last: bool = False) -> Any:
    """A trainer of separate_async that trains now, with a number of groups in its buffer."""
    trainer = made(kind, "separate_async", folder)
    trainer.parameter_sync_step, trainer.timing_raw, trainer.events = 4, {}, []
    trainer.total_training_steps = trainer.global_steps + (not is_last)
    trainer.hybrid_rollout_config = HybridRolloutSwitchConfig(
        enable_switch=True, switch_threshold_ratio=0.25, adaptive_switch_threshold=False
    )
    trainer.replay_buffer = SimpleNamespace(
        poll_interval=1.0,
        get_sampleable_count=lambda *_: ready,
        wait_for_sampleable=lambda _, __, count: trainer.events.append(f"waits for {count}") or (set(), {"evicted": 3}),
    )
    trainer.config.actor_rollout_ref.rollout.update({"nnodes": 1, "n_gpus_per_node": 8})
    trainer._init_hybrid_rollout_state()
    trainer.current_mode, trainer._enable_hybrid_replicas = HybridEngineMode.TRAINER, True
    trainer.prev_step_profile, trainer._step_batch, trainer._served_metrics = False, None, {}
    trainer._step_wait_samples, trainer._step_sample_wait_seconds = 0, 0.0
    trainer.checkpoint_manager = Recorded("lent", trainer.events)
    trainer.standalone_checkpoint_manager = Recorded("own", trainer.events)
    trainer.add_replicas_to_balancer = lambda: trainer.events.append("added")
    trainer.remove_replicas_from_balancer = lambda: trainer.events.append("removed")
    trainer.clear_sticky_cache = lambda: {}
    return trainer


@pytest.mark.parametrize("kind", KINDS)
def test_devices_are_lent_after_an_update_and_taken_back_once(kind: str, tmp_path: Path):
    trainer = lending(kind, tmp_path)
    trainer.on_step_end()
    assert trainer.current_mode == HybridEngineMode.ROLLOUT
    lent = ["added", "own update_weights", "lent update_weights", "lent resume_generation_replicas"]
    assert trainer.events == lent
    trainer._add_batch_to_generate = lambda: None
    trainer.on_step_begin()
    assert trainer.prepare_step() == {"evicted": 3}
    back = ["waits for 16", "removed", "lent abort_replicas", "lent sleep_replicas"]
    assert (trainer.current_mode, trainer.events) == (HybridEngineMode.TRAINER, lent + back)
    for _ in range(3):
        trainer.on_sample_begin()
        trainer.on_sample_end()
    assert trainer.prepare_step() == {}
    assert trainer.events == lent + back


@pytest.mark.parametrize("kind", KINDS)
def test_devices_are_not_lent_where_enough_is_ready_or_nothing_follows(kind: str, tmp_path: Path):
    for trainer in (lending(kind, tmp_path, ready=16), lending(kind, tmp_path, is_last=True)):
        trainer.on_step_end()
        assert (trainer.current_mode, trainer.events) == (HybridEngineMode.TRAINER, ["own update_weights"])
