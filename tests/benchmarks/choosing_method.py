"""Our method: the product's controller, the posterior's choice and baseline, and every rollout trained on."""

from dataclasses import replace

import numpy as np
from learning_lab import Policy
from learning_tasks import Task
from sampling_methods import Batch, Curriculum

from recipe.fast_dapo.curriculum.baseline import leave_one_out_baselines
from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.predictor import PredictorSettings


class Choose(Curriculum):
    """Both phases of Fast DAPO, small: half of a group screens a prompt, and a mixed one gets the other half.

    A prompt's features give the prior of its pass rate, Thompson draws closest to 1/2 are chosen, the baseline is the
    posterior mean, and no rollout is discarded (`curriculum.train_on=all`).

    Args:
        group: N, at most; a group of 1 or 2 has no second phase.
        task: For the features of its prompts.
        use_features: False: one prior for all prompts.
        predictor: Further settings of the posterior.
    """

    def __init__(
        self,
        num_prompts: int,
        *,
        batch: int,
        group: int,
        seed: int,
        task: Task,
        use_features: bool = True,
        **predictor: float,
    ) -> None:
        n = min(group, max(2, group // 2))
        settings = CurriculumSettings(
            n=n,
            n_continue=group - n,
            train_batch_size=batch,
            gen_batch_size=batch,
        )
        super().__init__(
            num_prompts,
            settings,
            seed=seed,
            predictor=PredictorSettings(seed=seed, **predictor),
            features_PF=task.features if use_features else None,
            sources_P=task.domains,
        )

    def _collect(self, policy: Policy) -> Batch:
        batch = super()._collect(policy)
        batch.advantages = self._advantages(batch)
        return batch

    def _advantages(self, batch: Batch) -> np.ndarray:
        """(B,) of the batch's rollouts."""
        advantages = []
        for group in self.trained_groups:
            rewards = np.array([sample.success for sample in group.samples])
            strength = group.prompt.alpha + group.prompt.beta
            baselines = leave_one_out_baselines(rewards, group.stages, group.prompt.alpha / strength, strength)
            advantages += (rewards - baselines).tolist()
        return np.array(advantages)


def choose_with_noise(num_prompts: int, *, batch: int, group: int, seed: int, task: Task) -> Choose:
    """The cost of uninformative features: noise, in the same number of columns as the task's own."""
    noise = np.random.default_rng(seed).normal(size=task.features.shape)
    return Choose(num_prompts, batch=batch, group=group, seed=seed, task=replace(task, features=noise))


def choose_with_states(num_prompts: int, *, batch: int, group: int, seed: int, task: Task) -> Choose:
    """Features of a data set without difficulties: sources, and the base model's state of each prompt."""
    assert task.states is not None
    return Choose(num_prompts, batch=batch, group=group, seed=seed, task=replace(task, features=task.states))


def choose_without_features(num_prompts: int, *, batch: int, group: int, seed: int, task: Task) -> Choose:
    """The method with no information on a prompt except its data source."""
    return Choose(num_prompts, batch=batch, group=group, seed=seed, task=task, use_features=False)
