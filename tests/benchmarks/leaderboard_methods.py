"""The methods of the leaderboard, all with the same signature: (num_prompts, *, batch, group, seed, task)."""

from collections.abc import Callable

import allocating_methods
import filtering_methods
import predicting_methods
import sampling_methods
import single_stream
from learning_tasks import Task
from sampling_methods import Curriculum, Method

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.predictor import PredictorSettings

Factory = Callable[..., Method]


def two_phase(num_prompts: int, *, batch: int, group: int, seed: int, task: Task) -> Method:
    """The product's controller: streaming, the posterior's choice, a quarter of a group screened one by one.

    Raises:
        ValueError: If a group has fewer than 4 rollouts.
    """
    if group < 4:
        raise ValueError(f"expected at least 4 rollouts per prompt, two in each phase, got {group}")
    n = max(2, group // 4)
    settings = CurriculumSettings(
        n=n,
        n_continue=group - n,
        train_batch_size=batch,
        gen_batch_size=6 * batch,
        max_staleness=4,
        train_on="qualified",
    )
    return Curriculum(num_prompts, settings, seed=seed, predictor=PredictorSettings(seed=seed), screening_chunk=1)


def _without_task(method: Factory) -> Factory:
    """A method that learns about prompts only from rewards."""

    def make(num_prompts: int, *, batch: int, group: int, seed: int, task: Task) -> Method:
        return method(num_prompts, batch=batch, group=group, seed=seed)

    return make


Uniform = _without_task(sampling_methods.Uniform)
FilterGroups = _without_task(filtering_methods.PlainFilterGroups)
PilotCommit = _without_task(filtering_methods.PilotCommit)
Greso = _without_task(filtering_methods.Greso)
Mopps = _without_task(predicting_methods.Mopps)
Dps = _without_task(predicting_methods.Dps)
Knapsack = _without_task(allocating_methods.Knapsack)
SingleStream = _without_task(single_stream.SingleStream)
