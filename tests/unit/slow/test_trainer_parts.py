"""A step made of parts: verl's own sequence with ours in it, in this order, whatever the parts are."""

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from verl_ext.core.errors import ConfigError
from verl_ext.run.run_totals import RunTotals
from verl_ext.run.status import StatusFile
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.trainer import loading, trainer
from verl_ext.trainer.parts import Collector, Observer, Part, Selector
from verl_ext.trainer.trainer import SignalTrainer
from verl_ext.trainer.verl_collector import CollectedBuffer, VerlCollector

VERLS_PHASES = ("balance_batch", "compute_old_log_prob", "compute_ref_log_prob", "compute_values", "compute_advantage")
UPDATES = ("update_critic", "update_actor")


class Recorder(Part):
    """Records its calls in `calls`."""

    def __init__(self, host: Any, name: str = "") -> None:
        self.host = host
        self.name = name or type(self).__name__.lower()
        self.state = {"seen": 0}

    def say(self, what: str) -> None:
        self.host.calls.append(f"{self.name}: {what}")

    def generate(self) -> None:
        self.say("generate")

    def before_advantages(self, batch: KVBatchMeta) -> None:
        self.say(f"before_advantages of {' '.join(batch.keys)}")

    def metrics(self) -> dict[str, Any]:
        return {f"{self.name}/metric": 1.0}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


class Collecting(Recorder, Collector):
    batches = (["a", "b"], ["c", "d"])

    def collect(self, num_prompts: int) -> KVBatchMeta:
        self.say(f"collect {num_prompts}")
        with self.host.waiting_for_rollouts():
            time.sleep(0.02)
        keys = self.batches[self.host.local_trigger_step]
        return KVBatchMeta(partition_id="train", keys=keys, tags=[{}, {}])

    def count(self, batch: KVBatchMeta, metrics: dict[str, Any], totals: RunTotals) -> None:
        totals.rollouts_trained += len(batch.keys)


class All(Recorder, Selector):
    def select(self, batch: KVBatchMeta) -> KVBatchMeta | None:
        self.say("select")
        return batch

    def after_update(self, batch: KVBatchMeta) -> None:
        self.say(f"after_update of {' '.join(batch.keys)}")


class First(All):
    def select(self, batch: KVBatchMeta) -> KVBatchMeta | None:
        super().select(batch)
        time.sleep(0.03)
        return data_plane.select_rows(batch, [0])


class Nothing(All):
    def select(self, batch: KVBatchMeta) -> KVBatchMeta | None:
        super().select(batch)
        return None


class Look(Recorder, Observer):
    def observe(self, batch: KVBatchMeta) -> None:
        self.say(f"observe {' '.join(batch.keys)}")

    def observe_served(self, batch: KVBatchMeta) -> dict[str, Any]:
        self.say(f"observe_served {' '.join(batch.keys)}")
        return {"look/served": 1.0}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A trainer whose calls to verl and to the data plane are only recorded."""
    host = object.__new__(SignalTrainer.in_mode("sync"))
    host.calls = []
    host.config = OmegaConf.create(
        {
            "trainer": {"critic_warmup": 0},
            "actor_rollout_ref": {"rollout": {"temperature": 1.0}},
            "engine_guard": {"max_probs_diff": 0.1},
            "data": {"train_batch_size": 2},
        }
    )
    host.global_steps, host.timing_raw, host.totals, host._served_metrics = 1, {}, RunTotals(), {}
    host._version_sent, host.status = 0, StatusFile(tmp_path / "status.json")
    host.use_reference_policy = host.use_critic = True
    host.parameter_sync_step, host.val_accuracy_before, host._step_began = 1, None, time.perf_counter()
    host.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
    host.replay_buffer = CollectedBuffer(SimpleNamespace(sample=lambda **_: "verl's"), host._collect)

    def phase(name: str) -> Any:
        def record(self: Any, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
            host.calls.append(f"verl: {name} {' '.join(batch.keys)}" if name in UPDATES else f"verl: {name}")
            time.sleep(0.01)
            return batch

        return record

    for name in VERLS_PHASES + UPDATES:
        monkeypatch.setattr(PPOTrainer, f"_{name}", phase(name))
    monkeypatch.setattr(PPOTrainerSync, "on_sample_begin", lambda self: host.calls.append("engines: awake"))
    monkeypatch.setattr(PPOTrainerSync, "on_sample_end", lambda self: host.calls.append("engines: asleep"))
    monkeypatch.setattr(trainer, "check_engine", lambda *_: host.calls.append("guard") or {"engine_guard/x": 0.0})
    monkeypatch.setattr(data_plane, "clear", lambda keys, _: host.calls.extend(f"clear {key}" for key in keys))
    return host


def _join(host: Any, *selectors: Recorder) -> None:
    host.collector, host.selectors, host.observers = Collecting(host), list(selectors), [Look(host)]
    host.parts = {part.name: part for part in (host.collector, *selectors, *host.observers)}


def test_the_parts_have_their_say_within_verls_own_step(host: Any):
    _join(host, All(host), First(host))
    metrics: dict[str, Any] = {}
    batch = host.step(metrics, host.timing_raw)
    assert host.calls == [
        "engines: awake",
        "collecting: collect 2",
        *(f"{name}: generate" for name in ("collecting", "all", "first", "look")),
        "engines: asleep",
        "verl: balance_batch",
        "verl: compute_old_log_prob",
        "guard",
        "verl: compute_ref_log_prob",
        "verl: compute_values",
        *(f"{name}: before_advantages of a b" for name in ("collecting", "all", "first", "look")),
        "verl: compute_advantage",
        "verl: update_critic a b",
        "all: select",
        "first: select",
        "verl: update_actor a",
        "first: after_update of a",
        "all: after_update of a",
        "clear b",
        "look: observe a",
    ]
    assert batch.keys == ["a"]
    assert set(metrics) == {"engine_guard/x", *(f"{name}/metric" for name in host.parts)}
    assert host.totals.rollouts_trained == 1
    assert host.status.read()["doing"] == "updating the actor"


def test_the_critic_is_not_told_to_take_off_an_adapter(host: Any, monkeypatch: pytest.MonkeyPatch):
    found = []

    def marks(self: Any, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch.extra_info["no_lora_adapter"] = True  # as verl's does if the reference is the actor
        return batch

    def critic(self: Any, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        found.append(dict(batch.extra_info))
        return batch

    monkeypatch.setattr(PPOTrainer, "_compute_ref_log_prob", marks)
    monkeypatch.setattr(PPOTrainer, "_compute_values", critic)
    _join(host)
    host.step({}, host.timing_raw)
    assert found == [{"temperature": 1.0}]


def test_a_critics_warm_up_asks_no_selector_and_every_observer(host: Any):
    host.config.trainer.critic_warmup = 5
    _join(host, All(host))
    host.step({}, host.timing_raw)
    assert host.calls[-2:] == ["verl: update_critic a b", "look: observe a b"]
    assert not {"select", "update_actor"} & host.timing_raw.keys()


def test_observers_look_again_once_the_engines_have_the_weights(host: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PPOTrainerSync, "on_step_end", lambda self: host.calls.append("engines: new weights"))
    _join(host, First(host))
    host.step({}, host.timing_raw)
    host.on_step_end()
    assert host.calls[-2:] == ["engines: new weights", "look: observe_served a"]
    assert host._consume_sync_metrics() == {"look/served": 1.0}
    assert host._consume_sync_metrics() == {}


def test_a_selector_may_call_the_update_off(host: Any):
    _join(host, All(host), Nothing(host), First(host))
    batch = host.step({}, host.timing_raw)
    assert batch.keys == ["a", "b"]
    after_critic = host.calls[host.calls.index("verl: update_critic a b") + 1 :]
    assert after_critic == [
        "all: select",
        "nothing: select",
        "nothing: after_update of a b",
        "all: after_update of a b",
        "look: observe a b",
    ]


@pytest.mark.parametrize("num_updates", [1, 2])
def test_a_timer_within_verls_does_not_count_for_verls(host: Any, num_updates: int):
    _join(host, First(host))
    host.collector.generate = lambda: time.sleep(0.03)
    host.parameter_sync_step = num_updates
    host.step({}, host.timing_raw)
    timing = {name: seconds / num_updates for name, seconds in host.timing_raw.items()}
    # Only waiting for rollouts; then everything while the engines are awake.
    assert 0.02 <= timing["gen"] < timing["collect"] - 0.029
    assert timing["select"] >= 0.03
    assert timing["collect"] >= 0.05
    # The update's own 10 ms: a busy machine may take longer, but the selector's 30 ms are never taken off it.
    assert timing["update_actor"] >= 0.01
    assert "waiting_for_rollouts" not in timing


def test_seconds_within_verls_timer_are_taken_off(host: Any, monkeypatch: pytest.MonkeyPatch):
    clock = iter([10.0, 13.0])
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    host.timing_raw["outer"] = 5.0
    with host._timed_within("inner", "outer"):
        pass
    assert host.timing_raw["outer"] == 2.0
    assert host.timing_raw["inner"] >= 0


def test_a_part_without_a_constructor_knows_its_trainer(host: Any):
    class Bare(Selector):
        def select(self, batch: KVBatchMeta) -> KVBatchMeta | None:
            return batch

    bare = Bare(host)
    assert bare.trainer is host
    assert bare.metrics() == bare.state_dict() == bare.summary() == {}


def test_validation_samples_come_from_verls_buffer(host: Any):
    assert host.replay_buffer.sample(global_steps=1, partition_id="val", batch_size=3) == "verl's"
    assert host.calls == []


def test_the_state_of_every_part_travels_and_a_new_part_begins_anew(host: Any):
    _join(host, All(host))
    host.timing_raw = {"waiting_for_rollouts": 2.0}
    host.parts["all"].state = {"seen": 3}
    state = host.signal_state()
    assert state["totals"]["seconds_by_phase"]["gen"] == 2.0
    _join(host, All(host), First(host))
    host.load_signal_state(state)
    assert [part.state["seen"] for part in host.selectors] == [3, 0]


def test_verls_collector_counts_what_dynamic_sampling_threw_away():
    config = OmegaConf.create({"data": {"train_batch_size": 2}, "actor_rollout_ref": {"rollout": {"n": 4}}})
    tags = [{"response_len": 10}] * 8 + [{"response_len": 1, "is_padding": True}]
    batch = KVBatchMeta(partition_id="train", keys=[f"uid_{number}_0" for number in range(9)], tags=tags)
    totals = RunTotals()
    collector = VerlCollector(SimpleNamespace(config=config))
    collector.count(batch, {"training/filter_groups/evicted_samples": 1}, totals)
    assert (totals.rollouts_trained, totals.rollouts_generated) == (8, 12)
    assert (totals.tokens_trained, totals.tokens_generated) == (80, 120)


def test_verls_collector_says_how_many_prompts_are_done():
    finished = {data_plane.TRAIN: {"a", "b"}, "val": {"c"}}
    counts = []

    def sample(batch_size: int, **_: Any) -> tuple[KVBatchMeta, dict[str, Any]]:
        counts.append(collector.progress())
        finished[data_plane.TRAIN].clear()  # as verl's buffer does before it reads them again
        counts.append(collector.progress())
        finished[data_plane.TRAIN] |= set("abcdef")
        counts.append(collector.progress())
        return KVBatchMeta(partition_id=data_plane.TRAIN, keys=[], tags=[]), {}

    buffer = SimpleNamespace(sample=sample, finished_keys=finished)
    trainer = SimpleNamespace(
        replay_buffer=SimpleNamespace(verl=buffer), global_steps=1, waiting_for_rollouts=contextlib.nullcontext
    )
    collector = VerlCollector(trainer)  # pyright: ignore[reportArgumentType]
    collector.collect(4)
    assert counts == [(2, 4), (2, 4), (4, 4)]
    del buffer.finished_keys
    assert collector.progress() is None


def test_several_outputs_of_a_session_count_as_one_rollout():
    config = OmegaConf.create({"data": {"train_batch_size": 2}, "actor_rollout_ref": {"rollout": {"n": 4}}})
    keys = [f"uid_{session}_{number}" for session in range(3) for number in range(1 + session)]
    batch = KVBatchMeta(partition_id="train", keys=keys, tags=[{"response_len": 10}] * 6)
    totals = RunTotals()
    VerlCollector(SimpleNamespace(config=config)).count(batch, {}, totals)
    assert (totals.rollouts_trained, totals.rollouts_generated, totals.tokens_trained) == (3, 3, 60)


# ------------------------------ parts of a configuration ------------------------------

HERE = f"{__name__}.First"


def _config(**nodes: Any) -> Any:
    return OmegaConf.create(nodes)


def test_selectors_of_a_list_come_before_those_of_nodes():
    config = _config(selectors=[HERE], mine={"enable": True, "part": f"{__name__}.All"})
    assert loading.configured_selectors(config) == [First, All]
    config.mine.enable = False
    assert loading.configured_selectors(config) == [First]
    assert loading.configured_selectors(_config()) == loading.configured_observers(_config()) == []


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("selectors", HERE, r"must be a list of classes.*selectors=\["),
        ("selectors", ["First"], "package.module.Class"),
        ("selectors", ["no_such_package.First"], "cannot be imported.*PYTHONPATH"),
        ("selectors", [f"{__name__}.Last"], f"{__name__} has no Last"),
        ("selectors", [f"{__name__}.Look"], "does not extend Selector"),
        ("observers", [HERE], "does not extend Observer"),
        ("selectors", [HERE, HERE], "more than once"),
    ],
)
def test_a_name_that_is_no_part_is_refused(setting: str, value: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        loading.check_named_parts(_config(**{setting: value}))


def test_a_part_joins_once(host: Any):
    with pytest.raises(ConfigError, match="is already part of this trainer"):
        loading.by_name([First(host), First(host)])


def test_one_worker_class_at_most(host: Any):
    one, same, other = All(host), First(host), Nothing(host)
    one.worker_class = same.worker_class = int
    assert loading.worker_class([one, same, other]) is int
    other.worker_class = str
    with pytest.raises(ConfigError, match=r"All \(int\).*Nothing \(str\)"):
        loading.worker_class([one, other])


def test_columns_of_rows_of_different_lengths():
    import torch

    columns = data_plane.as_columns({"a": [torch.ones(2), torch.ones(3)], "b": [torch.zeros(1), torch.zeros(1)]})
    assert columns.batch_size == (2,)
    assert [len(row) for row in columns["a"].unbind()] == [2, 3]
    with pytest.raises(ValueError, match="one tensor per row"):
        data_plane.as_columns({"a": [torch.ones(2)], "b": []})
