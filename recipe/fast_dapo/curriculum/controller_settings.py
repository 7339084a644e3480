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
    """What a user sets of the controller under `curriculum`; the configuration has it all, and more."""

    schedule: Schedule = "streaming"
    """merged: continuation of one round and screening of the next share one generation call.
    streaming: a prompt is continued the moment its screening is mixed, under the same weights; new prompts are admitted
    until the expected number of ready ones covers the batch. data.gen_batch_size bounds the prompts in screening."""

    train_on: TrainOn = "all"
    """qualified: prompts whose screening is all wrong or all right are dropped, as in the original method.
    all: they are trained on with their screening rollouts, and nothing that was generated is thrown away; it takes
    curriculum.baseline=posterior for these to teach anything."""

    correction: Correction = "none"
    """What undoes the over-representation of rare passes among screened prompts (see correction.py):
    none | horvitz_thompson: advantages weighted by 1 / P(kept | passes) | continuation_only: train on n_continue
    rollouts."""

    max_num_gen_batches: int = Field(default=0, ge=0)
    """Generation rounds allowed until a training batch is complete; 0: no limit. A streaming round is gen_batch_size
    prompts. Past it the run writes a checkpoint and ends with the pass rates it saw."""

    max_buffer_prompts: int | None = Field(default=None, ge=0)
    """Finished prompts kept for later steps beyond the one training batch, stalest dropped first; null: all of them."""

    max_staleness: int | None = Field(default=4, ge=0)
    """Weight versions that a trained sample may lag behind; null: no limit. Training waits for unfinished prompts that
    would lag further and takes them first (trainer.v1.sampler.max_off_policy_strategy=wait), or does not (drop).
    Samples beyond the limit are dropped either way, and their prompts screened anew."""

    success_threshold: float | None = 0.5
    """A rollout passes when its success metric exceeds this. null: successes are graded, numbers from 0 to 1. A
    screening is then mixed when they differ, and predictor=posterior chooses by their variance."""

    band: tuple[float, float] = WHOLE_BAND
    """[low, high]: a screening whose mean success (pass rate) is not between these is too hard or too easy, as one that
    is all wrong or all right. [0, 1]: a pass and a failure are enough; [0.1, 0.9]: 1 pass of 16 is not."""

    @property
    def grading(self) -> Grading:
        """How successes are read."""
        return Grading(self.success_threshold, self.band)


class CurriculumSettings(CurriculumLimits):
    """Sizes and limits of the curriculum."""

    n: int = Field(ge=1)
    """Screening rollouts of a prompt (sequential screening: at most)."""

    n_continue: int = Field(ge=0)
    """Further rollouts of a prompt that qualifies after n; 0: screening is all there is."""

    train_batch_size: int = Field(ge=1)
    """Prompts of a training batch."""

    gen_batch_size: int = Field(ge=1)
    """merged: new prompts of a round. streaming: prompts in screening at once."""

    stale: Stale = "wait"
    """What happens to a prompt whose samples would be more than `max_staleness` versions old after the next update.
    wait: training waits until it is finished and takes it first, so that none is thrown away for being slow; only
    what more than fills the batch is dropped. drop: its samples are released, and it is screened anew."""

    ahead: float = Field(default=0.0, ge=0.0)
    """Batches in generation beyond the one that is collected; streaming alone. 0: all that began has ended when a batch
    is complete. Above, what is still in flight then goes on under the next weights."""

    batches_per_version: int = Field(default=1, ge=1)
    """Training batches between two weight versions of the engines."""

    max_attempts: int = Field(default=3, ge=1)
    """Failed generation calls in a row until a prompt is given up."""

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
                "schedule=merged waits for every rollout of a call, so that nothing is generated ahead: set "
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
        """Prompts that are to be ready or expected to become so."""
        return math.floor(self.train_batch_size * (1 + self.ahead))

    @property
    def max_in_screening(self) -> int:
        """Streaming: prompts in screening at once."""
        return math.ceil(self.gen_batch_size * (1 + self.ahead))

    @property
    def group_size(self) -> int:
        """Samples of a continued prompt in a training batch: the most that any prompt has there."""
        return self.n_continue if self.correction == "continuation_only" else self.n + self.n_continue

    @property
    def group_rule(self) -> GroupRule:
        """For every prompt of the run."""
        trains_screening = self.correction != "continuation_only"
        return GroupRule(self.group_size, trains_screening, self.train_on == "all", self.grading)
