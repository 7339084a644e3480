"""Fast DAPO on verl's trainer: connects `DataController` to the data loader, the engines and TransferQueue."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import register_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.debug import marked_timer

from recipe.fast_dapo.correction import clip_weights, horvitz_thompson_weight
from recipe.fast_dapo.curriculum_records import GenerationInput, Prompt, Sample, TrainingGroup, UpdateResult
from recipe.fast_dapo.data_controller import DataController, TooManyGenerationBatches
from recipe.fast_dapo.predictor import PassRatePosterior
from recipe.fast_dapo.prompt_rows import PromptRows
from recipe.fast_dapo.screening import ScreeningPlan, plan_screening
from recipe.fast_dapo.settings import read_settings, resolve_group_size
from recipe.tracin.trainer import TracInTrainer
from verl_ext.agent_loop import FIRST_SESSION, PromptReport, RolloutReport
from verl_ext.errors import GenerationFailedError, SignalError
from verl_ext.json_lines import JsonLines

PARTITION = "train"

# Prompts in a row without a single rollout, after which generation counts as broken.
_MAX_FAILED_PROMPTS = 16


class CurriculumExhaustedError(SignalError):
    """Too many generation rounds passed without a training batch."""


@register_trainer("fast_dapo")
class FastDapoTrainer(TracInTrainer):
    """Screens prompts, continues those with a mixed result, and trains on complete groups.

    With `curriculum.enable=false` it is verl's plain synchronous trainer with groups of n + n_continue.
    """

    def __init__(self, config: DictConfig) -> None:
        resolve_group_size(config)
        self.settings = read_settings(config)
        self.controller = self.new_controller()
        self.predictor: PassRatePosterior | None = None
        self.prompt_rows = PromptRows(PARTITION)
        self._released: list[str] = []  # names in TransferQueue that the next call to clear takes along
        self._asked: dict[str, GenerationInput] = {}  # in flight, by uid
        self._num_failed_prompts = 0  # in a row
        self._weights: dict[str, float] = {}  # of the step's groups, by uid
        super().__init__(config)
        self.prompt_records = JsonLines(self.run_folder.prompts)

    def new_controller(self) -> DataController:
        """An empty controller for this run's settings."""
        return DataController(self.settings.controller, self._plan_screening if self.settings.screening_chunk else None)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self.settings.enable and self.settings.predictor is not None:
            self.predictor = PassRatePosterior(len(self.train_dataset), self.settings.predictor)
            indices = [info["index"] for info in self.train_dataset.dataframe["extra_info"]]
            self._position = {index: position for position, index in enumerate(indices)}

    # ------------------------------ collecting a batch ------------------------------

    def prepare_step(self) -> dict[str, Any]:
        # verl would submit one training batch of prompts here.
        return {} if self.settings.enable else super().prepare_step()

    def collect_batch(self, metrics: dict[str, Any], num_prompts: int) -> KVBatchMeta:
        if not self.settings.enable:
            return super().collect_batch(metrics, num_prompts)
        self.timing_raw["gen"] = 0.0  # a step that the buffer covers generates nothing, and says so
        self.controller.reset_step_metrics()
        self._release(self.controller.evict(self._weight_version))
        if self.predictor is not None:
            self.predictor.set_weight_version(self._weight_version)
            self.predictor.reset_calibration()
        if self.settings.controller.schedule == "streaming":
            self._generate_streaming()
        else:
            while not self.controller.is_ready_for_training():
                self._generation_round()
        groups = self.controller.get_training_data()
        self._record({"event": "trained", "index": group.prompt.index} for group in groups)
        keys = [sample.key for group in groups for sample in self.controller.trained_samples(group)]
        tags = tq.kv_list(PARTITION)[PARTITION]
        # The prompts' own rows have done their work, and so have samples that are not trained on; verl clears the
        # others after the step.
        done = {sample.key for group in groups for sample in group.samples} - set(keys)
        uids = [group.prompt.uid for group in groups]
        self.prompt_rows.remove(uids)
        self._released += [*uids, *done]
        self._clear_released()
        metrics.update(self.controller.metrics())
        if self.predictor is not None:
            metrics.update(self.predictor.calibration())
        self._weights = self._correction_weights(groups, metrics)
        return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=[tags[key] for key in keys])

    def select_samples(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Weights the advantages by the correction, before TracIn scores them."""
        if self._weights:
            self._weight_advantages(batch)
        return super().select_samples(batch, metrics)

    def _weight_advantages(self, batch: KVBatchMeta) -> None:
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"])
        # Rows that only fill up a batch belong to no group.
        weights = [self._weights.get(key.rsplit("_", 2)[0], 1.0) for key in batch.keys]
        scaled = [row * weight for row, weight in zip(rows["advantages"].unbind(), weights, strict=True)]
        fields = TensorDict({"advantages": torch.nested.as_nested_tensor(scaled, layout=torch.jagged)}, len(scaled))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _correction_weights(self, groups: list[TrainingGroup], metrics: dict[str, Any]) -> dict[str, float]:
        """By uid, what the advantages of a group are multiplied by; empty without a correction."""
        if self.settings.controller.correction != "horvitz_thompson":
            return {}
        exact = np.array(
            [horvitz_thompson_weight(g.num_passes, len(g.samples), g.plan.max_fails, g.plan.max_passes) for g in groups]
        )
        weights, clipped_share = clip_weights(exact, self.settings.correction_clip)
        metrics |= {
            "curriculum/correction_weight/mean": float(weights.mean()),
            "curriculum/correction_weight/max": float(weights.max()),
            "curriculum/correction_weight/clipped_share": clipped_share,
        }
        return {group.prompt.uid: float(weight) for group, weight in zip(groups, weights, strict=True)}

    # ------------------------------ generating ------------------------------

    @property
    def _weight_version(self) -> int:
        # verl numbers the weights by the step that made them, and counts the step under way.
        return self.global_steps - 1

    def _generation_round(self) -> None:
        """Merged: one call, with the continuation of what qualified and the screening of new prompts."""
        self._check_num_gen_batches()
        self._add_prompts()
        inputs = self.controller.get_generation_inputs()
        batch = self._generation_batch(inputs)
        with marked_timer("gen", self.timing_raw, color="red"):
            reports = self.agent_loop_manager.generate_and_report(batch)
        self._take_reports(reports, more_to_come=False)

    def _generate_streaming(self) -> None:
        """Until a batch is ready and nothing is in flight: continue and admit the moment a report allows it."""
        while True:
            if not self.controller.num_in_flight:
                self._check_num_gen_batches()
            self._add_prompts()
            inputs = self.controller.get_generation_inputs()
            if inputs:
                self.agent_loop_manager.dispatch(self._generation_batch(inputs))
            if not self.controller.num_in_flight:
                return
            with marked_timer("gen", self.timing_raw, color="red"):
                reports = self.agent_loop_manager.finished_reports()
            self._take_reports(reports, more_to_come=True)

    def _check_num_gen_batches(self) -> None:
        try:
            self.controller.check_num_gen_batches()
        except TooManyGenerationBatches as error:
            self._save_unfinished_step()
            raise CurriculumExhaustedError(f"{error}\nA checkpoint was written to resume from.") from None

    def _take_reports(self, reports: Mapping[str, PromptReport], *, more_to_come: bool) -> None:
        """Hand the outcome of generation to the controller and the predictor."""
        self._refuse_total_failure(reports)
        samples = {uid: [self._sample(rollout) for rollout in report.rollouts] for uid, report in reports.items()}
        self._release(self.controller.update_prompts(samples, self._weight_version, more_to_come=more_to_come))
        entries = [self._asked.pop(uid) for uid in reports]
        outcomes = [self._outcome(entry, samples[entry.prompt.uid]) for entry in entries]
        if self.predictor is not None:
            for outcome in outcomes:
                passes = outcome["passes"]
                self.predictor.observe(self._position[outcome["index"]], passes, outcome["samples"] - passes)
        self._record(outcomes)

    def _add_prompts(self) -> None:
        """Fetch what the controller asks for, in whole batches of the loader or by the predictor's choice."""
        while (wanted := self.controller.num_prompts_wanted) > 0:
            rows = self._fetch_one_gen_batch() if self.predictor is None else self._fetch_chosen(wanted)
            if rows is None:
                return
            prompts = [Prompt(uid=uid, index=index) for uid, index in zip(rows["uid"], rows["index"], strict=True)]
            self.prompt_rows.add(rows)
            self.controller.add_new_prompts_first_generation_phase(prompts)

    def _fetch_chosen(self, count: int) -> TensorDict | None:
        """Rows of the predictor's choice, as verl's loader would give them; None if every prompt is live."""
        live = [self._position[index] for index in self.controller.live_indices()]
        with marked_timer("predict", self.timing_raw):
            positions = self.predictor.choose(count, live)
        if not len(positions):
            return None
        rows = collate_fn([self.train_dataset[int(position)] for position in positions])
        rows["uid"] = np.array([str(uuid.uuid4()) for _ in positions], dtype=object)
        return tu.get_tensordict(rows)

    def _plan_screening(self, prompt: Prompt) -> ScreeningPlan:
        """Sequential screening: the limits that the prompt's posterior and the price of a mixed prompt call for."""
        alpha, beta = self.predictor.posterior(self._position[prompt.index])
        return plan_screening(
            float(alpha),
            float(beta),
            n=self.settings.controller.n,
            chunk=self.settings.screening_chunk,
            price=self.controller.screening_price,
        )

    def _generation_batch(self, inputs: list[GenerationInput]) -> TensorDict:
        """Rows of all prompts of a call, each with its number of rollouts and of its first session."""
        batch = self.prompt_rows.batch([entry.prompt.uid for entry in inputs])
        tu.assign_non_tensor_stack(batch, "__rollout_n__", [entry.num_samples for entry in inputs])
        tu.assign_non_tensor_stack(batch, FIRST_SESSION, [entry.first_session for entry in inputs])
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        self._asked |= {entry.prompt.uid: entry for entry in inputs}
        return batch

    def _sample(self, rollout: RolloutReport) -> Sample:
        metric = self.settings.success_metric
        if metric == "reward":
            success = rollout.reward
        elif metric in rollout.reward_extra_info:
            success = float(rollout.reward_extra_info[metric])
        else:
            raise SignalError(
                f"curriculum.success_metric={metric!r} is not among what the reward function returns: "
                f"{sorted(rollout.reward_extra_info)}. Use one of these, or 'reward' for the reward itself."
            )
        return Sample(key=rollout.key, success=success, version=rollout.version, num_tokens=rollout.num_tokens)

    def _refuse_total_failure(self, reports: Mapping[str, PromptReport]) -> None:
        """A prompt may fail; when all of them do, the cause is elsewhere and no retry helps."""
        if any(report.rollouts for report in reports.values()):
            self._num_failed_prompts = 0
            return
        self._num_failed_prompts += len(reports)
        errors = [error for report in reports.values() for error in report.errors]
        others_in_flight = self.controller.num_in_flight > len(reports)
        if errors and (self._num_failed_prompts >= _MAX_FAILED_PROMPTS or not others_in_flight):
            raise GenerationFailedError(
                f"Generation failed for {self._num_failed_prompts} prompts in a row; the last time with: {errors[0]}"
            )

    def _release(self, result: UpdateResult) -> None:
        """Take note of the tensors of prompts that left the curriculum; `_clear_released` frees them."""
        self.prompt_rows.remove(result.released_uids)
        self._released += [*result.released_keys, *result.released_uids]
        # A prompt that is generated again, as it expired or a rollout failed, gives its rollouts the same names.
        if any(key.rsplit("_", 2)[0] in self.prompt_rows for key in result.released_keys):
            self._clear_released()

    def _clear_released(self) -> None:
        # Once a step: a call a report would keep TransferQueue busy while the engines' rollouts are written to it.
        if self._released:
            tq.kv_clear(keys=self._released, partition_id=PARTITION)
            self._released = []

    # ------------------------------ state and records ------------------------------

    def _outcome(self, entry: GenerationInput, samples: list[Sample]) -> dict[str, Any]:
        threshold = self.settings.controller.success_threshold
        return {
            "event": entry.phase.value,
            "index": entry.prompt.index,
            "samples": len(samples),
            "passes": sum(sample.success > threshold for sample in samples),
        }

    def _record(self, events: Iterable[dict[str, Any]]) -> None:
        """Append to the history of prompts, from which reports and tests read what became of each."""
        if self.config.curriculum.record_prompts:
            self.prompt_records.append({"step": self.global_steps} | event for event in events)

    def signal_state(self) -> dict[str, Any]:
        return super().signal_state() | {
            "controller": self.controller.state_dict(),
            "predictor": self.predictor and self.predictor.state_dict(),
            "prompt_records_bytes": self.prompt_records.num_bytes,
        }

    def load_signal_state(self, state: dict[str, Any]) -> None:
        super().load_signal_state(state)
        self.controller.load_state_dict(state["controller"])
        if self.predictor is not None and state["predictor"] is not None:
            self.predictor.load_state_dict(state["predictor"])
        self.prompt_records.cut_back_to(state["prompt_records_bytes"])
        # The checkpoint was written while the step's own batch was still in the queue: it has been trained on.
        live = self.controller.live_names()
        stored = tq.kv_list(PARTITION).get(PARTITION, {})
        missing = live - stored.keys()
        if missing:
            raise SignalError(
                f"The checkpoint's TransferQueue lacks {len(missing)} of {len(live)} entries that the curriculum "
                f"needs, e.g. {min(missing)}: it is damaged; resume from an earlier one with trainer.resume_from_path."
            )
        self.prompt_rows.restore(sorted(self.controller.live_uids()))
        self._released = list(stored.keys() - live)
        self._clear_released()

    def _save_checkpoint(self) -> None:
        self._clear_released()
        self.prompt_rows.store({"is_prompt": True, "status": "pending", "global_steps": self.global_steps})
        super()._save_checkpoint()

    def _save_unfinished_step(self) -> None:
        """Checkpoint between two steps: the weights are those of the step before."""
        self.global_steps -= 1
        try:
            self._save_checkpoint()
        finally:
            self.global_steps += 1

    def count_rollouts(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> None:
        if not self.settings.enable:
            return super().count_rollouts(batch, metrics)
        totals = self.controller.metrics()
        for name in ("rollouts_generated", "rollouts_trained", "tokens_generated", "tokens_trained"):
            noun, verb = name.split("_")
            setattr(self.totals, name, int(totals[f"curriculum/total/{verb}_{noun}"]))

    def summary(self) -> dict[str, Any]:
        if not self.settings.enable:
            return super().summary()
        totals = self.controller.metrics()
        dropped = totals["curriculum/total/all_wrong"] + totals["curriculum/total/all_right"]
        summary = super().summary() | {"rollouts_avoided": int(dropped) * self.settings.controller.n_continue}
        if self.predictor is not None:
            summary["predictor_reliability"] = self.predictor.reliability_table()
        return summary
