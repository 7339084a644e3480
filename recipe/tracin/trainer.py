"""TracIn on verl's trainer: scores every sample of a batch, and lets the actor's update see those that help validation.

Off by default: with `tracin.enable=false` it is the plain trainer, so that every recipe can build on it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role, create_rl_dataset
from verl.trainer.ppo.v1 import register_trainer
from verl.utils.debug import marked_timer

from recipe.tracin.disjoint import check_disjoint, text_identity
from recipe.tracin.selection import Selection, make_divisible, recentre, select, selection_metrics
from recipe.tracin.settings import TracInSettings, read_settings
from recipe.tracin.validation import ValidationSet
from recipe.tracin.validation_rollouts import ValidationRollouts
from verl_ext.influence.denominators import mini_batches, row_factors, rows_to_mask
from verl_ext.influence.worker import InfluenceWorker, RankScores
from verl_ext.json_lines import JsonLines
from verl_ext.trainer import SignalTrainer

MASKS = ("response_mask", "loss_mask")


@register_trainer("tracin")
class TracInTrainer(SignalTrainer):
    """Between the advantages and the actor's update: validation gradient, scores, selection.

    The critic, where there is one, learns from every sample. What a selection changes in TransferQueue (masks,
    advantages) is undone after the update, so that metrics describe the whole batch.
    """

    def __init__(self, config: DictConfig) -> None:
        self.tracin: TracInSettings = read_settings(config)
        self.validation_rollouts: ValidationRollouts | None = None
        self._skip_update = False
        self._has_gradient = False  # of a validation set, for this step
        self._before_selection: TensorDict | None = None
        self._left_out: list[str] = []  # keys of rows that left the batch
        super().__init__(config)
        self.influence_records = JsonLines(self.run_folder.influence)

    # ------------------------------ set-up ------------------------------

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self.tracin.enable:
            for role in (Role.ActorRollout, Role.ActorRolloutRef):
                if role in self.role_worker_mapping:
                    self.role_worker_mapping[role] = ray.remote(InfluenceWorker)

    def on_init_end(self) -> None:
        if self.tracin.enable:
            self.actor_rollout_wg.set_up_influence(self.tracin.parameters)
            self.validation_rollouts = self.new_validation_rollouts()
        super().on_init_end()

    def new_validation_rollouts(self) -> ValidationRollouts | None:
        """An empty validation set for this run's settings; None if they need none.

        Raises:
            ValidationOverlapError: its prompts are trained on.
        """
        if not self.tracin.enable or self.tracin.validation.strategy == "in_batch":
            return None
        settings, data = self.tracin.validation, self.config.data
        dataset = create_rl_dataset(
            self.config.tracin.validation_files, data, self.tokenizer, self.processor, is_train=False
        )
        prompts = list(dataset.dataframe[data.prompt_key])
        check_disjoint(
            [text_identity(prompt) for prompt in self.train_dataset.dataframe[data.prompt_key]],
            [text_identity(prompt) for prompt in prompts],
            [prompt[-1]["content"] for prompt in prompts],
        )
        values = None
        if settings.field is not None:
            values = [info.get(settings.field, float("nan")) for info in dataset.dataframe["extra_info"]]
        chooser = ValidationSet(settings, len(dataset), values)
        return ValidationRollouts(chooser, dataset, self.actor_rollout_wg.world_size)

    # ------------------------------ one step ------------------------------

    def after_collect(self, metrics: dict[str, Any]) -> None:
        super().after_collect(metrics)
        if self.validation_rollouts is None:
            return
        with marked_timer("tracin_rollouts", self.timing_raw):
            made = self.validation_rollouts.refresh(self.global_steps, self.agent_loop_manager)
        metrics["tracin/validation/rollouts_generated"] = made
        metrics.update(self.validation_rollouts.chooser.metrics())

    def select_samples(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super().select_samples(batch, metrics)
        self._skip_update, self._before_selection = False, None
        if not self.tracin.enable or not self._take_validation_gradient(metrics) or self.tracin.one_pass:
            return batch
        batch.extra_info.update(self._mini_batch_info())
        batch.extra_info["in_batch"] = self.tracin.validation.strategy == "in_batch"
        batch.extra_info["check_identity"] = self._checks_identity
        with marked_timer("tracin_scoring", self.timing_raw):
            output = self.actor_rollout_wg.compute_influence(batch)
            metrics.update({f"tracin/{name}": value for name, value in output["metrics"].items()})
            scores = self._take_scores(batch, metrics)
        return self._apply_selection(batch, scores, metrics)

    def update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        if not self.tracin.enable:
            return super().update_actor(batch, metrics)
        metrics["tracin/update_skipped"] = float(self._skip_update)
        if self._skip_update:
            return batch
        if self.tracin.one_pass and self._has_gradient:
            return self._update_in_one_pass(batch, metrics)
        return super().update_actor(batch, metrics)

    def _update_in_one_pass(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Scores and update at once; the worker decides by the same rule as `select`."""
        settings = self.tracin.selection
        batch.extra_info["one_pass"] = {
            "rule": settings.rule,
            "denominator": settings.denominator,
            "check_identity": self._checks_identity,
        }
        batch = super().update_actor(batch, metrics)
        del batch.extra_info["one_pass"]
        scores = self._take_scores(batch, metrics)
        selection = select(scores[self._real_rows(batch)], settings, self.global_steps)
        metrics["tracin/update_skipped"] = float(selection.is_empty)
        self._report(batch, scores, selection, metrics)
        return batch

    def after_update(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> None:
        if self._before_selection is not None:
            tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=self._before_selection)
            self._before_selection = None
        if self._left_out:
            tq.kv_clear(keys=self._left_out, partition_id=batch.partition_id)
            self._left_out = []
        super().after_update(batch, metrics)

    # ------------------------------ scores ------------------------------

    @property
    def _checks_identity(self) -> bool:
        every = self.tracin.check_identity_every
        return every > 0 and (self.global_steps - 1) % every == 0

    def _take_validation_gradient(self, metrics: dict[str, Any]) -> bool:
        """Whether there is a gradient to compare with."""
        self._has_gradient = True
        if self.validation_rollouts is not None:
            validation = self.validation_rollouts.batch(self.config.actor_rollout_ref.rollout.temperature)
            self._has_gradient = validation is not None
            if validation is not None:
                with marked_timer("tracin_validation", self.timing_raw):
                    output = self.actor_rollout_wg.compute_validation_gradient(validation)
                metrics.update({f"tracin/{name}": value for name, value in output["metrics"].items()})
        return self._has_gradient

    def _mini_batch_info(self) -> dict[str, Any]:
        """What verl's `_update_actor` tells the worker: the scores are to be those of the loss that it computes."""
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        return {
            "calculate_entropy": actor.calculate_entropy or actor.entropy_coeff != 0.0,
            "global_batch_size": actor.ppo_mini_batch_size * rollout.n,
            "mini_batch_size": actor.ppo_mini_batch_size * rollout.n,
            "epochs": actor.ppo_epochs,
            "seed": actor.data_loader_seed,
            "dataloader_kwargs": {"shuffle": actor.shuffle},
            "temperature": rollout.temperature,
        }

    def _take_scores(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> np.ndarray:
        """(rows of the batch,) float64: each rank has a contiguous part of the batch."""
        parts: list[RankScores] = sorted(self.actor_rollout_wg.take_influence_scores(), key=lambda part: part.rank)
        errors = [part.identity_error for part in parts if part.identity_error is not None]
        if errors:
            metrics["tracin/identity_error"] = max(errors)
        scores = np.concatenate([part.scores for part in parts])
        assert len(scores) == len(batch.keys)
        return scores

    # ------------------------------ selection ------------------------------

    def _apply_selection(self, batch: KVBatchMeta, scores: np.ndarray, metrics: dict[str, Any]) -> KVBatchMeta:
        """Mask or drop what is not selected, and weight the advantages of what is."""
        settings, real = self.tracin.selection, self._real_rows(batch)
        size, num_rows = self._mini_batch_info()["mini_batch_size"], len(scores)
        selection, staying = make_divisible(
            select(scores[real], settings, self.global_steps), settings.divisibility, size
        )
        self._report(batch, scores, selection, metrics)
        if selection.is_empty:
            self._skip_update = True
            return batch

        weights = np.zeros(num_rows)
        weights[real] = selection.weights
        scored_in = mini_batches(num_rows, size, self.actor_rollout_wg.world_size)
        if settings.divisibility == "drop":
            positions, masked = real[staying], np.zeros(num_rows, dtype=bool)
            updated_in = np.zeros(num_rows, dtype=np.int64)
            updated_in[positions] = mini_batches(len(positions), size, self.actor_rollout_wg.world_size)
        else:
            positions, masked = np.arange(num_rows), rows_to_mask(weights > 0, scored_in)
            updated_in = scored_in

        fields = ["advantages", "uid", *MASKS]
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        before = {name: list(rows[name].unbind()) for name in ("advantages", *MASKS)}
        factors = row_factors(
            settings.denominator,
            self.config.actor_rollout_ref.actor.loss_agg_mode,
            np.array([int(mask.sum()) for mask in before["response_mask"]]),
            weights,
            scored_in=scored_in,
            updated_in=updated_in,
            global_batch_size=size,
        )
        advantages = before["advantages"]
        if settings.baseline == "after":
            advantages = _recentred(advantages, list(rows["uid"]), weights > 0)
        after = {"advantages": [row * factor for row, factor in zip(advantages, factors, strict=True)]}
        for name in MASKS:
            pairs = zip(before[name], masked, strict=True)
            after[name] = [torch.zeros_like(row) if is_masked else row for row, is_masked in pairs]

        kept = _rows_of(batch, positions)
        tq.kv_batch_put(keys=kept.keys, partition_id=kept.partition_id, fields=_as_fields(after, positions))
        self._before_selection = _as_fields(before, positions)
        self._left_out = sorted(set(batch.keys) - set(kept.keys))
        return kept

    def _real_rows(self, batch: KVBatchMeta) -> np.ndarray:
        """Positions of the rows that do not only fill up the batch."""
        return np.flatnonzero([not tag.get("is_padding", False) for tag in batch.tags])

    def _report(self, batch: KVBatchMeta, scores: np.ndarray, selection: Selection, metrics: dict[str, Any]) -> None:
        """Metrics of the selection, and the scores of every sample in the run's records."""
        real = self._real_rows(batch)
        keys = [batch.keys[position] for position in real]
        rows = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=["rm_scores", "index", "advantages"]
        )
        rewards = np.array([float(row.sum()) for row in rows["rm_scores"].unbind()])
        metrics.update(selection_metrics(scores[real], selection, rewards))
        if not self.tracin.record_scores:
            return
        advantages = [float(row.mean()) for row in rows["advantages"].unbind()]
        columns = zip(keys, list(rows["index"]), rewards, advantages, scores[real], selection.weights, strict=True)
        texts = self._texts_of_extremes(batch.partition_id, keys, scores[real])
        self.influence_records.append(
            {
                "step": self.global_steps,
                "index": index,
                "key": key,
                "reward": float(reward),
                "advantage": advantage,
                "score": float(score),
                "weight": float(weight),
            }
            | ({"text": texts[key]} if key in texts else {})
            for key, index, reward, advantage, score, weight in columns
        )

    def _texts_of_extremes(self, partition_id: str, keys: Sequence[str], scores: np.ndarray) -> dict[str, str]:
        """Prompt and response of the samples with the highest and the lowest scores, by key."""
        order = np.argsort(scores, kind="stable")
        count = min(self.tracin.record_texts, len(order))
        chosen = [keys[place] for place in dict.fromkeys([*order[:count], *order[len(order) - count :]])]
        if not chosen:
            return {}
        rows = tq.kv_batch_get(keys=chosen, partition_id=partition_id, select_fields=["prompts", "responses"])
        columns = (rows[name].unbind() for name in ("prompts", "responses"))
        return {
            key: self.tokenizer.decode([*prompt.tolist(), *response.tolist()], skip_special_tokens=True)
            for key, prompt, response in zip(chosen, *columns, strict=True)
        }

    # ------------------------------ state ------------------------------

    def signal_state(self) -> dict[str, Any]:
        state = super().signal_state() | {"influence_records_bytes": self.influence_records.num_bytes}
        if self.validation_rollouts is not None:
            state["validation_rollouts"] = self.validation_rollouts.state_dict()
        return state

    def load_signal_state(self, state: dict[str, Any]) -> None:
        super().load_signal_state(state)
        self.influence_records.cut_back_to(state.get("influence_records_bytes", 0))
        if self.validation_rollouts is not None and "validation_rollouts" in state:
            self.validation_rollouts.load_state_dict(state["validation_rollouts"])


def _recentred(advantages: list[torch.Tensor], uids: list[str], kept: np.ndarray) -> list[torch.Tensor]:
    """Advantages of one number a row, centred again among the kept siblings."""
    values = recentre(np.array([float(row[0]) if len(row) else 0.0 for row in advantages]), uids, kept)
    return [torch.full_like(row, value) for row, value in zip(advantages, values, strict=True)]


def _rows_of(batch: KVBatchMeta, positions: np.ndarray) -> KVBatchMeta:
    return KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[batch.keys[position] for position in positions],
        tags=[batch.tags[position] for position in positions],
        fields=batch.fields,
        extra_info=batch.extra_info,
    )


def _as_fields(columns: dict[str, list[torch.Tensor]], positions: np.ndarray) -> TensorDict:
    """Rows of different lengths as TransferQueue takes them."""
    nested = {
        name: torch.nested.as_nested_tensor([rows[position] for position in positions], layout=torch.jagged)
        for name, rows in columns.items()
    }
    return TensorDict(nested, len(positions))
