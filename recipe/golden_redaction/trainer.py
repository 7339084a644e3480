"""Golden redaction on verl's trainer: states instead of prompts, single tokens instead of responses.

A step visits `entries_per_update * sync_every` states under one weight version, makes `sync_every` updates of
`entries_per_update` states each, sends the weights to the engines, and measures how every token moved, in the trainer
and in the serving engine. All decisions are in the pure modules next to this one.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import ray
import torch
from omegaconf import DictConfig
from transformers import GenerationConfig
from verl.trainer.ppo.utils import Role
from verl.utils.torch_dtypes import PrecisionType

from recipe.golden_redaction.checks import read_run_problems
from recipe.golden_redaction.loss.tensor_statistics import statistics_metrics
from recipe.golden_redaction.method.findings import run_findings
from recipe.golden_redaction.method.labelled_states import LabelledState, ReferenceLogProbs, StateTokens, mini_batches
from recipe.golden_redaction.method.probes import probe_metrics, probe_rows, probe_states
from recipe.golden_redaction.method.redaction import RedactionController
from recipe.golden_redaction.method.rollouts import StateVisitor
from recipe.golden_redaction.method.visits import Moment, StateVisit, copying_metrics, probability_gaps, visit_metrics
from recipe.golden_redaction.movement_probe import MovementProbe
from recipe.golden_redaction.records.records import TrainingRecords, make_entry
from recipe.golden_redaction.run_files import ENTRIES, PROBES, REFERENCE, TENSORS
from recipe.golden_redaction.sandbox import make_judge
from recipe.golden_redaction.settings import read_settings
from recipe.golden_redaction.texts import TextLogProbs
from recipe.golden_redaction.visiting import Visits
from recipe.golden_redaction.warm_start import read_earlier_run, restore_lengths
from recipe.golden_redaction.worker import GoldenWorker, RankUpdate
from verl_ext.core.errors import StaleEngineError
from verl_ext.core.json_lines import JsonLines
from verl_ext.run.metrics_stream import STEP
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.engines import ServingEngines
from verl_ext.serving.settings import read_guards, read_serving
from verl_ext.trainer.parts import Observer
from verl_ext.trainer.trainer import SignalTrainer

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self.llm_server_manager": "verl.workers.rollout.llm_server.LLMServerManager",
    "self.checkpoint_manager": "verl.checkpoint_engine.CheckpointEngineManager",
}

ATTENTION_DTYPES = {"bf16": torch.bfloat16}


class GoldenTrainer(SignalTrainer):
    """Trains single tokens of golden solutions. verl's data loader and agent loops are not used."""

    def __init__(self, config: DictConfig) -> None:
        self.golden = read_settings(config)
        super().__init__(config)
        self.records = TrainingRecords(self.run_folder.path / ENTRIES)
        self.probes = JsonLines(self.run_folder.path / PROBES)
        self.tensors = JsonLines(self.run_folder.path / TENSORS)
        self._reference = ReferenceLogProbs()
        self._num_updates = 0

    def new_observers(self) -> list[Observer]:
        self.movement = MovementProbe(self)
        return [self.movement]

    # ------------------------------ set-up ------------------------------

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(GoldenWorker)

    def set_up_problems(self) -> None:
        """Read the problems and the warm start; verl's data loader exists by now."""
        problems, _ = read_run_problems(self.config, self.golden, self.tokenizer)
        self.problems = {problem.id: problem for problem in problems}
        lengths = {problem.id: len(problem.golden_ids) for problem in problems}
        num_prompts = {problem.id: len(problem.prompts) for problem in problems}
        self.controller = RedactionController(lengths, self.golden.redaction, num_prompts)
        self._earlier = read_earlier_run(self.golden.records, self.problems)

    def on_init_end(self) -> None:
        if self.golden.attention_dtype is not None:
            self.actor_rollout_wg.compute_attention_in(ATTENTION_DTYPES[self.golden.attention_dtype])
        self.engines = ServingEngines(self.llm_server_manager.get_replicas())
        self.texts = TextLogProbs(self.engines, self.problems)
        self.judge = make_judge(self.config, self.golden, self.tokenizer)
        self.visitor = StateVisitor(
            self.engines,
            self.judge,
            _end_tokens(self.config.actor_rollout_ref.model.path, self.tokenizer),
            self.golden.credit,
            self.golden.max_new_tokens,
        )
        self.new_visits = Visits(
            self.controller,
            self.visitor,
            self.texts,
            self.problems,
            self.golden.redaction.decided_above,
            self.golden.records.prompt_log_probs,
        )
        super().on_init_end()
        if self.golden.records.prompt_log_probs:
            self.texts.measure_reference(self.run_folder.path / REFERENCE, is_first=self.global_steps == 0)
        if self.global_steps == 0:
            restore_lengths(self._earlier, self.controller, self._served)

    def fit(self, agent_loop_manager: Any) -> None:
        try:
            super().fit(agent_loop_manager)
        finally:
            self.judge.close()
            self.new_visits.close()

    # ------------------------------ one step ------------------------------

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """Visit, label, update, measure, record. The data plane is not used."""
        self.visits = visits = self._next_visits(metrics)
        self.ask_engine(visits, "before")
        self.on_sample_end()  # the engines sleep unless they make the next visits; their profiling ends
        if self.golden.visit_ahead and self._earlier.is_used_up and self.global_steps < self.total_training_steps:
            self.new_visits.begin(self._num_states, self.global_steps - 1, [visit.problem for visit in visits])

        with self.timed("old_log_prob"):
            log_probs, _ = self.log_probs(visits)
        for visit, own in zip(visits, log_probs, strict=True):
            visit.assign_credit(own, self.golden.credit, self.golden.targets)
        metrics.update(self.check_engine(visits, "before"))
        with self.timed("ref"):
            self._ask_reference(visits)
        metrics.update(visit_metrics(visits))
        if self.golden.verifier == "sandbox":
            metrics.update(copying_metrics(visits, {name: len(p.pairs) for name, p in self.problems.items()}))
        with self.timed("update_actor"):
            batches = mini_batches(visits, self.golden.entries_per_update, self.golden.targets.reduction)
            self._update(batches, metrics)
        nothing = self._nothing_in_the_queue()
        for observer in self.observers:
            observer.observe(nothing)
            metrics.update(observer.metrics())
        metrics.update(self.new_visits.wait(self.timed))
        with self.timed("update_weights"):
            self.checkpoint_manager.update_weights(self.global_steps)
        for observer in self.observers:
            metrics.update(observer.observe_served(nothing))
        if self.golden.records.enable:
            self.records.append([make_entry(visit, self.global_steps) for visit in visits])
        for visit in visits:
            if visit.recorded is None:  # the controller has recorded the others with the earlier run's lengths
                self.controller.observe(visit.problem, visit.k, visit.credit.state_reward)
        metrics.update(self.controller.metrics())
        self._count(visits)
        return nothing

    def _nothing_in_the_queue(self) -> KVBatchMeta:
        """A batch with one name and no data: verl clears the batch that a step returns, and fails on an empty one."""
        key = f"golden_redaction_{self.global_steps}"
        tags = [{"is_padding": True}]
        data_plane.write([key], data_plane.TRAIN, None, tags)
        return KVBatchMeta(partition_id=data_plane.TRAIN, keys=[key], tags=tags)

    def _next_visits(self, metrics: dict[str, Any]) -> list[StateVisit]:
        """Recorded visits of a warm start while there are any, then new ones."""
        if not self._earlier.is_used_up:
            visits = self._earlier.take(self._num_states, self._served)
            metrics["golden/visits/warm"] = float(len(visits))
            metrics["golden/visits/warm_far"] = float(self._earlier.num_far)
            if visits:
                return visits
        return self.new_visits.take(self._num_states, self.global_steps - 1, self.timed)

    @property
    def _num_states(self) -> int:
        """Number of states per step."""
        return self.golden.entries_per_update * self.golden.sync_every

    def _update(self, batches: list[list[LabelledState]], metrics: dict[str, Any]) -> None:
        metrics["golden/num_updates"] = float(len(batches))
        if not batches:
            return
        every = self.golden.tensor_statistics_every
        is_due = every > 0 and self._num_updates // every != (self._num_updates + len(batches)) // every
        dtype = self._resolution() if is_due else None
        ranks: list[list[RankUpdate]] = self.actor_rollout_wg.train_states(batches, dtype, self.golden.targets)
        self._num_updates += len(batches)
        metrics["golden/loss"] = sum(update.loss for rank in ranks for update in rank) / len(batches)
        metrics["golden/num_inner_steps"] = sum(update.num_steps for update in ranks[0]) / len(batches)
        metrics["actor/grad_norm"] = sum(update.grad_norm for update in ranks[0]) / len(batches)
        metrics["golden/num_labelled_states"] = float(sum(len(states) for states in batches))
        statistics = ranks[0][-1].statistics
        if statistics:
            metrics.update(statistics_metrics(statistics))
            self.tensors.append([{"step": self.global_steps, "tensors": statistics}])

    def _resolution(self) -> torch.dtype:
        """The serving dtype: smaller changes are lost. Stochastic rounding loses no change of a master weight."""
        if read_serving(self.config).rounding == "stochastic":
            return torch.float32
        return PrecisionType.to_dtype(self.config.actor_rollout_ref.rollout.dtype)

    # ------------------------------ log-probs ------------------------------

    def log_probs(
        self, visits: Sequence[StateVisit], with_hidden_norms: bool = False
    ) -> tuple[list[list[float]], list[float]]:
        """Log-probs of each state's tokens under the actor's weights, and the hidden norms if requested."""
        states = [StateTokens(visit.ids, visit.tokens) for visit in visits]
        ranks = self.actor_rollout_wg.state_log_probs(states, with_hidden_norms)
        found = {index: values for rank in ranks for index, values in rank.log_probs.items()}
        return [_at_most_zero(found[index]) for index in range(len(visits))], ranks[0].hidden_norms

    def ask_engine(self, visits: Sequence[StateVisit], moment: Moment) -> None:
        """Record each state's token log-probs under the served weights."""
        with self.timed(f"engine_{moment}"):
            found = self._served(visits)
        for visit, values in zip(visits, found, strict=True):
            visit.engine[moment] = _at_most_zero(values)

    def _served(self, visits: Sequence[StateVisit]) -> list[list[float]]:
        return self.engines.next_token_log_probs([v.ids for v in visits], [v.tokens for v in visits])

    def _ask_reference(self, visits: Sequence[StateVisit]) -> None:
        if not self.golden.reference:
            return
        missing = self._reference.missing(visits)
        if missing:
            for rank in self.actor_rollout_wg.reference_log_probs([asked for _, asked in missing]):
                for index, values in rank.log_probs.items():
                    visit, asked = missing[index]
                    self._reference.add(visit, asked.tokens, _at_most_zero(values))
        self._reference.fill(visits)

    def check_engine(self, visits: Sequence[StateVisit], moment: Moment) -> dict[str, float]:
        """Check that engine and trainer give the same tokens the same probability.

        Returns:
            Metrics `engine_guard/*`.

        Raises:
            StaleEngineError: they differ by more than `engine_guard.max_probs_diff` on average.
        """
        differences = probability_gaps(visits, moment)
        allowed = read_guards(self.config).engine_guard.max_probs_diff
        if allowed is not None and differences.mean() > allowed:
            raise StaleEngineError(
                f"The rollout engine serves other weights than the actor trains: {moment} the update of step "
                f"{self.global_steps} the probabilities of {len(differences)} tokens of {len(visits)} states differ by "
                f"{differences.mean():.2g} on average (allowed: {allowed:g}). The weight synchronisation did not reach "
                "the engine, or both compute in different precision: raise engine_guard.max_probs_diff if the latter "
                "is intended."
            )
        return {
            f"engine_guard/probs_diff_mean/{moment}": float(differences.mean()),
            f"engine_guard/probs_diff_max/{moment}": float(differences.max()),
        }

    # ------------------------------ probes ------------------------------

    def validation_metrics(self) -> dict[str, float]:
        """Free rollouts of every problem with fixed shares of its golden solution hidden, judged as in training."""
        probe = self.golden.probe
        states = probe_states(self.problems.values(), probe.shares)
        labels = self.visitor.pass_rates([state for _, state in states], self.problems, probe.rollouts)
        rows = probe_rows(min(self.global_steps, self.total_training_steps), states, labels)
        self.probes.append(rows)
        return probe_metrics(rows, probe.rollouts)

    def num_validation_prompts(self) -> int | None:
        """A problem has several probe states."""

    # ------------------------------ metrics ------------------------------

    def _count(self, visits: Sequence[StateVisit]) -> None:
        """Counts rollouts of states with a labelled token as trained on; for tokens it counts the labelled ones."""
        for visit in visits:
            is_labelled = visit.credit.advantages != 0
            self.totals.rollouts_generated += visit.num_rollouts if visit.recorded is None else 0
            self.totals.rollouts_trained += visit.num_rollouts if is_labelled.any() else 0
            self.totals.tokens_trained += int(is_labelled.sum())

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        """Only this recipe's metrics: verl's describe responses."""
        self.totals.add_step(timing_raw)
        metrics.update({STEP: global_steps, "training/epoch": epoch})
        metrics.update({f"timing_s/{name}": seconds for name, seconds in timing_raw.items()})
        metrics.update(self.totals.metrics())
        metrics["golden/states_per_hour"] = 3600 * len(self.visits) / timing_raw["step"]
        self.metrics_stream.append(metrics)

    def summary(self) -> dict[str, Any]:
        """In addition to the base's: results for the labelled tokens, k, and the probes of each problem."""
        k_before = min(self.golden.redaction.initial_k, *(len(p.golden_ids) for p in self.problems.values()))
        now = self.controller.metrics()
        found = run_findings(
            self.probes.read(), self.movement.moved, k_before, now["golden/k/mean"], now["golden/k/share_reached"]
        )
        return super().summary() | {"golden": asdict(found), "findings": found.lines()}

    def on_step_end(self) -> None:
        """The weights were sent within the step, because its records need the engine's log-probs, and a checkpoint
        needs the records."""

    # ------------------------------ checkpoints ------------------------------

    def signal_state(self) -> dict[str, Any]:
        return super().signal_state() | {
            "redaction": self.controller.state_dict(self.new_visits.in_flight),
            "num_bytes": {name: lines.num_bytes for name, lines in self._files().items()},
            "num_warm_used": self._earlier.num_used,
            "num_updates": self._num_updates,
        }

    def load_signal_state(self, state: dict[str, Any]) -> None:
        super().load_signal_state(state)
        self.controller.load_state_dict(state["redaction"])
        for name, lines in self._files().items():
            lines.cut_back_to(state["num_bytes"][name])
        self._earlier.num_used, self._num_updates = state["num_warm_used"], state["num_updates"]

    def _files(self) -> dict[str, TrainingRecords | JsonLines]:
        return {"entries": self.records, "probes": self.probes, "tensors": self.tensors}


def _at_most_zero(log_probs: Sequence[float]) -> list[float]:
    """A float32 log-softmax may exceed 0 by a few ulps."""
    return [min(0.0, value) for value in log_probs]


def _end_tokens(model: str, tokenizer: Any) -> frozenset[int]:
    """Token ids that end a text: the tokenizer's, and those of the model's generation settings."""
    try:
        more = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # a model without such a file
        more = None
    found = [tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    return frozenset(int(token) for token in found if token is not None)
