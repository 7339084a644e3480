"""The settings of the curriculum's controller. Pure."""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from recipe.fast_dapo.curriculum.correction import Correction
from recipe.fast_dapo.curriculum.grading import WHOLE_BAND, Grading
from recipe.fast_dapo.curriculum.records import GroupRule
from verl_ext.core.settings import Settings

Schedule = Literal["merged", "streaming"]
Stale = Literal["wait", "drop"]
TrainOn = Literal["qualified", "all"]


class CurriculumLimits(Settings):
    """The controller's settings under `curriculum`, which has others as well."""

    schedule: Schedule = "streaming"
    """merged: continuation of one round and screening of the next share one generation call.
    streaming: a prompt is continued the moment its screening is mixed, under the same weights; new prompts are admitted
    until the expected number of ready ones covers the batch. data.gen_batch_size bounds the prompts in screening."""

    train_on: TrainOn = "all"
    """qualified: prompts whose screening is all wrong or all right are dropped, as in the original method.
    all: they are trained on with their screening rollouts, so no rollout is wasted. They only contribute to the
    gradient with curriculum.baseline=posterior."""

    correction: Correction = "none"
    """Correction for the over-representation of rare passes among screened prompts (see correction.py):
    none | horvitz_thompson: advantages weighted by 1 / P(kept | passes) | continuation_only: train on n_continue
    rollouts."""

    max_num_gen_batches: int = Field(default=0, ge=0)
    """Generation rounds allowed until a training batch is complete; 0: no limit. A streaming round is gen_batch_size
    prompts. Beyond it the run writes a checkpoint and stops, listing the pass rates it saw."""

    max_buffer_prompts: int | None = Field(default=None, ge=0)
    """Finished prompts kept for later steps in addition to one training batch; the stalest are dropped first. null: no
    limit."""

    max_staleness: int | None = Field(default=4, ge=0)
    """Maximum age of a trained sample in weight versions; null: no limit. With
    trainer.v1.sampler.max_off_policy_strategy=wait, training waits for unfinished prompts that would exceed it, and
    takes them first; with drop it does not wait. Samples beyond the limit are always dropped, and their prompts are
    screened again."""

    success_threshold: float | None = 0.5
    """A rollout passes when its success metric exceeds this. null: successes are graded, numbers from 0 to 1. A
    screening is then mixed when they differ, and predictor=posterior chooses prompts by their variance."""

    band: tuple[float, float] = WHOLE_BAND
    """[low, high]: a prompt whose mean success (pass rate) in screening is outside this open interval counts as too
    hard or too easy. With [0, 1], one pass and one failure are enough to qualify; with [0.1, 0.9], 1 pass out of 16 is
    not."""

    @property
    def grading(self) -> Grading:
        """How successes are read."""
        return Grading(self.success_threshold, self.band)


class CurriculumSettings(CurriculumLimits):
    """Sizes and limits of the curriculum."""

    n: int = Field(ge=1)
    """Screening rollouts per prompt (sequential screening: the maximum)."""

    n_continue: int = Field(ge=0)
    """Additional rollouts of a prompt that qualifies; 0: none."""

    train_batch_size: int = Field(ge=1)
    """Prompts per training batch."""

    gen_batch_size: int = Field(ge=1)
    """merged: new prompts per round. streaming: prompts in screening at the same time."""

    stale: Stale = "wait"
    """What happens to a prompt whose samples would be more than `max_staleness` versions old after the next update.
    wait: training waits for it and takes it first, so that no slow prompt is wasted; only prompts that do not fit the
    batch are dropped. drop: its samples are released, and it is screened again."""

    ahead: float = Field(default=0.0, ge=0.0)
    """Batches generated ahead of the one being collected (streaming only). 0: all generation has ended when a batch is
    complete. Above 0, prompts in flight continue under the next weights. With n batches per version it is verl's
    n (1 + num_warmup_batches) - 1: each of them leaves one less under way, until the weights change."""

    batches_per_version: int = Field(default=1, ge=1)
    """Training batches between two weight versions of the engines."""

    max_attempts: int = Field(default=3, ge=1)
    """Consecutive failed generation calls after which a prompt is given up."""

    @model_validator(mode="after")
    def _check_what_is_left_to_train_on(self) -> Self:
        if self.n == 1 and self.train_on == "qualified":
            raise ValueError(
                "with one screening rollout nothing is mixed and no prompt ever qualifies: raise n to 2 or more, or "
                "set train_on=all"
            )
        if self.n_continue == 0 and self.correction == "continuation_only":
            raise ValueError("correction=continuation_only trains on n_continue rollouts, of which there are 0")
        if self.train_on == "all" and self.correction != "none":
            raise ValueError(
                f"correction={self.correction} undoes what dropping prompts does, and train_on=all drops none: set "
                "correction=none"
            )
        return self

    @model_validator(mode="after")
    def _check_ahead(self) -> Self:
        if self.ahead and self.schedule == "merged":
            raise ValueError(
                "schedule=merged waits for every rollout of a call, so it cannot generate ahead: set "
                "schedule=streaming, or trainer.v1.trainer_mode=sync"
            )
        return self

    @model_validator(mode="after")
    def _check_grading(self) -> Self:
        if problem := self.grading.problem(self.n, self.correction):
            raise ValueError(problem)
        return self

    @property
    def num_under_way(self) -> int:
        """Prompts that are ready or expected to become ready before the first batch of a weight version is taken."""
        return math.floor(self.train_batch_size * (1 + self.ahead))

    @property
    def max_in_screening(self) -> int:
        """Streaming: maximum number of prompts in screening at the same time."""
        return math.ceil(self.gen_batch_size * (1 + self.ahead))

    @property
    def group_size(self) -> int:
        """Samples of a continued prompt in a training batch, the maximum of any prompt."""
        return self.n_continue if self.correction == "continuation_only" else self.n + self.n_continue

    @property
    def group_rule(self) -> GroupRule:
        """The grading of all prompts of the run."""
        trains_screening = self.correction != "continuation_only"
        return GroupRule(self.group_size, trains_screening, self.train_on == "all", self.grading)
