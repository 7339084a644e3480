"""verl's trainers composed of parts: a collector, selectors and observers (see `parts.py`).

verl's own step runs unchanged and calls the seams: the collector is behind `replay_buffer.sample`, the
engine guard follows `_compute_old_log_prob`, the selectors are within `_update_actor`, the observers after the step.
"""

import contextlib
import copy
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import get_trainer_cls
from verl.utils.debug import marked_timer

from verl_ext.cluster import nodes as cluster
from verl_ext.core import garbage
from verl_ext.run.run_totals import RunTotals
from verl_ext.serving import data_plane, replica
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.engine_guard import EarlierWeights, check_engine
from verl_ext.serving.settings import read_guards
from verl_ext.serving.watchdog import EngineWatchdog
from verl_ext.trainer import checkpointing, loading
from verl_ext.trainer.parts import Collector, Observer, Part, Selector
from verl_ext.trainer.recorded import RecordedTrainer
from verl_ext.trainer.rollout_texts import RolloutRecorder
from verl_ext.trainer.verl_collector import CollectedBuffer, VerlCollector
from verl_ext.trainer.watchdogs import start_watchdogs
from verl_ext.trainer.workers import replace_workers

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self.llm_server_manager": "verl.workers.rollout.llm_server.LLMServerManager",
    "self.actor_rollout_wg": "verl.single_controller.ray.base.RayWorkerGroup",
}

# Timer of a collector's waiting, renamed at the end of the step.
_WAITING = "waiting_for_rollouts"


class SignalTrainer(RecordedTrainer):
    """A verl trainer composed of parts, with a metrics stream in the run folder, an engine guard and a watchdog.

    Use `in_mode(…)` to run it, which extends verl's trainer of that mode.

    Args:
        config: verl's configuration with `run_dir`, `engine_guard` and `watchdog`.

    Attributes:
        verl_mode: Mode of the underlying verl trainer, as in `trainer.v1.trainer_mode`.
        collector: Chooses the rollouts to train on.
        selectors: Choose those that the update uses, in order.
        observers: Observe the new weights.
        parts: All of them by the dotted paths of their classes; none before `build_parts`.
    """

    verl_mode: ClassVar[str]
    collector: Collector
    selectors: list[Selector]
    observers: list[Observer]
    parts: Mapping[str, Part] = MappingProxyType({})
    # Only where the actor's workers can keep copies of their weights.
    _earlier_weights: EarlierWeights | None = None

    def __init__(self, config: DictConfig) -> None:
        with open_dict(config):
            # verl's classes read it, and `verl_ext.launch.runner` has put our own name there.
            config.trainer.v1.trainer_mode = self.verl_mode
        if config.trainer.device != "cpu":  # the CPU backend registers its own
            replica.register()
        super().__init__(config)
        # Not in `_build_replay_buffer`, so that verl's own buffer, or the user's, stays accessible.
        self.replay_buffer = CollectedBuffer(self.replay_buffer, self._collect)
        self.watchdog: EngineWatchdog | None = None
        self._version_sent = 0
        self._served_metrics: dict[str, Any] = {}
        self.build_parts()

    @classmethod
    def in_mode(cls, mode: str) -> type["SignalTrainer"]:
        """This trainer on top of verl's trainer of a mode.

        Args:
            mode: sync, or another mode in verl's registry of trainers.
        """
        base = get_trainer_cls(mode)
        name = f"{cls.__name__}Over{base.__name__}"
        return type(name, (cls, base), {"verl_mode": mode, "__module__": cls.__module__})

    # ------------------------------ parts ------------------------------

    def build_parts(self) -> None:
        """Create all parts again, empty: the recipe's own, then those that the configuration names."""
        self.collector = self.new_collector()
        self.selectors = [*self.new_selectors(), *(c(self) for c in loading.configured_selectors(self.config))]
        self.observers = [*self.new_observers(), *(c(self) for c in loading.configured_observers(self.config))]
        self.observers.append(RolloutRecorder(self))
        self.parts = loading.by_name([self.collector, *self.selectors, *self.observers])

    def new_collector(self) -> Collector:
        """Override for the recipe's own collector."""
        return VerlCollector(self)

    def new_selectors(self) -> list[Selector]:
        """Override for the recipe's own selectors; `self.collector` exists."""
        return []

    def new_observers(self) -> list[Observer]:
        """Override for the recipe's own observers."""
        return []

    # ------------------------------ interface for parts ------------------------------

    @property
    def weight_version(self) -> int:
        """The step whose weights the engines serve now."""
        # verl counts the current step, and sends the weights at its end.
        return max(self.global_steps - 1, self._version_sent)

    def timed(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Add the seconds within to `timing_s/{name}`."""
        return marked_timer(name, self.timing_raw)

    def waiting_for_rollouts(self) -> contextlib.AbstractContextManager[None]:
        """Add the seconds within to `timing_s/gen`."""
        return self.timed(_WAITING)

    def fetch_prompts(self) -> TensorDict:
        """The next rows of verl's loader, each with a new `uid`: `data.gen_batch_size`, one in asynchronous modes."""
        return self._fetch_one_gen_batch()

    def save_unfinished_step(self) -> None:
        """Checkpoint between two steps, with the weights of the previous step."""
        self.global_steps -= 1
        try:
            self._save_checkpoint()
        finally:
            self.global_steps += 1

    # ------------------------------ one step ------------------------------

    def prepare_step(self) -> dict[str, Any]:
        # verl submits one training batch of prompts here.
        return {} if self.collector.submits_prompts else super().prepare_step()

    def _add_async_warmup_batches(self, num_warmup_batches: float) -> None:
        # And additional ones before the first step.
        if not self.collector.submits_prompts:
            super()._add_async_warmup_batches(num_warmup_batches)

    def _reissue_inflight_prompts(self, partition_id: str = data_plane.TRAIN) -> int:
        # And again those in flight when a checkpoint was written.
        return 0 if self.collector.submits_prompts else super()._reissue_inflight_prompts(partition_id)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        batch = super().step(metrics, timing_raw)
        # Counted here, not in `_compute_metrics`: the checkpoint of this step is written before that.
        self.collector.count(batch, metrics, self.totals)
        return batch

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        """verl's step, then the observers; verl's timer `gen` covers everything while the engines are awake."""
        waited = timing_raw.pop("gen", 0.0)
        batch = super()._step_once(metrics, timing_raw, sample_batch_size)
        timing_raw["collect"] = timing_raw.get("collect", 0.0) + timing_raw["gen"]
        timing_raw["gen"] = waited + timing_raw.pop(_WAITING, 0.0)
        with self.timed("after_update"):
            for observer in self.observers:
                observer.observe(batch)
        for part in self.parts.values():
            metrics.update(part.metrics())
        self._step_batch = batch
        return batch

    def on_step_end(self) -> None:
        self._version_sent = self.global_steps  # rollouts of these weights may come before the call returns
        super().on_step_end()  # sends the weights
        for observer in self.observers:
            self._served_metrics |= observer.observe_served(self._step_batch)

    def _consume_sync_metrics(self) -> dict[str, Any]:
        metrics, self._served_metrics = super()._consume_sync_metrics() | self._served_metrics, {}
        return metrics

    def _collect(self, num_prompts: int) -> KVBatchMeta:
        """Called by `replay_buffer.sample`, between `on_sample_begin` and `on_sample_end`."""
        with self.status.counting(self.collector.progress):
            batch = self.collector.collect(num_prompts)
        for part in self.parts.values():
            part.generate()
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        guard = read_guards(self.config).engine_guard
        if guard.max_probs_diff is None:
            return super()._compute_old_log_prob(batch, metrics=metrics)
        version, earlier = self.weight_version, {}
        # At later updates of a step the actor has other weights than the engines were sent.
        if self._earlier_weights is not None and self.local_trigger_step == 0:
            with self._timed_within("engine_guard", outer="old_log_prob"):
                earlier = self._earlier_weights.check(batch, version, guard.max_probs_diff, guard.max_unchecked_steps)
        batch = super()._compute_old_log_prob(batch, metrics=metrics)
        with self._timed_within("engine_guard", outer="old_log_prob"):
            metrics.update(check_engine(batch, version, guard.max_probs_diff) | earlier)
        return batch

    def _compute_log_prob_of_rows(self, rows: KVBatchMeta) -> None:
        # At a step's first update: verl then also keeps the weights, which its own call for the whole batch replaces.
        super()._compute_old_log_prob(rows, metrics={})

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_ref_log_prob(batch, metrics=metrics)
        # The reference is the actor without its adapter; verl would use the critic without its own as well, or fail.
        batch.extra_info.pop("no_lora_adapter", None)
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        for part in self.parts.values():
            part.before_advantages(batch)
        return super()._compute_advantage(batch, metrics=metrics)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """verl's update on the selected rows; afterwards selectors undo their changes, and unselected rows are
        freed."""
        chosen, asked, updates = batch, list[Selector](), True
        with self._timed_within("select", outer="update_actor"):
            for selector in self.selectors:
                selected = selector.select(chosen)
                asked.append(selector)
                if selected is None:
                    updates = False
                    break
                chosen = selected
        if updates:
            chosen = super()._update_actor(chosen, metrics=metrics)
        with self._timed_within("after_update", outer="update_actor"):
            for selector in reversed(asked):
                selector.after_update(chosen)
            data_plane.clear(sorted(set(batch.keys) - set(chosen.keys)), batch.partition_id)
        return chosen

    @contextlib.contextmanager
    def _timed_within(self, name: str, outer: str) -> Iterator[None]:
        """A timer inside one of verl's, whose seconds are not counted in verl's."""
        began = time.perf_counter()
        with self.timed(name):
            yield
        self.timing_raw[outer] = self.timing_raw.get(outer, 0.0) - (time.perf_counter() - began)

    # ------------------------------ set-up ------------------------------

    @property
    def _keeps_weights(self) -> bool:
        """Whether all rollouts of a batch may be older than the actor, whose earlier weights the guard then needs."""
        # verl cannot copy torchtitan's.
        return self.verl_mode != "sync" and self.config.actor_rollout_ref.actor.strategy != "torchtitan"

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        replace_workers(
            self.role_worker_mapping,
            list(self.parts.values()),
            self.config.trainer.device,
            keep_weights=self._keeps_weights,
        )

    def _init_dataloader(self) -> None:
        gen_batch_size = self.config.data.gen_batch_size
        super()._init_dataloader()
        if self.parts and self.collector.submits_prompts:  # verl fetches them one by one if it is asynchronous
            self.config.data.gen_batch_size = gen_batch_size
        for part in self.parts.values():
            part.set_up_data()

    def _build_replay_buffer(self) -> ReplayBuffer:
        buffer = super()._build_replay_buffer()
        if hasattr(buffer, "poll_interval"):  # which a user's sampler may lack
            buffer.poll_interval = self.config.trainer.v1.sampler.get("poll_interval_s", buffer.poll_interval)
        return buffer

    def on_init_end(self) -> None:
        if self._keeps_weights:
            self._earlier_weights = EarlierWeights(self.actor_rollout_wg, self._compute_log_prob_of_rows)
        for part in self.parts.values():
            part.set_up_workers()
        self.watchdog, self.node_watchdog = start_watchdogs(
            [replica for manager in self._rollout_server_managers() for replica in manager.get_replicas()],
            self.actor_rollout_wg.workers,
            read_guards(self.config).watchdog,
            self.run_folder.engine_ledger,
        )
        super().on_init_end()

    def fit(self, agent_loop_manager: Any) -> None:
        cluster.record_processes(self.run_folder.engine_ledger)  # again: the agent loop workers are new
        self.metrics_stream.resume_after(self.global_steps)
        garbage.exempt_start_up()
        super().fit(agent_loop_manager)
        for part in self.parts.values():
            part.end()
        self.node_watchdog.stop()
        if self.watchdog is not None:
            self.watchdog.stop()
        self.write_summary()

    def summary(self) -> dict[str, Any]:
        """verl's metrics plus those of the parts."""
        return super().summary() | {
            name: value for part in self.parts.values() for name, value in part.summary().items()
        }

    # ------------------------------ checkpoints ------------------------------

    def signal_state(self) -> dict[str, Any]:
        """State saved in checkpoints; must be JSON-serialisable. Extend, do not replace."""
        totals = copy.deepcopy(self.totals)
        # A checkpoint is written in the middle of its step: count the finished part of the step.
        seconds = {("gen" if name == _WAITING else name): value for name, value in self.timing_raw.items()}
        totals.add_step(seconds | {"step": time.perf_counter() - self._step_began})
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        return {"totals": totals.state_dict(), "val_accuracy_before": self.val_accuracy_before, "parts": parts}

    def load_signal_state(self, state: dict[str, Any]) -> None:
        """Restore what `signal_state` returned; the data plane is already restored. A new part starts empty."""
        self.totals = RunTotals.from_state(state["totals"])
        self.val_accuracy_before = state["val_accuracy_before"]
        for name, part in self.parts.items():
            if name in state["parts"]:
                part.load_state_dict(state["parts"][name])

    def _save_checkpoint(self) -> None:
        with contextlib.ExitStack() as resting:
            for part in self.parts.values():
                resting.enter_context(part.at_rest())
                part.before_checkpoint()
            checkpointing.save(self, self.signal_state(), super()._save_checkpoint, go_on=resting.close)

    def _load_checkpoint(self) -> None:
        # Damaged ones were moved away: `prepare_resume` checked before Ray was started.
        super()._load_checkpoint()
        state = checkpointing.load(self)
        if state is not None:
            self.load_signal_state(state)
