"""A competitor without groups: SPO, single-stream policy optimization."""

import numpy as np
from learning_lab import Policy, Rollout
from sampling_methods import Batch, Method

DRIFT_AT_HALF = 0.06  # nats per token at which half of the evidence is kept


def kept_evidence(drift: np.ndarray, lowest: float = 0.875, highest: float = 0.96) -> np.ndarray:
    """rho: the share of a prompt's evidence that outlives a policy's drift, in nats per token."""
    return np.clip(2.0 ** (-drift / DRIFT_AT_HALF), lowest, highest)


def normalized(advantages: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1 over the batch; all 0 where they are equal."""
    centered = advantages - advantages.mean()
    return centered / (centered.std() + 1e-8)


class SingleStream(Method):
    """SPO (arXiv 2509.13232; verl-recipe/spo): single rollouts, a tracked value per prompt as baseline.

    The value v = a / (a + b) of a prompt is known before its rollout with reward r:

        advantage  r - v, normalized over the batch
        update     a <- rho * a + r        b <- rho * b + 1 - r        rho = 2^(-D / .06), within .875 and .96
        choice     without replacement, weights sqrt(v (1 - v)) + .05

    D is how far the policy moved since the prompt's last rollout: the mean |change| of that response's log-probs.

    A step trains on batch x group single rollouts, as many as the other methods at the same settings.

    Simplified: the paper first estimates all values from 8 rollouts per prompt that it does not count. They would be
    counted here (`initial_rollouts=8`: 16,384 for 2,048 prompts), so the default is 0, Beta(1/2, 1/2), which the
    published code has as an option.
    """

    def __init__(
        self, num_prompts: int, *, batch: int, group: int, seed: int, initial_rollouts: int = 0, explore: float = 0.05
    ) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed)
        self.explore, self.initial_rollouts = explore, initial_rollouts
        self.passes = np.full(num_prompts, 0.5)  # a
        self.fails = np.full(num_prompts, 0.5)  # b
        self._last: dict[int, Rollout] = {}
        self._rng = np.random.default_rng([seed, 1])

    def values(self) -> np.ndarray:
        """(P,) tracked pass rates."""
        return self.passes / (self.passes + self.fails)

    def choice_probabilities(self) -> np.ndarray:
        """(P,) of the first prompt to be drawn."""
        values = self.values()
        weights = np.sqrt(values * (1 - values)) + self.explore
        return weights / weights.sum()

    def _collect(self, policy: Policy) -> Batch:
        if self.initial_rollouts and not self._last:
            self._estimate_all(policy)
        size = self.batch * self.group
        probabilities = self.choice_probabilities()
        prompts = self._rng.choice(self.num_prompts, size, replace=size > self.num_prompts, p=probabilities).tolist()
        self.num_screened += size
        kept = self._kept(policy, prompts)
        baselines = self.values()[prompts]
        rollouts = self._generate(policy, prompts)
        for prompt, rollout, share in zip(prompts, rollouts, kept, strict=True):
            self.track(prompt, rollout.reward, share)
            self._last[prompt] = rollout
        advantages = normalized(np.array([rollout.reward for rollout in rollouts]) - baselines)
        return Batch(rollouts, [str(number) for number in range(size)], advantages=advantages)

    def track(self, prompt: int, reward: float, kept: float) -> None:
        """Forget all but the share `kept` of a prompt's evidence and add a reward."""
        self.passes[prompt] = kept * self.passes[prompt] + reward
        self.fails[prompt] = kept * self.fails[prompt] + 1 - reward

    def _kept(self, policy: Policy, prompts: list[int]) -> np.ndarray:
        drift = np.zeros(len(prompts))  # a prompt's first rollout has nothing to forget
        known = [place for place, prompt in enumerate(prompts) if prompt in self._last]
        if known:
            drift[known] = policy.drift([self._last[prompts[place]] for place in known])
        return kept_evidence(drift)

    def _estimate_all(self, policy: Policy) -> None:
        """Jeffreys' estimate from the initial rollouts, as sure as the evidence that the least rho keeps: 8."""
        everything = list(range(self.num_prompts))
        groups = self._generate_groups(policy, everything, [self.initial_rollouts] * self.num_prompts)
        self._last = {prompt: group[-1] for prompt, group in enumerate(groups)}
        passes = np.array([sum(rollout.reward for rollout in group) for group in groups])
        sureness = 1 / (1 - 0.875) / (self.initial_rollouts + 1)
        self.passes = sureness * (passes + 0.5)
        self.fails = sureness * (self.initial_rollouts - passes + 0.5)
