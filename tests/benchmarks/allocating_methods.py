"""A competitor that gives prompts different numbers of rollouts: Knapsack RL."""

import heapq

import numpy as np
from learning_lab import Policy
from sampling_methods import Batch, Method


def value(count: int, rate: float) -> float:
    """Of `count` rollouts for a prompt of this pass rate: P(rewards differ) x expected gain of a gradient step."""
    return (1 - rate**count - (1 - rate) ** count) * rate * (1 - rate) ** 2


def allocate(rates: np.ndarray, budget: int, lowest: int, highest: int) -> np.ndarray:
    """Rollouts per prompt whose summed `value` is largest.

    The paper solves the bounded knapsack by dynamic programming. `value` is concave in the count, so giving the
    rollouts one by one to the largest gain is also exact.

    Args:
        rates: (P,) estimated pass rates.
        budget: Rollouts to allocate.
        lowest: Rollouts that each prompt gets, at least 1.
        highest: Maximum rollouts per prompt.

    Returns:
        (P,) int64 with the sum `budget`, or P * highest if that is less.

    Raises:
        ValueError: If the budget does not cover the lowest counts.
    """
    if budget < lowest * len(rates):
        raise ValueError(f"expected a budget of at least {lowest * len(rates)} rollouts ({lowest} each), got {budget}")
    counts = np.full(len(rates), lowest)
    left = min(budget, highest * len(rates)) - lowest * len(rates)
    gains = [(value(lowest, rate) - value(lowest + 1, rate), place) for place, rate in enumerate(rates) if 0 < rate < 1]
    heapq.heapify(gains)
    while left and gains:
        _, place = heapq.heappop(gains)
        if counts[place] == highest:
            continue
        counts[place] += 1
        left -= 1
        count, rate = int(counts[place]), float(rates[place])
        heapq.heappush(gains, (value(count, rate) - value(count + 1, rate), place))
    # No known gain: unsolved prompts first, solved ones last, one by one.
    for group in (rates == 0, rates == 1):
        while left and (open_places := np.flatnonzero(group & (counts < highest))).size:
            counts[open_places[:left]] += 1
            left -= min(left, open_places.size)
    return counts


class Knapsack(Method):
    """Knapsack RL (arXiv 2509.25849): N per prompt by the value of rollouts, the sum as with equal groups.

        value(N, p) = (1 - p^N - (1 - p)^N) * p (1 - p)^2

    maximised over sum N_i = batch x group with 2 <= N_i <= 128; p is the pass rate at the prompt's last visit. Solved
    prompts (p = 1) get 2, the remainder goes to unsolved ones (p = 0). Prompts are those of epochs in random order.

    Simplified: a prompt without a visit gets `group` rollouts, so the first epoch is uniform. The paper's code is not
    public: what "left over" means is read as beyond the bound of 128.

    Raises:
        ValueError: If a group has fewer than 2 rollouts.
    """

    def __init__(
        self, num_prompts: int, *, batch: int, group: int, seed: int, lowest: int = 2, highest: int = 128
    ) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed)
        if group < lowest:
            raise ValueError(f"expected at least {lowest} rollouts per prompt on average, got {group}: raise group")
        self.lowest, self.highest = lowest, highest
        self.rates = np.full(num_prompts, np.nan)

    def _collect(self, policy: Policy) -> Batch:
        prompts = np.array(self._next_different(self.batch))
        self.num_screened += len(prompts)
        sizes = np.full(len(prompts), self.group)
        seen = ~np.isnan(self.rates[prompts])
        sizes[seen] = allocate(self.rates[prompts[seen]], self.group * int(seen.sum()), self.lowest, self.highest)
        groups = self._generate_groups(policy, prompts.tolist(), sizes.tolist())
        self.rates[prompts] = [np.mean([rollout.reward for rollout in group]) for group in groups]
        return Batch.of_groups(groups)
