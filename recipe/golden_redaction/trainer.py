"""Golden redaction on verl's trainer: states instead of prompts, single tokens instead of responses.

A step visits `entries_per_update * sync_every` states under one weight version, makes `sync_every` updates of
`entries_per_update` states each, sends the weights to the engines, and measures what became of every token, in the
trainer and in the serving engine. All decisions are in the pure modules beside this one.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from transfer_queue import KVBatchMeta
from transformers import GenerationConfig
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import register_trainer
from verl.utils.debug import marked_timer
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.rollout.replica import RolloutReplicaRegistry

from recipe.golden_redaction.checks import data_files
from recipe.golden_redaction.credit import StateCredit, assign_credit
from recipe.golden_redaction.findings import run_findings
from recipe.golden_redaction.labelled_states import LabelledState, ReferenceLogProbs, StateTokens, mini_batches
from recipe.golden_redaction.movement import Movement, movement, movement_metrics
from recipe.golden_redaction.probes import probe_metrics, probe_rows, probe_states
from recipe.golden_redaction.problems import read_problems
from recipe.golden_redaction.records import TrainingRecords, make_entry, warm_start
from recipe.golden_redaction.redaction import RedactedState, RedactionController
from recipe.golden_redaction.rollouts import StateVisitor
from recipe.golden_redaction.sandbox import make_executor
from recipe.golden_redaction.settings import read_settings
from recipe.golden_redaction.targets import Targets, target_log_probs
from recipe.golden_redaction.tensor_statistics import statistics_metrics
from recipe.golden_redaction.visits import Visit, visit_metrics
from recipe.golden_redaction.worker import GoldenWorker, RankLogProbs, RankUpdate
from verl_ext.engines import ServingEngines
from verl_ext.errors import StaleEngineError
from verl_ext.json_lines import JsonLines
from verl_ext.metrics_stream import STEP
from verl_ext.trainer import SignalTrainer

ATTENTION_DTYPES = {"bf16": torch.bfloat16}

LogProbs = list[list[float]]  # of each state's tokens


def _accelerated_replica() -> Any:
    from verl_ext.serving import SignalvLLMReplica

    return SignalvLLMReplica


@register_trainer("golden_redaction")
class GoldenTrainer(SignalTrainer):
    """Moves single tokens of golden solutions. verl's data loader and agent loops have nothing to do here."""

    def __init__(self, config: DictConfig) -> None:
        self.golden = read_settings(config)
        if config.trainer.device != "cpu":  # the CPU backend registers its own
            RolloutReplicaRegistry.register("vllm", _accelerated_replica)
        super().__init__(config)
        self.records = TrainingRecords(self.run_folder.golden_entries)
        self.probes = JsonLines(self.run_folder.golden_probes)
        self.tensors = JsonLines(self.run_folder.golden_tensors)
        self._text_log_probs: dict[str, list[float]] = {}  # under the present policy, by problem
        self._text_reference: dict[str, list[float]] = {}  # under the weights that the run began with
        self._reference = ReferenceLogProbs()
        self._warm: list[Visit] = []
        self._num_warm_used = 0
        self._num_updates = 0
        self._moved: Counter[str] = Counter()  # labelled tokens of the run, by what became of them in the engine

    # ------------------------------ set-up ------------------------------

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(GoldenWorker)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        problems, _ = read_problems(data_files(self.config), self.tokenizer, self.golden.limits)
        self.problems = {problem.id: problem for problem in problems}
        lengths = {problem.id: len(problem.golden_ids) for problem in problems}
        self.controller = RedactionController(lengths, self.golden.redaction)
        if self.golden.records.warm_start is not None:
            self._read_warm_start()

    def _read_warm_start(self) -> None:
        settings = self.golden.records
        read = warm_start(Path(str(settings.warm_start)), settings.max_staleness)
        visits = [Visit.from_entry(entry) for entry in read.entries]
        self._warm = [visit for visit in visits if self._is_ours(visit)]
        print(
            f"warm start: {len(self._warm)} of {read.num_read} entries of {settings.warm_start} "
            f"({read.num_stale} too old, {len(visits) - len(self._warm)} of other problems or token ids)"
        )

    def _is_ours(self, visit: Visit) -> bool:
        problem = self.problems.get(visit.problem)
        if problem is None or not 1 <= visit.k <= len(problem.golden_ids):
            return False
        return visit.ids == (*problem.prompt_ids, *problem.golden_ids[: len(problem.golden_ids) - visit.k])

    def on_init_end(self) -> None:
        if self.golden.attention_dtype is not None:
            self.actor_rollout_wg.compute_attention_in(ATTENTION_DTYPES[self.golden.attention_dtype])
        self.engines = ServingEngines(self.llm_server_manager.get_replicas())
        self.executor = make_executor(self.golden.sandbox)
        self.visitor = StateVisitor(
            self.engines,
            self.executor,
            self.tokenizer,
            _end_tokens(self.config.actor_rollout_ref.model.path, self.tokenizer),
            self.golden.credit,
            self.golden.max_new_tokens,
            self.golden.records.outputs,
        )
        super().on_init_end()
        if self.golden.records.prompt_log_probs:
            self._text_reference = self._reference_of_texts()

    def fit(self, agent_loop_manager: Any) -> None:
        try:
            super().fit(agent_loop_manager)
        finally:
            self.executor.close()

    # ------------------------------ one step ------------------------------

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """Visit, label, update, measure, record. Nothing of it is in TransferQueue."""
        version = self.global_steps - 1
        visits = self._next_visits(version, metrics)
        engine_before = self._engine_log_probs(visits, "engine_before")
        self.checkpoint_manager.sleep_replicas()

        with self._timed("old_log_prob"):
            before, _ = self._log_probs(self.actor_rollout_wg.state_log_probs(_tokens_of(visits)), visits)
        self._check_engine(visits, engine_before, before, "before", metrics)
        with self._timed("ref"):
            reference = self._reference_log_probs(visits)

        credits = [assign_credit(v.labels, own, self.golden.credit) for v, own in zip(visits, before, strict=True)]
        targets = [
            target_log_probs(own, credit.advantages, self.golden.targets)
            for own, credit in zip(before, credits, strict=True)
        ]
        metrics.update(visit_metrics(visits, credits))
        with self._timed("update_actor"):
            size, reduction = self.golden.entries_per_update, self.golden.targets.reduction
            self._update(mini_batches(visits, credits, targets, size, reduction), metrics)
        with self._timed("log_prob_after"):
            ranks = self.actor_rollout_wg.state_log_probs(_tokens_of(visits), with_hidden_norms=True)
            after, hidden_norms = self._log_probs(ranks, visits)
        with self._timed("update_weights"):
            self.checkpoint_manager.update_weights(self.global_steps)
        engine_after = self._engine_log_probs(visits, "engine_after")
        self._check_engine(visits, engine_after, after, "after", metrics)

        for where, old, new in (("trainer", before, after), ("engine", engine_before, engine_after)):
            moved = self._movements(old, new, targets, credits)
            metrics.update(movement_metrics(moved, where))
        self._moved.update(kind for state in moved for kind in state.kinds if kind)  # as the engine serves them
        if hidden_norms:
            metrics["golden/hidden_norm/first"], metrics["golden/hidden_norm/last"] = hidden_norms[0], hidden_norms[-1]
            metrics["golden/hidden_norm/max"] = max(hidden_norms)
        self._record(visits, credits, targets, (before, after, engine_after, reference))
        for visit, credit in zip(visits, credits, strict=True):
            self.controller.observe(visit.problem, visit.k, credit.state_reward)
        metrics.update(self.controller.metrics())
        self._count(visits, credits)
        return self._nothing_in_the_queue()

    def _nothing_in_the_queue(self) -> KVBatchMeta:
        """A batch with one name and no data, as verl clears what a step returns, and cannot clear nothing."""
        key = f"golden_redaction_{self.global_steps}"
        tq.kv_put(key=key, partition_id="train", tag={"is_padding": True})
        return KVBatchMeta(partition_id="train", keys=[key], tags=[{"is_padding": True}])

    def _next_visits(self, version: int, metrics: dict[str, Any]) -> list[Visit]:
        """Recorded visits of a warm start as long as there are some, then new ones."""
        count = self.golden.entries_per_update * self.golden.sync_every
        if self._num_warm_used < len(self._warm):
            visits = self._warm[self._num_warm_used : self._num_warm_used + count]
            self._num_warm_used += len(visits)
            metrics["golden/visits/warm"] = float(len(visits))
            return visits
        states = self.controller.next_states(count)
        if self.golden.redaction.decided_above is not None or self.golden.records.prompt_log_probs:
            with self._timed("settle"):
                states = self._settle(states)
        return self.visitor.visit(states, self.problems, version, self._timed)

    def _settle(self, states: Sequence[RedactedState]) -> list[RedactedState]:
        self._text_log_probs = self._measure_texts([state.problem for state in states])
        settled = []
        for state in states:
            length = len(self.problems[state.problem].golden_ids)
            settled.append(self.controller.settle(state, self._text_log_probs[state.problem][-length:]))
        return settled

    def _measure_texts(self, problems: Sequence[str]) -> dict[str, list[float]]:
        """Log-probs of every token of each prompt and golden solution but the first, as the engines serve them."""
        texts = [(*self.problems[name].prompt_ids, *self.problems[name].golden_ids) for name in problems]
        return dict(zip(problems, self.engines.prompt_log_probs(texts), strict=True))

    def _update(self, batches: list[list[LabelledState]], metrics: dict[str, Any]) -> None:
        metrics["golden/num_updates"] = float(len(batches))
        if not batches:
            return
        every = self.golden.tensor_statistics_every
        is_due = every > 0 and self._num_updates // every != (self._num_updates + len(batches)) // every
        dtype = PrecisionType.to_dtype(self.config.actor_rollout_ref.rollout.dtype) if is_due else None
        ranks: list[list[RankUpdate]] = self.actor_rollout_wg.train_states(batches, dtype)
        self._num_updates += len(batches)
        metrics["golden/loss"] = sum(update.loss for rank in ranks for update in rank) / len(batches)
        metrics["actor/grad_norm"] = sum(update.grad_norm for update in ranks[0]) / len(batches)
        metrics["golden/num_labelled_states"] = float(sum(len(states) for states in batches))
        statistics = ranks[0][-1].statistics
        if statistics:
            metrics.update(statistics_metrics(statistics))
            self.tensors.append([{"step": self.global_steps, "tensors": statistics}])

    # ------------------------------ log-probs ------------------------------

    def _log_probs(self, ranks: list[RankLogProbs], visits: Sequence[Visit]) -> tuple[LogProbs, list[float]]:
        found = {index: values for rank in ranks for index, values in rank.log_probs.items()}
        # A float32 log-softmax may end a few ulps above 0.
        return [[min(0.0, value) for value in found[index]] for index in range(len(visits))], ranks[0].hidden_norms

    def _engine_log_probs(self, visits: Sequence[Visit], name: str) -> LogProbs:
        with self._timed(name):
            found = self.engines.next_token_log_probs([v.ids for v in visits], [v.tokens for v in visits])
        return [[min(0.0, value) for value in values] for values in found]

    def _reference_log_probs(self, visits: Sequence[Visit]) -> LogProbs | None:
        if not self.golden.reference:
            return None
        missing = self._reference.missing(visits)
        if missing:
            places = list(missing)
            for rank in self.actor_rollout_wg.reference_log_probs(list(missing.values())):
                for index, values in rank.log_probs.items():
                    place = places[index]
                    self._reference.add(visits[place], missing[place].tokens, [min(0.0, value) for value in values])
        return self._reference.of(visits)

    def _check_engine(
        self, visits: Sequence[Visit], engine: LogProbs, trainer: LogProbs, when: str, metrics: dict[str, Any]
    ) -> None:
        """Engine and trainer must give the same tokens the same probability.

        Raises:
            StaleEngineError: they differ by more than `engine_guard.max_probs_diff` on average.
        """
        differences = np.abs(np.exp(np.concatenate(engine)) - np.exp(np.concatenate(trainer)))
        metrics[f"engine_guard/probs_diff_mean/{when}"] = float(differences.mean())
        metrics[f"engine_guard/probs_diff_max/{when}"] = float(differences.max())
        allowed = self.config.engine_guard.max_probs_diff
        if allowed is not None and differences.mean() > allowed:
            raise StaleEngineError(
                f"The rollout engine serves other weights than the actor trains: {when} the update of step "
                f"{self.global_steps} the probabilities of {len(differences)} tokens of {len(visits)} states differ by "
                f"{differences.mean():.2g} on average (allowed: {allowed:g}). The weight synchronisation did not reach "
                "the engine, or both compute in different precision: raise engine_guard.max_probs_diff if the latter "
                "is intended."
            )

    def _movements(
        self, before: LogProbs, after: LogProbs, targets: Sequence[Targets], credits: Sequence[StateCredit]
    ) -> list[Movement]:
        return [
            movement(old, new, target.log_probs, credit.advantages, self.golden.movement_tolerance)
            for old, new, target, credit in zip(before, after, targets, credits, strict=True)
        ]

    def _reference_of_texts(self) -> dict[str, list[float]]:
        """What the engines say before the first update; a resumed run reads what it wrote then, if that is there."""
        path = self.run_folder.golden_reference
        if self.global_steps == 0:
            found = self._measure_texts(list(self.problems))
            path.write_text(json.dumps(found), encoding="utf-8")
            return found
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    # ------------------------------ probes ------------------------------

    def _validate(self) -> dict[str, float]:
        """Free rollouts of every problem with fixed shares of its golden solution hidden, judged on the examples."""
        probe = self.golden.probe
        states = probe_states(self.problems.values(), probe.shares)
        labels = self.visitor.pass_rates([state for _, state in states], self.problems, probe.rollouts)
        rows = probe_rows(min(self.global_steps, self.total_training_steps), states, labels)
        self.probes.append(rows)
        metrics = probe_metrics(rows, probe.rollouts)
        self.val_accuracy = metrics[f"val-core/golden/acc/mean@{probe.rollouts}"]
        if self.val_accuracy_before is None:
            self.val_accuracy_before = self.val_accuracy
        return metrics

    # ------------------------------ records ------------------------------

    def _record(
        self,
        visits: Sequence[Visit],
        credits: Sequence[StateCredit],
        targets: Sequence[Targets],
        log_probs: tuple[LogProbs, LogProbs, LogProbs, LogProbs | None],
    ) -> None:
        if not self.golden.records.enable:
            return
        before, after, engine_after, reference = log_probs
        self.records.append(
            [
                make_entry(
                    step=self.global_steps,
                    weight_version=visit.weight_version,
                    problem=visit.problem,
                    k=visit.k,
                    prompt_ids=visit.ids,
                    teacher=visit.teacher,
                    tokens=visit.tokens,
                    rollouts=visit.rollouts,
                    credit=credits[place],
                    targets=targets[place].log_probs,
                    log_probs_before=before[place],
                    log_probs_after_trainer=after[place],
                    log_probs_after_engine=engine_after[place],
                    log_probs_reference=None if reference is None else reference[place],
                    prompt_log_probs=self._log_probs_of_state(visit),
                )
                for place, visit in enumerate(visits)
            ]
        )

    def _log_probs_of_state(self, visit: Visit) -> dict[str, list[float | None]] | None:
        """Of the state's own tokens: measured before the update, and at the beginning of the run."""
        known = {"policy": self._text_log_probs, "reference": self._text_reference}
        if not self.golden.records.prompt_log_probs or not all(visit.problem in texts for texts in known.values()):
            return None
        length = len(visit.ids)
        return {
            name: [None, *(round(value, 4) for value in texts[visit.problem][: length - 1])]
            for name, texts in known.items()
        }

    def _count(self, visits: Sequence[Visit], credits: Sequence[StateCredit]) -> None:
        """Of rollouts: those of states with a labelled token are trained on. A rollout's tokens are not counted here:
        one token of each state is."""
        version = self.global_steps - 1
        for visit, credit in zip(visits, credits, strict=True):
            self.totals.rollouts_generated += visit.num_rollouts if visit.weight_version == version else 0
            self.totals.rollouts_trained += visit.num_rollouts if credit.advantages.any() else 0
            self.totals.tokens_trained += int((credit.advantages != 0).sum())

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        """Of this recipe alone: verl's describe responses."""
        self.totals.add_step(timing_raw)
        metrics.update({STEP: global_steps, "training/epoch": epoch})
        metrics.update({f"timing_s/{name}": seconds for name, seconds in timing_raw.items()})
        metrics.update(self.totals.metrics())
        self.metrics_stream.append(metrics)

    def summary(self) -> dict[str, Any]:
        """Beside the base's: what became of the labelled tokens, of k, and of the probes of each problem."""
        k_before = min(self.golden.redaction.initial_k, *(len(p.golden_ids) for p in self.problems.values()))
        found = run_findings(self.probes.read(), self._moved, k_before, self.controller.metrics()["golden/k/mean"])
        return super().summary() | {"golden": asdict(found), "findings": found.lines()}

    def _timed(self, name: str) -> AbstractContextManager[None]:
        return marked_timer(name, self.timing_raw)

    def on_step_end(self) -> None:
        """The weights were sent within the step: its records need the engine's answer, and a checkpoint the records."""

    # ------------------------------ checkpoints ------------------------------

    def signal_state(self) -> dict[str, Any]:
        return super().signal_state() | {
            "redaction": self.controller.state_dict(),
            "num_bytes": {name: lines.num_bytes for name, lines in self._files().items()},
            "num_warm_used": self._num_warm_used,
            "num_updates": self._num_updates,
            "moved": dict(self._moved),
        }

    def load_signal_state(self, state: dict[str, Any]) -> None:
        super().load_signal_state(state)
        self.controller.load_state_dict(state["redaction"])
        for name, lines in self._files().items():
            lines.cut_back_to(state["num_bytes"][name])
        self._num_warm_used, self._num_updates = state["num_warm_used"], state["num_updates"]
        self._moved = Counter(state["moved"])

    def _files(self) -> dict[str, TrainingRecords | JsonLines]:
        return {"entries": self.records, "probes": self.probes, "tensors": self.tensors}


def _tokens_of(visits: Sequence[Visit]) -> list[StateTokens]:
    return [StateTokens(visit.ids, visit.tokens) for visit in visits]


def _end_tokens(model: str, tokenizer: Any) -> frozenset[int]:
    """Token ids after which a text is over: the tokenizer's, and those of the model's generation settings."""
    try:
        more = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # a model without such a file
        more = None
    found = [tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    return frozenset(int(token) for token in found if token is not None)
