"""The pass-rate posterior of a training data set, whose prompts have an `index` each, and its part in a checkpoint."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from recipe.fast_dapo import prompt_order
from recipe.fast_dapo.curriculum.grading import Grading
from recipe.fast_dapo.curriculum.predictor import PassRatePosterior
from recipe.fast_dapo.curriculum.predictor_settings import PredictorSettings
from recipe.fast_dapo.curriculum.records import Outcome, Prompt, TrainingGroup
from recipe.fast_dapo.posterior_advantage import KnownPrompt
from recipe.fast_dapo.prompt_features import dataset_features
from verl_ext.core.errors import SignalError
from verl_ext.data.prompt_index import prompt_indices


class DatasetPosterior:
    """A `PassRatePosterior` that knows prompts by their `index`.

    Args:
        dataset: The training data set.
        prompt_key: Column of its prompts.
        settings: Settings of the posterior.

    Attributes:
        posterior: By position in the data set.

    Raises:
        SignalError: two prompts share an `index`.
    """

    def __init__(self, dataset: Any, prompt_key: str, settings: PredictorSettings) -> None:
        self._dataset = dataset
        features = dataset_features(dataset, prompt_key)
        values = features.values_PF if settings.use_features else None
        self.posterior = PassRatePosterior(len(dataset), settings, values, features.sources_P)
        indices = prompt_indices(dataset)
        self._position = {index: position for position, index in enumerate(indices)}
        self._fingerprints = prompt_order.fingerprints(indices)
        if len(self._position) < len(dataset):
            raise SignalError(
                f"data.custom_cls: {len(dataset)} prompts have only {len(self._position)} values of `index`, by which "
                "the posterior identifies them. Give each prompt its own, or set +signal=two_phase."
            )

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Learn from finished rollouts."""
        for outcome in outcomes:
            fails = outcome.samples - outcome.passes
            self.posterior.observe(self._position[outcome.index], outcome.passes, fails, outcome.shortfall)

    def observe_influence(self, scores: Mapping[int | str, float]) -> None:
        """Learn from the influence scores of the groups of one update, by the prompts' `index`."""
        self.posterior.observe_influence([self._position[index] for index in scores], list(scores.values()))

    def prior(self, index: int | str) -> tuple[float, float]:
        """(alpha, beta) of a prompt before its first rollout."""
        alpha, beta = (float(value) for value in self.posterior.prior(np.asarray(self._position[index])))
        return alpha, beta

    def known(self, group: TrainingGroup, grading: Grading) -> KnownPrompt:
        """What the posterior baseline has to know about a group."""
        prompt = group.prompt
        alpha, beta = prompt.alpha, prompt.beta
        if alpha is None or beta is None:  # begun by a run without posteriors, which this one resumes
            alpha, beta = self.prior(prompt.index)
        return KnownPrompt(alpha, beta, [float(grading.success(one.success)) for one in group.samples], group.stages)

    def posteriors(self, prompts: Iterable[Prompt]) -> list[tuple[float, float]]:
        """(alpha, beta) of each prompt."""
        return self.posterior.posteriors([self._position[prompt.index] for prompt in prompts])

    def choose(self, count: int, live_indices: Iterable[int | str]) -> list[Any]:
        """Rows of the most promising prompts that are not live; fewer if fewer are left."""
        positions = self.posterior.choose(count, [self._position[index] for index in live_indices])
        return [self._dataset[int(position)] for position in positions]

    def state_dict(self) -> dict[str, Any]:
        return {"predictor": self.posterior.state_dict(), "prompts": prompt_order.pack(self._fingerprints)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The rows may be in a different order than in the checkpoint."""
        # Earlier releases saved no prompts: the order must be the same.
        prompts = state.get("prompts")
        order = prompts and prompt_order.order_since(prompts, self._fingerprints)
        self.posterior.load_state_dict(state["predictor"], order)
