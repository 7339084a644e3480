"""Choose with hints: a part of every batch goes to hopeless prompts that begin with a part of their golden solution.

The golden solution of a sum is its answer's tokens in the order the model writes them, with the end-of-text token.
"""

from collections.abc import Sequence

import numpy as np
import torch
from choosing_method import Choose
from hint_lengths import Hint, HintLengths, HintSettings
from learning_lab import Policy, Rollout
from learning_tasks import Task
from sampling_methods import Batch

from recipe.fast_dapo.curriculum.baseline import leave_one_out_baselines


class HintedPolicy(Policy):
    """A policy whose prompts may end with the beginning of the right completion. Its loss is on its own tokens only."""

    @torch.no_grad()
    def sample_hinted(self, prompts: Sequence[int], hints: Sequence[int]) -> list[Rollout]:
        """One rollout at temperature 1 for each prompt after this many tokens of its right completion."""
        assert self.lean is not None
        ids_BL = self._hinted_ids(prompts, hints)
        ids_UL, inverse = torch.unique(ids_BL, dim=0, return_inverse=True)
        tokens_BT, log_probs_BT, lengths_B = self.lean.sample(ids_UL, inverse, self.task.max_response, self.generator)
        # A hint and its response together are no longer than a response.
        limits = [self.task.max_response - hint for hint in hints]
        rollouts = []
        for row, (prompt, hint, end, limit) in enumerate(zip(prompts, hints, lengths_B.tolist(), limits, strict=True)):
            length = min(end, limit)
            response = tokens_BT[row, :length].tolist()
            reward = float(response == self.task.answers[prompt][hint:])
            rollouts.append(Rollout(prompt, response, log_probs_BT[row, :length].clone(), reward, hint))
        return rollouts

    def _prompt_ids(self, rollouts: Sequence[Rollout]) -> torch.Tensor:
        if not any(rollout.hint for rollout in rollouts):
            return super()._prompt_ids(rollouts)
        return self._hinted_ids([rollout.prompt for rollout in rollouts], [rollout.hint for rollout in rollouts])

    def _hinted_ids(self, prompts: Sequence[int], hints: Sequence[int]) -> torch.Tensor:
        task = self.task
        rows = []
        for prompt, hint in zip(prompts, hints, strict=True):
            ids = task.prompts[prompt]
            rows.append(ids[ids != task.pad].tolist() + task.answers[prompt][:hint])
        width = max(map(len, rows))
        return torch.tensor([[task.pad] * (width - len(row)) + row for row in rows])


class ChooseWithHints(Choose):
    """Choose for one part of a batch, hinted groups of hopeless prompts for the other.

    Args:
        batch: Rollouts of a step if `group` is 1, hinted ones included: as many as choose has.
        hint_share: Of the batch, what goes to hinted groups.
        hint_group: Rollouts of a hinted group.
        hints: How hints adapt.
    """

    def __init__(
        self,
        num_prompts: int,
        *,
        batch: int,
        group: int,
        seed: int,
        task: Task,
        hint_share: float = 0.5,
        hint_group: int = 4,
        hints: HintSettings | None = None,
        use_features: bool = True,
    ) -> None:
        self.num_hinted = int(batch * group * hint_share) // hint_group
        unguided = batch - self.num_hinted * hint_group // group
        super().__init__(num_prompts, batch=unguided, group=group, seed=seed, task=task, use_features=use_features)
        self.hint_group = hint_group
        self.hints = HintLengths([len(answer) for answer in task.answers], hints or HintSettings(), seed)
        self.num_hinted_rollouts = 0

    def _collect(self, policy: Policy) -> Batch:
        batch = super()._collect(policy)
        assert isinstance(policy, HintedPolicy)
        assert self.posterior is not None
        assert batch.advantages is not None
        alpha_P, beta_P = self.posterior.posterior(np.arange(self.num_prompts))
        chosen = self.hints.choose(alpha_P / (alpha_P + beta_P), self.num_hinted)
        repeated = [hint for hint in chosen for _ in range(self.hint_group)]
        if not repeated:
            return batch
        rollouts = policy.sample_hinted([hint.position for hint in repeated], [hint.length for hint in repeated])
        self._count(rollouts)
        advantages = [batch.advantages]
        for number, hint in enumerate(chosen):
            group = rollouts[number * self.hint_group : (number + 1) * self.hint_group]
            advantages.append(self._take(hint, np.array([rollout.reward for rollout in group])))
        names = [f"hinted {hint.position}" for hint in repeated]
        weights = None if batch.weights is None else np.append(batch.weights, np.ones(len(rollouts)))
        return Batch(batch.rollouts + rollouts, batch.groups + names, weights, np.concatenate(advantages))

    def _take(self, hint: Hint, rewards_G: np.ndarray) -> np.ndarray:
        """(G,) advantages of a hinted group, which is taken note of."""
        passes, fails = float(rewards_G.sum()), float((1 - rewards_G).sum())
        alpha, beta = hint.alpha, hint.beta
        assert self.posterior is not None
        if not hint.length:
            ((alpha, beta),) = self.posterior.posteriors([hint.position])
            self.posterior.observe(hint.position, passes, fails)
        self.hints.observe(hint, passes, fails)
        strength = alpha + beta
        return rewards_G - leave_one_out_baselines(
            rewards_G, np.zeros(len(rewards_G), dtype=int), alpha / strength, strength
        )

    def _count(self, rollouts: Sequence[Rollout]) -> None:
        self.counts.generated += len(rollouts)
        self.counts.generated_tokens += sum(len(rollout.response) for rollout in rollouts)
        self.num_hinted_rollouts += len(rollouts)
