"""TracIn as a part: scores every sample of a batch, and restricts the actor's update to those that help validation."""

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import torch
from tensordict import TensorDict
from verl.trainer.ppo.utils import create_rl_dataset

from recipe.tracin.influence_records import InfluenceRecords
from recipe.tracin.method.disjoint import check_disjoint
from recipe.tracin.method.selection import (
    Selection,
    make_divisible,
    recentre,
    select,
    select_samples,
    selection_metrics,
)
from recipe.tracin.method.validation import ValidationSet
from recipe.tracin.recipe import NO_IMAGES
from recipe.tracin.settings import TracInSettings, read_settings, share_text
from recipe.tracin.validation_rollouts import ValidationRollouts
from verl_ext.core.errors import ConfigError
from verl_ext.data.prompt_identity import text_identity
from verl_ext.influence.method.denominators import TOKEN_MODES, mini_batches, row_factors, rows_to_mask
from verl_ext.influence.worker import InfluenceWorker, RankScores
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.rollout_key import uid_of
from verl_ext.trainer.parts import Selector, Trainer

MASKS = ("response_mask", "loss_mask")


class TracInSelector(Selector):
    """Between the advantages and the actor's update: validation gradient, scores, selection.

    A selection's changes in the data plane (masks, advantages) are undone after the update, so that metrics describe
    the whole batch. Joins every trainer whose configuration has `tracin.enable=true`.

    Attributes:
        settings: Settings from `config.tracin`.
        validation_rollouts: None with `validation.strategy=in_batch`.
        records: Writes the scores of every step.
    """

    worker_class: ClassVar[type | None] = InfluenceWorker

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.settings: TracInSettings = read_settings(trainer.config)
        self.validation_rollouts: ValidationRollouts | None = None
        self.records = InfluenceRecords(trainer, self.settings.record_texts)
        self._metrics: dict[str, Any] = {}
        self._share_scored: float | None = None
        self._before_selection: tuple[list[str], TensorDict] | None = None

    # ------------------------------ set-up ------------------------------

    def set_up_data(self) -> None:
        if self._trainer.processor is not None:
            raise ConfigError(
                f"actor_rollout_ref.model.path={self._trainer.config.actor_rollout_ref.model.path}: {NO_IMAGES}"
            )
        self.validation_rollouts = self.new_validation_rollouts()

    def new_validation_rollouts(self) -> ValidationRollouts | None:
        """An empty validation set for this run's settings; None if they need none.

        Raises:
            ValidationOverlapError: its prompts are trained on.
        """
        settings, config, trainer = self.settings.validation, self._trainer.config, self._trainer
        if settings.strategy == "in_batch":
            return None
        dataset = create_rl_dataset(
            config.tracin.validation_files, config.data, trainer.tokenizer, trainer.processor, is_train=False
        )
        prompts = list(dataset.dataframe[config.data.prompt_key])
        check_disjoint(
            [text_identity(prompt) for prompt in trainer.train_dataset.dataframe[config.data.prompt_key]],
            [text_identity(prompt) for prompt in prompts],
            [prompt[-1]["content"] for prompt in prompts],
        )
        values = None
        if settings.field is not None:
            values = [info.get(settings.field, float("nan")) for info in dataset.dataframe["extra_info"]]
        return ValidationRollouts(ValidationSet(settings, len(dataset), values), dataset)

    def set_up_workers(self) -> None:
        shares: list[float] = self._trainer.actor_rollout_wg.set_up_influence(
            self.settings.parameters, self.settings.preconditioner
        )
        self._share_scored = min(shares)
        print(f"tracin: {share_text(self._share_scored)}")

    # ------------------------------ one step ------------------------------

    def generate(self) -> None:
        if self.validation_rollouts is None:
            return
        trainer = self._trainer
        with trainer.timed("tracin_rollouts"):
            made = self.validation_rollouts.refresh(
                trainer.global_steps, trainer.agent_loop_manager, trainer.actor_rollout_wg.world_size
            )
        self._metrics["tracin/validation/rollouts_generated"] = made
        self._metrics |= self.validation_rollouts.chooser.metrics()

    def select(self, batch: KVBatchMeta) -> KVBatchMeta | None:
        self._before_selection = None
        self._metrics["tracin/update_skipped"] = 0.0
        if not self._take_validation_gradient():
            return batch
        if self.settings.one_pass:
            return self._select_in_one_pass(batch)
        batch.extra_info.update(self._mini_batch_info())
        batch.extra_info["in_batch"] = self.settings.validation.strategy == "in_batch"
        batch.extra_info["check_identity"] = self._checks_identity
        with self._trainer.timed("tracin_scoring"):
            output = self._trainer.actor_rollout_wg.compute_influence(batch)
            self._metrics |= {f"tracin/{name}": value for name, value in output["metrics"].items()}
            scores = self._take_scores(batch)
        return self._apply_selection(batch, scores)

    def after_update(self, batch: KVBatchMeta) -> None:
        if "one_pass" in batch.extra_info:
            self._finish_one_pass(batch)
        if self._before_selection is not None:
            keys, columns = self._before_selection
            data_plane.write(keys, batch.partition_id, columns)
            self._before_selection = None

    def _select_in_one_pass(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Score and update in one pass; the worker decides by the same rule as `selection.select`."""
        rule = self.settings.selection
        batch.extra_info["one_pass"] = {
            "rule": rule.rule,
            "denominator": rule.denominator,
            "check_identity": self._checks_identity,
        }
        return batch

    def _finish_one_pass(self, batch: KVBatchMeta) -> None:
        del batch.extra_info["one_pass"]
        scores = self._take_scores(batch)
        selection = select(scores[self._real_rows(batch)], self.settings.selection, self._trainer.global_steps)
        self._metrics["tracin/update_skipped"] = float(selection.is_empty)
        self._report(batch, scores, selection)

    def metrics(self) -> dict[str, Any]:
        metrics, self._metrics = self._metrics, {}
        if metrics and self._share_scored is not None:
            metrics["tracin/share_of_parameters"] = self._share_scored
        return metrics

    # ------------------------------ scores ------------------------------

    @property
    def _checks_identity(self) -> bool:
        every = self.settings.check_identity_every
        return every > 0 and (self._trainer.global_steps - 1) % every == 0

    def _take_validation_gradient(self) -> bool:
        """Whether there is a gradient to compare with."""
        if self.validation_rollouts is None:
            return True
        validation = self.validation_rollouts.batch(self._trainer.config.actor_rollout_ref.rollout.temperature)
        if validation is None:
            return False
        with self._trainer.timed("tracin_validation"):
            output = self._trainer.actor_rollout_wg.compute_validation_gradient(validation)
        self._metrics |= {f"tracin/{name}": value for name, value in output["metrics"].items()}
        return True

    def _mini_batch_info(self) -> dict[str, Any]:
        """The settings that verl's `_update_actor` passes to the worker, so that scores belong to the same loss."""
        actor, rollout = self._trainer.config.actor_rollout_ref.actor, self._trainer.config.actor_rollout_ref.rollout
        return {
            "calculate_entropy": actor.calculate_entropy or actor.entropy_coeff != 0.0,
            "global_batch_size": actor.ppo_mini_batch_size * rollout.n,
            "mini_batch_size": actor.ppo_mini_batch_size * rollout.n,
            "epochs": actor.ppo_epochs,
            "seed": actor.data_loader_seed,
            "dataloader_kwargs": {"shuffle": actor.shuffle},
            "temperature": rollout.temperature,
        }

    def _take_scores(self, batch: KVBatchMeta) -> np.ndarray:
        """(rows of the batch,) float64: each rank has a contiguous part of the batch."""
        ranks: list[RankScores] = self._trainer.actor_rollout_wg.take_influence_scores()
        parts = sorted(ranks, key=lambda part: part.rank)
        errors = [part.identity_error for part in parts if part.identity_error is not None]
        if errors:
            self._metrics["tracin/identity_error"] = max(errors)
        scores = np.concatenate([part.scores for part in parts])
        assert len(scores) == len(batch.keys)
        return scores

    # ------------------------------ selection ------------------------------

    def _apply_selection(self, batch: KVBatchMeta, scores: np.ndarray) -> KVBatchMeta | None:
        """Mask or drop unselected samples and weight the advantages of the others; None if nothing is selected."""
        settings, real = self.settings.selection, self._real_rows(batch)
        size, num_rows = self._mini_batch_info()["mini_batch_size"], len(scores)
        uids = [uid_of(batch.keys[position]) for position in real]
        selection, staying = make_divisible(
            select_samples(scores[real], uids, settings, self._trainer.global_steps), settings.divisibility, size
        )
        self._report(batch, scores, selection)
        if selection.is_empty:
            self._metrics["tracin/update_skipped"] = 1.0
            return None

        weights = np.zeros(num_rows)
        weights[real] = selection.weights
        scored_in = mini_batches(num_rows, size, self._trainer.actor_rollout_wg.world_size)
        if settings.divisibility == "drop":
            positions, masked = real[staying], np.zeros(num_rows, dtype=bool)
            updated_in = np.zeros(num_rows, dtype=np.int64)
            updated_in[positions] = mini_batches(len(positions), size, self._trainer.actor_rollout_wg.world_size)
        else:
            positions, masked = np.arange(num_rows), rows_to_mask(weights > 0, scored_in)
            updated_in = scored_in

        fields = ["advantages", "uid", *MASKS]
        rows = data_plane.read(batch.keys, batch.partition_id, fields)
        before = {name: list(rows[name].unbind()) for name in ("advantages", *MASKS)}
        loss_agg_mode = self._trainer.config.actor_rollout_ref.actor.loss_agg_mode
        counted = "loss_mask" if loss_agg_mode in TOKEN_MODES else "response_mask"  # by verl
        factors = row_factors(
            settings.denominator,
            loss_agg_mode,
            np.array([int(mask.sum()) for mask in before[counted]]),
            weights,
            scored_in=scored_in,
            updated_in=updated_in,
            global_batch_size=size,
        )
        advantages = before["advantages"]
        if settings.baseline == "after":
            advantages = _recentred(advantages, before["response_mask"], list(rows["uid"]), weights > 0)
        after = {"advantages": [row * factor for row, factor in zip(advantages, factors, strict=True)]}
        for name in MASKS:
            pairs = zip(before[name], masked, strict=True)
            after[name] = [torch.zeros_like(row) if is_masked else row for row, is_masked in pairs]

        kept = data_plane.select_rows(batch, positions)
        data_plane.write(kept.keys, kept.partition_id, _columns(after, positions))
        self._before_selection = kept.keys, _columns(before, positions)
        return kept

    def _real_rows(self, batch: KVBatchMeta) -> np.ndarray:
        """Positions of the rows that are not padding."""
        return np.flatnonzero([not tag.get("is_padding", False) for tag in batch.tags])

    def _report(self, batch: KVBatchMeta, scores: np.ndarray, selection: Selection) -> None:
        """Metrics of the selection, the scores of every sample in the run's records, and of every prompt for the
        collector."""
        real = self._real_rows(batch)
        keys, scores = [batch.keys[position] for position in real], scores[real]
        rows = data_plane.read(keys, batch.partition_id, ["rm_scores"])
        rewards = np.array([float(row.sum()) for row in rows["rm_scores"].unbind()])
        self._metrics |= selection_metrics(scores, selection, rewards)
        by_prompt: Counter[str] = Counter()
        for key, score in zip(keys, scores.tolist(), strict=True):
            by_prompt[uid_of(key)] += score
        self._trainer.collector.observe_influence(by_prompt)
        if self.settings.record_scores:
            tags, weights = [batch.tags[position] for position in real], selection.weights
            self.records.write(batch.partition_id, keys, tags, rewards=rewards, scores=scores, weights=weights)

    # ------------------------------ state ------------------------------

    def state_dict(self) -> dict[str, Any]:
        rollouts = self.validation_rollouts
        return {
            "validation_rollouts": None if rollouts is None else rollouts.state_dict(),
            "influence_records_bytes": self.records.lines.num_bytes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.records.lines.cut_back_to(state["influence_records_bytes"])
        if self.validation_rollouts is not None and state["validation_rollouts"] is not None:
            self.validation_rollouts.load_state_dict(state["validation_rollouts"])


def _recentred(
    advantages: list[torch.Tensor], masks: list[torch.Tensor], uids: list[str], kept: np.ndarray
) -> list[torch.Tensor]:
    """Scalar advantages per row, centred again among the kept siblings; tool tokens have none.

    Raises:
        ConfigError: A row's tokens have different advantages.
    """
    values = []
    for row, mask in zip(advantages, masks, strict=True):
        numbers = row[mask.bool()].unique()
        if len(numbers) > 1:
            raise ConfigError(
                "tracin.selection.baseline=after expects one advantage per sample, but the tokens of one have "
                f"{len(numbers)} from {float(numbers[0]):.3g} to {float(numbers[-1]):.3g}: use baseline=before"
            )
        values.append(float(numbers[0]) if len(numbers) else 0.0)
    centred = recentre(np.array(values), uids, kept).tolist()
    return [value * mask.to(row) for row, mask, value in zip(advantages, masks, centred, strict=True)]


def _columns(columns: dict[str, list[torch.Tensor]], positions: np.ndarray) -> TensorDict:
    return data_plane.as_columns({name: [rows[place] for place in positions] for name, rows in columns.items()})
