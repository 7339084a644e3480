"""verl's synchronous trainer with the seams that recipes fill.

`_step_once` is verl's own sequence with openings; a recipe overrides the openings and never copies the loop:

    collect_batch    which rollouts are trained on (verl: the next train_batch_size prompts)
    after_collect    what else is generated while the engines are awake
    select_samples   which of them stay, after the advantages are known (verl: all)
    update_actor     the policy's update
    after_update     what is to be seen of the new weights
    signal_state     what must travel with a checkpoint, with load_signal_state
"""

import contextlib
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.debug import marked_timer

from verl_ext import cluster
from verl_ext.checkpoints import RETENTION_KEYS, CheckpointFolder, num_to_keep
from verl_ext.cluster import NodeWatchdog
from verl_ext.cpu.watchdog import EngineWatchdog
from verl_ext.engine_guard import check_engine
from verl_ext.metrics_stream import MetricsStream
from verl_ext.run_folder import RunFolder
from verl_ext.run_totals import RunTotals
from verl_ext.trainer_metrics import validation_accuracy
from verl_ext.worker_death import find_death

STATE_FILE = "signal.json"
QUEUE_FOLDER = "transfer_queue"

# verl's counters of groups that its own dynamic sampling generated and threw away.
FILTERED_GROUPS = ("evicted_samples", "discarded_surplus_samples")


class SignalTrainer(PPOTrainerSync):
    """`PPOTrainerSync` with seams, a metrics stream in the run folder, an engine guard and a watchdog.

    Args:
        config: verl's configuration with `run_dir`, `engine_guard` and `watchdog`.
    """

    def __init__(self, config: DictConfig) -> None:
        with open_dict(config):
            # verl tells synchronous trainers by this name: with any other it takes the asynchronous replay buffer and
            # checkpoint paths.
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self.run_folder = RunFolder(Path(config.run_dir))
        self.metrics_stream = MetricsStream(self.run_folder.metrics)
        self.watchdog: EngineWatchdog | None = None
        self.val_accuracy_before: float | None = None
        self.val_accuracy: float | None = None
        self.totals = RunTotals()

    # ------------------------------ seams ------------------------------

    def collect_batch(self, metrics: dict[str, Any], num_prompts: int) -> KVBatchMeta:
        """The rollouts to train on; runs while the engines are awake."""
        with marked_timer("gen", self.timing_raw):
            batch, sampler_metrics = self.replay_buffer.sample(
                global_steps=self.global_steps, partition_id="train", batch_size=num_prompts
            )
        metrics.update(sampler_metrics)
        return batch

    def after_collect(self, metrics: dict[str, Any]) -> None:
        """Further generation of the step; the last moment at which the engines are awake."""

    def select_samples(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """The part of the batch that the actor's update sees; its advantages are in TransferQueue."""
        return batch

    def update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Update the policy on what was selected."""
        return self._update_actor(batch, metrics=metrics)

    def after_update(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> None:
        """Runs after the actor's update, before the new weights reach the engines."""

    def signal_state(self) -> dict[str, Any]:
        """State that travels with a checkpoint; must be JSON-able. Extend, do not replace."""
        totals = copy.deepcopy(self.totals)
        # A checkpoint is written in the middle of its step: count what of the step is over.
        totals.add_step({**self.timing_raw, "step": time.perf_counter() - self._step_began})
        return {"totals": totals.state_dict(), "val_accuracy_before": self.val_accuracy_before}

    def load_signal_state(self, state: dict[str, Any]) -> None:
        """Restore what `signal_state` gave; TransferQueue is restored already."""
        self.totals = RunTotals.from_state(state["totals"])
        self.val_accuracy_before = state["val_accuracy_before"]

    # ------------------------------ one step ------------------------------

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        batch = super().step(metrics, timing_raw)
        # Counted here, not in `_compute_metrics`: the checkpoint of this step is written in between.
        self.count_rollouts(batch, metrics)
        return batch

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._step_began = time.perf_counter()

    def count_rollouts(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> None:
        """Add the step's rollouts to `totals`; here every one that was generated, but for verl's filtered groups."""
        lengths = [tag["response_len"] for tag in batch.tags if not tag.get("is_padding", False)]
        filtered = sum(int(metrics.get(f"training/filter_groups/{name}", 0)) for name in FILTERED_GROUPS)
        self.totals.rollouts_trained += len(lengths)
        self.totals.tokens_trained += sum(lengths)
        self.totals.rollouts_generated += len(lengths) + filtered * self.config.actor_rollout_ref.rollout.n
        # verl keeps no lengths of the groups that it filters out: they count as average ones.
        self.totals.tokens_generated += round(sum(lengths) * (1 + filtered / self.config.data.train_batch_size))

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        """verl's `PPOTrainer._step_once` with the seams."""
        with marked_timer("collect", timing_raw, color="red"):
            self.on_sample_begin()
            batch = self.collect_batch(metrics, sample_batch_size)
            self.after_collect(metrics)
            batch.extra_info["temperature"] = self.config.actor_rollout_ref.rollout.temperature
            self.on_sample_end()

        if self.reward_loop_manager.reward_loop_worker_handles is None:
            with marked_timer("reward", timing_raw, color="yellow"):
                batch = self._compute_reward_colocate(batch, metrics=metrics)

        batch = self._balance_batch(batch, metrics=metrics)

        with marked_timer("old_log_prob", timing_raw, color="blue"):
            batch = self._compute_old_log_prob(batch, metrics=metrics)

        max_probs_diff = self.config.engine_guard.max_probs_diff
        if max_probs_diff is not None:
            with marked_timer("engine_guard", timing_raw):
                metrics.update(check_engine(batch, self.global_steps - 1, max_probs_diff))

        if self.use_reference_policy:
            with marked_timer("ref", timing_raw, color="olive"):
                batch = self._compute_ref_log_prob(batch, metrics=metrics)

        if self.use_critic:
            with marked_timer("values", timing_raw, color="cyan"):
                batch = self._compute_values(batch, metrics=metrics)

        with marked_timer("adv", timing_raw, color="brown"):
            batch = self._compute_advantage(batch, metrics=metrics)

        # Before the selection: every sample says something about values.
        if self.use_critic:
            with marked_timer("update_critic", timing_raw, color="pink"):
                batch = self._update_critic(batch, metrics=metrics)

        if self.config.trainer.critic_warmup <= self.global_steps:
            with marked_timer("select", timing_raw):
                batch = self.select_samples(batch, metrics)

            with marked_timer("update_actor", timing_raw, color="red"):
                batch = self.update_actor(batch, metrics)

        with marked_timer("after_update", timing_raw):
            self.after_update(batch, metrics)
        return batch

    # ------------------------------ set-up ------------------------------

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self.config.trainer.device == "cpu" and Role.Critic in self.role_worker_mapping:
            from verl_ext.cpu.engine import CPUTrainingWorker

            self.role_worker_mapping[Role.Critic] = ray.remote(CPUTrainingWorker)

    def _build_replay_buffer(self) -> ReplayBuffer:
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = self.config.trainer.v1.sampler.get("poll_interval_s", buffer.poll_interval)
        return buffer

    def on_init_end(self) -> None:
        # Before the first weight synchronisation: that is where a failing engine would hang the run.
        servers = [server for replica in self.llm_server_manager.get_replicas() for server in replica.servers]
        if servers and self.config.trainer.device == "cpu":
            watchdog = EngineWatchdog(servers, self.actor_rollout_wg.workers, **self.config.watchdog)
            watchdog.start()
            self.watchdog = watchdog
        self.node_watchdog = NodeWatchdog(
            cluster.record_processes(self.run_folder.engine_ledger),
            self.actor_rollout_wg.workers,
            self.config.watchdog.interval_s,
        )
        self.node_watchdog.start()
        super().on_init_end()

    def fit(self, agent_loop_manager: Any) -> None:
        cluster.record_processes(self.run_folder.engine_ledger)  # again: the agent loop workers are new
        self.metrics_stream.resume_after(self.global_steps)
        super().fit(agent_loop_manager)
        self.node_watchdog.stop()
        if self.watchdog is not None:
            self.watchdog.stop()
        self.write_summary()

    # ------------------------------ records ------------------------------

    def _validate(self) -> dict[str, float]:
        metrics = super()._validate()
        self.val_accuracy = validation_accuracy(metrics)
        if self.val_accuracy_before is None:
            self.val_accuracy_before = self.val_accuracy
        return metrics

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self.totals.add_step(timing_raw)
        metrics.update(self.totals.metrics())
        self.metrics_stream.append(metrics)

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers; recipes add theirs."""
        return {
            "val_accuracy_before": self.val_accuracy_before,
            "val_accuracy_after": self.val_accuracy,
            "global_steps": min(self.global_steps, self.total_training_steps),
            "total_training_steps": self.total_training_steps,
            "seconds": self.totals.seconds,
            "rollouts_generated": self.totals.rollouts_generated,
            "rollouts_trained": self.totals.rollouts_trained,
            "tokens_generated": self.totals.tokens_generated,
            "tokens_trained": self.totals.tokens_trained,
            "seconds_by_phase": self.totals.seconds_by_phase,
        }

    def write_summary(self) -> None:
        """Write `summary.json`."""
        self.run_folder.write_summary(self.summary())

    # ------------------------------ checkpoints ------------------------------

    def _save_checkpoint(self) -> None:
        """Write a whole checkpoint or none: all of it under a temporary name, then one rename and verl's tracker."""
        trainer = self.config.trainer
        checkpoints = CheckpointFolder(Path(trainer.default_local_dir))
        checkpoints.clear_unfinished()
        folder = checkpoints.saving / f"global_step_{self.global_steps}"
        callback, state = self.checkpoint_callback, json.dumps(self.signal_state())
        try:
            folder.mkdir(parents=True)
            tq.save_checkpoint(folder / QUEUE_FOLDER)
            (folder / STATE_FILE).write_text(state, encoding="utf-8")
            # verl's retention knows folders by the name that they were written under, and removes the weights only.
            own = {"default_local_dir": str(checkpoints.saving)} | dict.fromkeys(RETENTION_KEYS)
            self.checkpoint_callback = CheckpointCallback()
            with _changed(trainer, own):
                super()._save_checkpoint()
            published = checkpoints.publish(self.global_steps, num_to_keep(trainer))
        # torch reports a full disk as a RuntimeError, and Ray whatever happens in a worker as an error of its own.
        except (OSError, RuntimeError, ray.exceptions.RayTaskError) as error:
            if find_death(error) is not None:  # no fault of the disk: the runner names the worker
                raise
            raise checkpoints.explain_failed_save(self.global_steps, error) from error
        finally:
            self.checkpoint_callback = callback
        callback.on_save(trainer=self, global_step=self.global_steps, checkpoint_dir=str(published), async_save=False)

    def _load_checkpoint(self) -> None:
        # Damaged ones are out of the way: `prepare_resume` looked before Ray was started.
        super()._load_checkpoint()
        if self.global_steps == 0 and self.config.trainer.resume_mode == "disable":
            return
        folder = self._resumed_folder()
        if folder is None or not (folder / STATE_FILE).exists():
            return
        if (folder / QUEUE_FOLDER).exists():
            tq.load_checkpoint(folder / QUEUE_FOLDER)
        self.load_signal_state(json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))

    def _resumed_folder(self) -> Path | None:
        if self.config.trainer.resume_mode == "resume_path":
            return Path(self.config.trainer.resume_from_path)
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        return folder if folder.exists() else None


@contextlib.contextmanager
def _changed(config: DictConfig, values: dict[str, Any]) -> Iterator[None]:
    before = {name: config.get(name) for name in values}
    with open_dict(config):
        config.update(values)
        try:
            yield
        finally:
            config.update(before)
