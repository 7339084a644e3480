"""A policy that never learns, for tests of the leaderboard's competing methods, and helpers for these tests."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from competitors import COMPETITORS
from learning_lab import Rollout

# A pool with a bit of everything: 60 hopeless, 30 easy, 30 learnable prompts.
HOPELESS, EASY = range(60), range(60, 90)
RATES = np.array([0.0] * 60 + [1.0] * 30 + [0.4] * 30)
NUM_PROMPTS = len(RATES)


class FixedPassRates:
    """A policy that never learns: prompts pass at given rates, responses have two tokens, and the drift is given."""

    def __init__(self, rates, drift=0.0, seed=0):
        self.rates, self.moved = np.asarray(rates), drift
        self.asked = Counter()
        self._rng = np.random.default_rng(seed)
        self.version = 0

    def sample(self, prompts):
        self.asked.update(prompts)
        rewards = (self._rng.random(len(prompts)) < self.rates[prompts]).astype(float)
        return [
            Rollout(prompt, [1, 2], torch.zeros(2), reward) for prompt, reward in zip(prompts, rewards, strict=True)
        ]

    def drift(self, rollouts):
        return np.full(len(rollouts), self.moved)


def make(name, num_prompts=NUM_PROMPTS, batch=8, group=4, seed=0):
    return COMPETITORS[name](num_prompts, batch=batch, group=group, seed=seed)


def play(method, policy, steps):
    return [method.next_batch(policy) for _ in range(steps)]


def group_sizes(batch):
    return list(Counter(batch.groups).values())


def share_on_learnable(policy):
    """The share of requested rollouts that went to prompts that are sometimes solved."""
    learnable = (policy.rates > 0) & (policy.rates < 1)
    return sum(count for prompt, count in policy.asked.items() if learnable[prompt]) / policy.asked.total()
