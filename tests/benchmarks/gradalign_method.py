"""GradAlign (Yang et al. 2026, arXiv 2602.21492): problems are chosen by the cosine of their gradient and validation's.

    s(x) = <g(x), G> / (|g(x)| |G|)     g(x): of GRPO's loss over the rollouts of problem x; G: over those of all
                                         validation problems; 0 for a problem whose advantages are all 0

Every `STEPS` updates, `CANDIDATES` problems are rolled out, and the `KEPT` with the highest cosines are trained on
until the next choice, with new rollouts. Proportions are those of the authors' example (StigLidu/GradAlign): 1 of 20
candidates, five passes over those kept, 16 rollouts per validation problem. Their candidates have 128 rollouts each,
these 16, which are already four times those that are trained on. `SMALL` is a choice for less than half of these.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from influence_methods import InfluencePolicy, InfluenceTask, PromptOrder
from learning_lab import Rollout

STEPS, CANDIDATES, KEPT, GROUP = 10, 640, 32, 16
MOST_VALIDATION = 128  # prompts, as many as TracIn's pool has
ROLLOUTS_AT_ONCE = 256
# As many problems kept, of fewer candidates with fewer rollouts.
SMALL = {"candidates": 160, "group": 4}

Rewards = Callable[[Sequence[Rollout]], np.ndarray]


def cosines(gradients: Sequence[torch.Tensor], validation: torch.Tensor) -> np.ndarray:
    """(P,) float64: s(x) of P problems; 0 where a gradient is 0.

    Args:
        gradients: P of (W,) float.
        validation: (W,) float: G.
    """
    similarities = [torch.cosine_similarity(own.double(), validation.double(), dim=0) for own in gradients]
    return np.array([float(each) for each in similarities])


def best(problems: Sequence[int], similarities: np.ndarray, count: int) -> list[int]:
    """The problems with the highest similarities; the first ones of equal similarity."""
    return [problems[place] for place in np.argsort(-similarities, kind="stable")[:count]]


class ProblemChoice:
    """Which problems a run trains on.

    Args:
        policy: What is trained.
        data: Its first prompts are candidates, the last ones validation problems.
        seed: Of the draws.

    Attributes:
        num_rollouts: Made for choices so far, of candidates and of validation problems.
    """

    def __init__(
        self,
        policy: InfluencePolicy,
        data: InfluenceTask,
        seed: int,
        *,
        candidates: int = CANDIDATES,
        kept: int = KEPT,
        group: int = GROUP,
    ) -> None:
        self.policy, self.data, self.seed, self.group, self.kept = policy, data, seed, group, kept
        self.candidates = min(candidates, data.num_train)
        self.num_rollouts = 0
        self._rng = np.random.default_rng([seed, CANDIDATES])
        self._problems: list[int] = []
        self._order = PromptOrder(1, seed)

    def choose(self, rewards: Rewards) -> list[int]:
        """New problems, by the rewards of their rollouts; those of validation problems are right."""
        validation = range(self.data.num_train, self.data.num_train + min(self.data.num_validation, MOST_VALIDATION))
        right = self._sample(validation)
        target = self.gradient(right, np.array([rollout.reward for rollout in right]))
        problems = self._rng.permutation(self.data.num_train)[: self.candidates].tolist()
        rollouts = self._sample(problems)
        reported = rewards(rollouts)
        rows = [slice(start, start + self.group) for start in range(0, len(rollouts), self.group)]
        gradients = [self.gradient(rollouts[own], reported[own]) for own in rows]
        self._problems = best(problems, cosines(gradients, target), self.kept)
        self._order = PromptOrder(len(self._problems), self.seed)
        return self._problems

    def next(self, count: int) -> list[int]:
        """The next problems of the chosen ones, pass after pass."""
        return [self._problems[place] for place in self._order.next(count)]

    def gradient(self, rollouts: Sequence[Rollout], rewards: np.ndarray) -> torch.Tensor:
        """(W,) float32: of GRPO's loss over the rollouts, summed over their tokens; advantages by prompt."""
        policy = self.policy
        samples = policy.tensors(rollouts)
        advantages = policy.advantages(samples, rewards)
        total = torch.zeros(sum(parameter.numel() for parameter in policy.trainable))
        for start in range(0, len(rollouts), ROLLOUTS_AT_ONCE):
            rows = slice(start, start + ROLLOUTS_AT_ONCE)
            if not advantages[rows].any():
                continue
            part = samples.part(rows)
            loss = policy.loss(part, advantages[rows], part.mask) * part.mask.sum()
            total += torch.cat([each.flatten() for each in torch.autograd.grad(loss, policy.trainable)])
        return total

    def _sample(self, prompts: Sequence[int]) -> list[Rollout]:
        rollouts = self.policy.sample([prompt for prompt in prompts for _ in range(self.group)])
        self.num_rollouts += len(rollouts)
        return rollouts
