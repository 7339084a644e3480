"""Choose with late rollouts, and with graded rewards: the product's controller and advantages in these settings."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
from choosing_method import Choose
from learning_lab import Policy, Rollout
from sampling_methods import Batch

from recipe.fast_dapo.curriculum.baseline import RewardScale
from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.records import GenerationInput, Prompt, Sample
from recipe.fast_dapo.posterior_advantage import KnownPrompt, posterior_advantage, prepare


class OpenController(DataController):
    """Admits a prompt in the place of each that is late.

    The product's counts whatever is in flight among the prompts of the next batch, and waits for it: once a batch's
    worth of prompts is late, it admits no others, and a step without the late ones would never be complete.

    Attributes:
        num_late: Prompts in flight that the next batch does not wait for.
    """

    num_late = 0

    @property
    def num_prompts_wanted(self) -> int:
        return max(0, self._num_to_admit() - len(self._state.waiting))

    def prompts_to_screen(self) -> list[Prompt]:
        return list(islice(self._state.waiting, self._num_to_admit()))

    def _num_to_admit(self) -> int:
        own = self.settings
        room = {name: getattr(own, name) + self.num_late for name in ("train_batch_size", "gen_batch_size")}
        return self._state.num_to_admit(own.model_copy(update=room))


class AheadChoose(Choose):
    """Every call for a prompt of one source returns some steps late, while generation continues ahead.

    The product's controller as verl's asynchronous modes drive it: a batch is trained on as soon as it is complete,
    late prompts continue under the next weights, and training waits for those that would be too old in a later batch.
    While it waits, the earliest ones return. A continuation is late again.

    Args:
        slow: The source.
        delays: Steps that a call may be late, each as likely.
        ahead: Batches in generation beyond the one that is collected.
    """

    def __init__(self, *args, slow: str, delays: Sequence[int], ahead: float = 1.0, seed: int, task, **more) -> None:
        super().__init__(*args, seed=seed, task=task, **more)
        self.settings = self.settings.model_copy(update={"ahead": ahead})
        self.controller = DataController(self.settings)
        self._is_slow = task.domains == task.domain_names.index(slow)
        self._delays, self._delay_rng = delays, np.random.default_rng([seed, 4])
        self._late: dict[str, tuple[int, list[Sample]]] = {}  # by uid: the step at which they come, and what comes

    def _fill(self, policy: Policy) -> None:
        self._free(self.controller.evict(policy.version).released_keys)
        self._arrive(policy, policy.version)
        while not self.controller.is_ready_for_training():
            self._arrive(policy, min(due for due, _ in self._late.values()))

    def _arrive(self, policy: Policy, step: int) -> None:
        """Handle everything due at a step, and everything that follows from it immediately."""
        arrived = {uid: samples for uid, (due, samples) in self._late.items() if due <= step}
        for uid in arrived:
            del self._late[uid]
        self._take(arrived, policy)
        while inputs := self._next_inputs():
            answers = self._answer(policy, inputs)
            for entry in inputs:
                if self._is_slow[int(entry.prompt.index)]:
                    due = policy.version + int(self._delay_rng.choice(self._delays))
                    self._late[entry.prompt.uid] = due, answers.pop(entry.prompt.uid)
            self._take(answers, policy)

    def _take(self, answers: dict[str, list[Sample]], policy: Policy) -> None:
        self._observe(self.controller.update_prompts(answers, policy.version, more_to_come=True))


class LateChoose(AheadChoose):
    """The same, but training never waits.

    Samples have the version that they were generated under, so the controller drops those that are older than
    `max_staleness` when they return: the prompt is then screened again, as late as before.
    """

    def __init__(self, *args, **more) -> None:
        super().__init__(*args, ahead=0.0, **more)
        self.settings = self.settings.model_copy(update={"stale": "drop"})
        self.controller = OpenController(self.settings)

    def _next_inputs(self) -> list[GenerationInput]:
        self.controller.num_late = len(self._late)
        return super()._next_inputs()


class GradedChoose(Choose):
    """Rewards from 0 to 1, of which only 1 is a pass: the controller and the posterior see passes.

    The baseline is the posterior's mean pass rate on the line from successes to rewards, as in a run
    (`recipe/fast_dapo/posterior_advantage.py`).
    """

    def __init__(self, *args, **more) -> None:
        super().__init__(*args, **more)
        self._scale = RewardScale()

    def _success(self, rollout: Rollout) -> float:
        return float(rollout.reward == 1.0)

    def _advantages(self, batch: Batch) -> np.ndarray:
        keys: list[str] = []
        known: dict[str, KnownPrompt] = {}
        for group in self.trained_groups:
            prompt, successes = group.prompt, [sample.success for sample in group.samples]
            keys += [f"{prompt.uid}_{session}_0" for session in range(len(successes))]
            known[prompt.uid] = KnownPrompt(prompt.alpha, prompt.beta, successes, group.stages)
        prepare(keys, known, self._scale)
        rewards_B1 = torch.tensor([[rollout.reward] for rollout in batch.rollouts], dtype=torch.float64)
        advantages_B1, _ = posterior_advantage(rewards_B1, torch.ones_like(rewards_B1), np.array(batch.groups))
        return advantages_B1[:, 0].numpy()


class VarianceChoose(GradedChoose):
    """Rewards are successes (`curriculum.success_threshold=null`): prompts are chosen by their variance."""

    def __init__(self, *args, **more) -> None:
        super().__init__(*args, **more)
        self.settings = self.settings.model_copy(update={"success_threshold": None})
        self.controller = DataController(self.settings)

    def _success(self, rollout: Rollout) -> float:
        return rollout.reward
