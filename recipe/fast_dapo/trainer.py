"""Fast DAPO on verl's trainer: connects `DataController` to the data loader, the engines and TransferQueue."""

from collections.abc import Iterable
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import NonTensorData, TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import register_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer

from recipe.fast_dapo.curriculum_records import GenerationInput, Prompt, Sample, UpdateResult
from recipe.fast_dapo.data_controller import DataController, TooManyGenerationBatches
from recipe.fast_dapo.settings import read_settings, resolve_group_size
from verl_ext.agent_loop import FIRST_SESSION, PromptReport, RolloutReport
from verl_ext.errors import GenerationFailedError, SignalError
from verl_ext.json_lines import JsonLines
from verl_ext.trainer import SignalTrainer

PARTITION = "train"


class CurriculumExhaustedError(SignalError):
    """Too many generation rounds passed without a training batch."""


@register_trainer("fast_dapo")
class FastDapoTrainer(SignalTrainer):
    """Screens prompts, continues those with a mixed result, and trains on complete groups.

    With `curriculum.enable=false` it is verl's plain synchronous trainer with groups of n + n_continue.
    """

    def __init__(self, config: DictConfig) -> None:
        resolve_group_size(config)
        self.settings = read_settings(config)
        self.controller = DataController(self.settings.controller)
        super().__init__(config)
        self.prompt_records = JsonLines(self.run_folder.prompts)

    # ------------------------------ collecting a batch ------------------------------

    def prepare_step(self) -> dict[str, Any]:
        # verl would submit one training batch of prompts here.
        return {} if self.settings.enable else super().prepare_step()

    def collect_batch(self, metrics: dict[str, Any], num_prompts: int) -> KVBatchMeta:
        if not self.settings.enable:
            with marked_timer("gen", self.timing_raw):
                return super().collect_batch(metrics, num_prompts)
        self.timing_raw["gen"] = 0.0  # a step that the buffer covers generates nothing, and says so
        self.controller.reset_step_metrics()
        self._release(self.controller.evict(self._weight_version))
        while not self.controller.is_ready_for_training():
            self._generation_round()
        groups = self.controller.get_training_data()
        self._record({"event": "trained", "index": group.prompt.index} for group in groups)
        keys = [sample.key for group in groups for sample in group.samples]
        tags = tq.kv_list(PARTITION)[PARTITION]
        # The prompts' own rows have done their work; verl clears the rollouts after the step.
        tq.kv_clear(keys=[group.prompt.uid for group in groups], partition_id=PARTITION)
        metrics.update(self.controller.metrics())
        return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=[tags[key] for key in keys])

    @property
    def _weight_version(self) -> int:
        # verl numbers the weights by the step that made them, and counts the step under way.
        return self.global_steps - 1

    def _generation_round(self) -> None:
        """One generation call: continuation of what qualified, screening of new prompts."""
        try:
            self.controller.check_num_gen_batches()
        except TooManyGenerationBatches as error:
            self._save_unfinished_step()
            raise CurriculumExhaustedError(f"{error}\nA checkpoint was written to resume from.") from None

        new_rows = self._fetch_one_gen_batch()
        prompts = [Prompt(uid=uid, index=index) for uid, index in zip(new_rows["uid"], new_rows["index"], strict=True)]
        self._put_rows(prompts, new_rows)
        self.controller.add_new_prompts_first_generation_phase(prompts)
        inputs = self.controller.get_generation_inputs()
        batch = self._generation_batch(inputs)
        with marked_timer("gen", self.timing_raw, color="red"):
            reports = self.agent_loop_manager.generate_and_report(batch)
        self._refuse_total_failure(reports)
        samples = {uid: [self._sample(rollout) for rollout in report.rollouts] for uid, report in reports.items()}
        self._release(self.controller.update_prompts(samples, self._weight_version))
        self._record(self._outcome(entry, samples.get(entry.prompt.uid, [])) for entry in inputs)

    def _put_rows(self, prompts: list[Prompt], rows: TensorDict) -> None:
        """Keep the prompts' rows in TransferQueue, from where their continuation and a resumed run read them."""
        fields = rows.select(*[key for key, value in rows.items() if not isinstance(value, NonTensorData)])
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self.global_steps}] * len(prompts)
        tq.kv_batch_put(keys=[prompt.uid for prompt in prompts], partition_id=PARTITION, tags=tags, fields=fields)

    def _generation_batch(self, inputs: list[GenerationInput]) -> TensorDict:
        """Rows of all prompts of a call, each with its number of rollouts and of its first session."""
        batch = tq.kv_batch_get(keys=[entry.prompt.uid for entry in inputs], partition_id=PARTITION)
        tu.assign_non_tensor_stack(batch, "__rollout_n__", [entry.num_samples for entry in inputs])
        tu.assign_non_tensor_stack(batch, FIRST_SESSION, [entry.first_session for entry in inputs])
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
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

    def _refuse_total_failure(self, reports: dict[str, PromptReport]) -> None:
        errors = [error for report in reports.values() for error in report.errors]
        if errors and not any(report.rollouts for report in reports.values()):
            raise GenerationFailedError(
                f"All {len(errors)} rollouts of a generation call failed; the first with: {errors[0]}"
            )

    def _release(self, result: UpdateResult) -> None:
        """Free the tensors of prompts that left the curriculum."""
        names = [*result.released_keys, *result.released_uids]
        if names:
            tq.kv_clear(keys=names, partition_id=PARTITION)

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
            "prompt_records_bytes": self.prompt_records.num_bytes,
        }

    def load_signal_state(self, state: dict[str, Any]) -> None:
        super().load_signal_state(state)
        self.controller.load_state_dict(state["controller"])
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
        trained = list(stored.keys() - live)
        if trained:
            tq.kv_clear(keys=trained, partition_id=PARTITION)

    def _save_unfinished_step(self) -> None:
        """Checkpoint between two steps: the weights are those of the step before."""
        self.global_steps -= 1
        self._save_checkpoint()
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
        return super().summary() | {"rollouts_avoided": int(dropped) * self.settings.controller.n_continue}
