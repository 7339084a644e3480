"""A trainer's records in the run folder: status, metrics, totals, the first validation, the summary."""

import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_ext.run.metrics_stream import STEP, MetricsStream
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.run_totals import RunTotals
from verl_ext.run.status import StatusFile
from verl_ext.run.trainer_metrics import validation_accuracy
from verl_ext.serving.data_plane import KVBatchMeta


class RecordedTrainer(PPOTrainer):
    """verl's trainer with records.

    Attributes:
        run_folder: Folder of the records.
        metrics_stream: One record per step.
        status: The run's current state.
        totals: Its cost so far.
        val_accuracy: Accuracy of the newest validation; `val_accuracy_before`: of the first.
    """

    def __init__(self, config: DictConfig) -> None:
        super().__init__(config)
        self.run_folder = RunFolder(Path(config.run_dir))
        self.metrics_stream = MetricsStream(self.run_folder.metrics)
        self.status = StatusFile(self.run_folder.status)
        self.totals = RunTotals()
        self.val_accuracy_before: float | None = None
        self.val_accuracy: float | None = None

    def init(self) -> None:
        self.status.doing("starting workers and engines")
        super().init()

    def on_step_begin(self) -> None:
        self.status.at_work("training", step=self.global_steps, of=self.total_training_steps, doing="generating")
        super().on_step_begin()
        self._step_began = time.perf_counter()

    def _validate(self) -> dict[str, float]:
        # Before the first step of this command there is no current step.
        self.status.at_work("validating", step=self.global_steps, of=self.total_training_steps)
        began = time.perf_counter()
        metrics = self.validation_metrics()
        self.val_accuracy = validation_accuracy(metrics)
        if self.val_accuracy_before is None:
            self.val_accuracy_before = self.val_accuracy
        if self.global_steps == 0:
            seconds = time.perf_counter() - began
            self.run_folder.write_first_validation(metrics, seconds, self.num_validation_prompts())
            # Every logger gets step 0 at 0 rollouts and 0 seconds, as the pages show it.
            return {**metrics, **self.totals.metrics(), STEP: 0}
        return metrics

    def validation_metrics(self) -> dict[str, float]:
        """verl's metrics, including `val-core/{set}/…`; override to measure something else."""
        return super()._validate()

    def num_validation_prompts(self) -> int | None:
        """Number of prompts of `validation_metrics`; None if it measures something else."""
        return len(self.val_dataset)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        self.status.doing("computing log-probs")
        return super()._compute_old_log_prob(batch, metrics=metrics)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        self.status.doing("updating the actor")
        return super()._update_actor(batch, metrics=metrics)

    def _save_checkpoint(self) -> None:
        self.status.doing("writing a checkpoint")
        super()._save_checkpoint()

    def on_step_end(self) -> None:
        self.status.doing("sending the weights")
        super().on_step_end()

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self.totals.add_step(timing_raw)
        metrics.update(self.totals.metrics())
        self.metrics_stream.append(metrics)

    def summary(self) -> dict[str, Any]:
        """Summary of the run; recipes and parts add their entries."""
        return {
            "val_accuracy_before": self.val_accuracy_before,
            "val_accuracy_after": self.val_accuracy,
            "global_steps": min(self.global_steps, self.total_training_steps),
            "total_training_steps": self.total_training_steps,
            **self.totals.state_dict(),
        }

    def write_summary(self) -> None:
        """Write `summary.json`."""
        self.run_folder.write_summary(self.summary())
