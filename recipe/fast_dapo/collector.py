"""The curriculum on verl: connects `DataController` to the data loader, the engines and the data plane."""

import threading
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from recipe.fast_dapo import posterior_advantage
from recipe.fast_dapo.background import BackgroundGeneration
from recipe.fast_dapo.curriculum.baseline import RewardScale
from recipe.fast_dapo.curriculum.data_controller import DataController, TooManyGenerationBatches
from recipe.fast_dapo.curriculum.records import GenerationInput, Prompt, Sample, TrainingGroup, UpdateResult
from recipe.fast_dapo.dataset_posterior import DatasetPosterior
from recipe.fast_dapo.prompt_records import PromptRecords
from recipe.fast_dapo.prompt_rows import PromptRows
from recipe.fast_dapo.report_watch import ReportWatch
from recipe.fast_dapo.settings import read_settings
from recipe.fast_dapo.success_metric import success_of
from verl_ext.core.errors import SignalError
from verl_ext.run.run_totals import RunTotals
from verl_ext.serving import data_plane
from verl_ext.serving.agent_loop import FIRST_SESSION, PromptReport, RolloutReport
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.rollout_key import output_keys, uid_of
from verl_ext.trainer.parts import Collector, Trainer

PARTITION = data_plane.TRAIN


class CurriculumExhaustedError(SignalError):
    """Too many generation rounds passed without a training batch."""


class Curriculum(Collector):
    """Screens prompts, continues those with a mixed result, and hands over complete groups.

    Attributes:
        controller: Decides what is generated next and what is trained on.
        predictor: Predicts each prompt's pass rate; None if no setting needs it.
        reward_scale: Mean rewards of passes and failures.
        prompt_rows: The data rows of live prompts.
        groups: The groups that the step trains on.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.settings = read_settings(trainer.config)
        self.controller = self.new_controller()
        self.predictor: DatasetPosterior | None = None
        self.reward_scale = RewardScale()
        self.prompt_rows = PromptRows(PARTITION)
        self.report_watch = ReportWatch(
            lambda rollout: self.settings.controller.grading.success(self._sample(rollout).success) > 0,
            lambda uid: str(self.prompt_rows.value(uid, "data_source")),
            trainer.config.data.max_response_length,
        )
        self.prompt_records = PromptRecords(trainer.run_folder.path, trainer.config.curriculum.record_prompts)
        self.groups: list[TrainingGroup] = []
        self._released: list[str] = []  # names in the data plane that the next clear also removes
        # Guards all of this: with engines on separate devices, a second thread runs while the trainer trains.
        self._changed = threading.Condition()
        self._background = self._new_background() if self.settings.engines_apart else None

    def new_controller(self) -> DataController:
        """Create an empty controller for this run's settings."""
        return DataController(self.settings.controller, self.settings.screening_chunk)

    def set_up_data(self) -> None:
        settings, config = self.settings.posterior, self._trainer.config
        if settings is not None:
            rows, batch = len(self._trainer.train_dataset), config.data.train_batch_size
            self.predictor = DatasetPosterior(self._trainer.train_dataset, config.data.prompt_key, settings)
            if self.settings.predictor == "posterior" and rows < batch:
                left = f"{rows} prompts are left of data.train_files, fewer than data.train_batch_size={batch}"
                raise SignalError(f"{left}. Lower data.train_batch_size, raise data.max_prompt_length, or add data.")

    # ------------------------------ collecting a batch ------------------------------

    def collect(self, num_prompts: int) -> KVBatchMeta:
        with self._changed:
            try:
                self._begin()
                self._generate()
            except TooManyGenerationBatches as error:
                self._trainer.save_unfinished_step()
                raise CurriculumExhaustedError(f"{error}\nA checkpoint was written to resume from.") from None
            batch = self._take_batch()
            if self._background is not None:
                self.controller.begin_update()
                self._send()
            return batch

    def _begin(self) -> None:
        """The weights may be new."""
        is_new_step = self._trainer.local_trigger_step == 0
        if is_new_step and self._background is None:
            self.controller.reset_step_metrics()
        version = self._trainer.weight_version
        self.controller.end_update()
        self._release(self.controller.evict(version))
        if self.predictor is not None:
            self.predictor.posterior.set_weight_version(version)
            if is_new_step:
                self.predictor.posterior.reliability.reset()

    def _take_batch(self) -> KVBatchMeta:
        """The rows to train on next; everything else of these prompts is freed."""
        self.groups = self.controller.get_training_data()
        self.prompt_records.add_events(
            self._trainer.global_steps, ({"event": "trained", "index": group.prompt.index} for group in self.groups)
        )
        trained = [sample.key for group in self.groups for sample in self.controller.trained_samples(group)]
        keys = _all_outputs(trained)
        tags = data_plane.tags(PARTITION)
        # The prompts' own rows are no longer needed, nor are samples that are not trained on; verl clears the others
        # after the step.
        done = set(_all_outputs(sample.key for group in self.groups for sample in group.samples)) - set(keys)
        uids = [group.prompt.uid for group in self.groups]
        self.prompt_rows.remove(uids)
        self._released += [*uids, *done]
        self._clear_released()
        return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=[tags[key] for key in keys])

    def _generate(self) -> None:
        """Generate until a batch is ready."""
        if self._background is not None:
            self._send()
            with self._trainer.waiting_for_rollouts():
                self._background.wait_until(self.controller.is_ready_for_training)
        elif self.settings.controller.schedule == "streaming":
            self._generate_streaming()
        else:
            while not self.controller.is_ready_for_training():
                self._generation_round()

    def _generation_round(self) -> None:
        """Merged: one call continues the qualified prompts and screens new ones."""
        self.controller.check_num_gen_batches()
        self._add_prompts()
        inputs = self.controller.get_generation_inputs()
        batch = self._generation_batch(inputs)
        with self._trainer.waiting_for_rollouts():
            reports = self._trainer.agent_loop_manager.generate_and_report(batch)
        self._take_reports(reports, more_to_come=False)

    def _generate_streaming(self) -> None:
        """Continue and admit the moment a report allows it, until a batch is ready and, without `ahead`, all ended."""
        while True:
            self._send()
            is_complete = self.settings.controller.ahead and self.controller.is_ready_for_training()
            if is_complete or not self.controller.num_in_flight:
                return
            with self._trainer.waiting_for_rollouts():
                reports = self._trainer.agent_loop_manager.finished_reports()
            self._take_reports(reports, more_to_come=True)

    def _send(self) -> None:
        """Streaming: send the engines everything that may be generated now."""
        if not self.controller.num_in_flight:
            self.controller.check_num_gen_batches()
        self._add_prompts()
        inputs = self.controller.get_generation_inputs()
        if inputs:
            self._trainer.agent_loop_manager.dispatch(self._generation_batch(inputs))

    def _new_background(self) -> BackgroundGeneration:
        def go_on(reports: Mapping[str, PromptReport]) -> None:
            self._take_reports(reports, more_to_come=True)
            self._send()

        return BackgroundGeneration(
            self._changed,
            lambda: self.controller.num_in_flight,
            lambda timeout_s: self._trainer.agent_loop_manager.finished_reports(timeout_s),
            go_on,
        )

    def _take_reports(self, reports: Mapping[str, PromptReport], *, more_to_come: bool) -> None:
        """Hand the outcome of generation to the controller and the predictor."""
        self.report_watch.look_at(reports, self.controller.num_in_flight)
        samples = {uid: [self._sample(rollout) for rollout in report.rollouts] for uid, report in reports.items()}
        version = self._trainer.weight_version
        result = self.controller.update_prompts(samples, version, more_to_come=more_to_come)
        self._release(result)
        if self.predictor is not None:
            self.predictor.observe(result.outcomes)
        self.prompt_records.add_events(self._trainer.global_steps, (outcome.event() for outcome in result.outcomes))

    def before_advantages(self, batch: KVBatchMeta) -> None:
        if self.settings.baseline != "posterior":
            return
        assert self.predictor is not None
        grading = self.settings.controller.grading
        known = {group.prompt.uid: self.predictor.known(group, grading) for group in self.groups}
        posterior_advantage.prepare(batch.keys, known, self.reward_scale)

    def observe_influence(self, scores: Mapping[str, float]) -> None:
        if self.predictor is None or not self.predictor.posterior.settings.use_influence:
            return
        with self._changed:
            index_of = {group.prompt.uid: group.prompt.index for group in self.groups}
            self.predictor.observe_influence({index_of[uid]: score for uid, score in scores.items()})

    # ------------------------------ prompts ------------------------------

    def _add_prompts(self) -> None:
        """Fetch the prompts that the controller asks for, and give it the posteriors of prompts whose screening begins
        now."""
        self._fetch_wanted()
        if self.predictor is not None:
            self.controller.set_posteriors(self.predictor.posteriors(self.controller.prompts_to_screen()))

    def _fetch_wanted(self) -> None:
        while (wanted := self.controller.num_prompts_wanted) > 0:
            rows = self._fetch_rows(wanted)
            if rows is None:
                return
            prompts = [Prompt(uid=uid, index=index) for uid, index in zip(rows["uid"], rows["index"], strict=True)]
            self.prompt_rows.add(rows)
            self.prompt_records.add_prompts(rows)
            self.controller.add_new_prompts_first_generation_phase(prompts)

    def _fetch_rows(self, count: int) -> Mapping[str, Any] | None:
        """Columns of the predictor's choice, or of the next rows of verl's loader; None if every prompt is live."""
        if self.settings.predictor != "posterior":
            return self._trainer.fetch_prompts()
        assert self.predictor is not None
        # Negligible compared with the step itself.
        with self._trainer.timed("predict") if self._background is None else nullcontext():
            chosen = self.predictor.choose(count, self.controller.live_indices())
        # Not as verl's TensorDict, which costs more than all decisions about these prompts.
        return collate_fn(chosen) | {"uid": [str(uuid.uuid4()) for _ in chosen]} if chosen else None

    def _generation_batch(self, inputs: list[GenerationInput]) -> TensorDict:
        """Rows of all prompts of a call, each with its number of rollouts and the number of its first session."""
        batch = self.prompt_rows.batch([entry.prompt.uid for entry in inputs])
        tu.assign_non_tensor_stack(batch, "__rollout_n__", [entry.num_samples for entry in inputs])
        tu.assign_non_tensor_stack(batch, FIRST_SESSION, [entry.first_session for entry in inputs])
        tu.assign_non_tensor_data(batch, "global_steps", self._trainer.global_steps)
        return batch

    def _sample(self, rollout: RolloutReport) -> Sample:
        success = success_of(rollout, self.settings.success_metric, self.settings.controller.grading)
        return Sample(key=rollout.key, success=success, version=rollout.version, num_tokens=rollout.num_tokens)

    def _release(self, result: UpdateResult) -> None:
        """Take note of the tensors of prompts that left the curriculum; `_clear_released` frees them."""
        self.prompt_rows.remove(result.released_uids)
        self._released += [*_all_outputs(result.released_keys), *result.released_uids]
        # A prompt that is generated again, as it expired or a rollout failed, gives its rollouts the same names.
        if any(uid_of(key) in self.prompt_rows for key in result.released_keys):
            self._clear_released()

    def _clear_released(self) -> None:
        # Once per step: one call per report would keep the data plane busy while the engines write rollouts to it.
        data_plane.clear(self._released, PARTITION)
        self._released = []

    # ------------------------------ state and records ------------------------------

    def at_rest(self) -> AbstractContextManager[Any]:
        return self._changed

    def end(self) -> None:
        if self._background is not None:
            self._background.end()

    def before_checkpoint(self) -> None:
        self._clear_released()
        self.prompt_rows.store({"is_prompt": True, "status": "pending", "global_steps": self._trainer.global_steps})

    def state_dict(self) -> dict[str, Any]:
        return {
            "controller": self.controller.state_dict(),
            **(self.predictor.state_dict() if self.predictor is not None else {"predictor": None, "prompts": None}),
            "reward_sums": self.reward_scale.sums.tolist(),
            "sources": self.report_watch.sources.state_dict(),
            "prompt_records": self.prompt_records.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.controller.load_state_dict(state["controller"])
        if self.predictor is not None and state["predictor"] is not None:
            self.predictor.load_state_dict(state)
        self.reward_scale.sums = np.array(state.get("reward_sums", [0.0] * 5))
        self.report_watch.sources.load_state_dict(state.get("sources", {}))
        # An earlier release counted only the events.
        before = {"events": state.get("prompt_records_bytes", 0), "texts": 0}
        self.prompt_records.load_state_dict(state.get("prompt_records", before))
        # The checkpoint was written while the step's own batch was still in the queue: it has been trained on.
        uids = self.controller.live_uids()
        live = uids.union(_all_outputs(self.controller.live_names() - uids))
        stored = data_plane.tags(PARTITION).keys()
        if missing := live - stored:
            raise SignalError(
                f"The checkpoint's TransferQueue lacks {len(missing)} of {len(live)} entries that the curriculum "
                f"needs, e.g. {min(missing)}: it is damaged; resume from an earlier one with trainer.resume_from_path."
            )
        self.prompt_rows.restore(sorted(uids))
        self._released = list(stored - live)
        self._clear_released()

    def metrics(self) -> dict[str, Any]:
        with self._changed:
            predictions = self.predictor.posterior.calibration() if self.predictor is not None else {}
            silent = {"curriculum/silent_sources": float(len(self.report_watch.sources.silent))}
            return self.controller.metrics() | silent | predictions

    def progress(self) -> tuple[int, int]:
        return self.controller.num_prompts_for_training, self.settings.controller.train_batch_size

    def count(self, batch: KVBatchMeta, metrics: dict[str, Any], totals: RunTotals) -> None:
        with self._changed:
            counted = self.metrics()
            if self._background is not None:  # which continues between two steps
                self.controller.reset_step_metrics()
        metrics |= counted  # each update of a step also counts the ones before it
        for name in ("rollouts_generated", "rollouts_trained", "tokens_generated", "tokens_trained"):
            noun, verb = name.split("_")
            setattr(totals, name, int(counted[f"curriculum/total/{verb}_{noun}"]))

    def summary(self) -> dict[str, Any]:
        totals = self.controller.metrics()
        screened, continued = (int(totals[f"curriculum/total/{name}"]) for name in ("screened", "qualified"))
        n_continue = self.settings.controller.n_continue
        summary: dict[str, Any] = {
            "rollouts_avoided": (screened - continued) * n_continue,
            "findings": [
                ("prompts screened", f"{screened:,}, {continued:,} of them mixed" + " and continued" * (n_continue > 0))
            ],
        }
        summary["findings"] += [("nothing right in", line) for line in self.report_watch.sources.explain()]
        if self.predictor is not None:
            summary["predictor_reliability"] = self.predictor.posterior.reliability.rows()
        return summary


def _all_outputs(keys: Iterable[str]) -> list[str]:
    """Of samples, which the controller knows by their last outputs."""
    return [output for key in keys for output in output_keys(key)]
