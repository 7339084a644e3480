"""Competitors that predict which prompts will have mixed rewards, and generate for these: MoPPS and DPS."""

import abc
import time

import numpy as np
from learning_lab import Policy
from sampling_methods import Batch, Method


class Predicting(Method):
    """Base: of 8 x `batch` candidates the `batch` best predicted get `group` rollouts each, all trained on."""

    def __init__(self, num_prompts: int, *, batch: int, group: int, seed: int, candidate_ratio: int = 8) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed)
        self.num_candidates = candidate_ratio * batch
        self._rng = np.random.default_rng([seed, 1])

    def _collect(self, policy: Policy) -> Batch:
        candidates = np.array(self._next_different(self.num_candidates))
        began = time.process_time()
        # Stable: candidates come in random order, and equal ones should stay in it.
        chosen = candidates[np.argsort(-self._scores(candidates), kind="stable")[: self.batch]]
        self.predict_seconds += time.process_time() - began
        self.num_screened += len(chosen)
        groups = self._generate_groups(policy, chosen.tolist(), [self.group] * len(chosen))
        rates = np.array([[rollout.reward for rollout in group] for group in groups]).mean(1)
        began = time.process_time()
        self.observe(chosen, rates)
        self.predict_seconds += time.process_time() - began
        return Batch.of_groups(groups)

    @abc.abstractmethod
    def _scores(self, candidates: np.ndarray) -> np.ndarray:
        """The higher, the sooner chosen; the shape of `candidates`."""

    @abc.abstractmethod
    def observe(self, prompts: np.ndarray, rates: np.ndarray) -> None:
        """Learn from a step: the pass rates of the groups of different prompts."""


class Mopps(Predicting):
    """MoPPS, model predictive prompt selection (arXiv 2507.04632; thu-rllab/MoPPS).

    Thompson sampling: a pass rate r ~ Beta(a, b) is drawn per candidate, and those with the smallest (r - 1/2)^2 are
    chosen. A chosen prompt with s of N rollouts right:

        a <- decay * a + (1 - decay) * 1 + s        b <- decay * b + (1 - decay) * 1 + N - s

    from the prior Beta(1, 1). decay: .5 as published for Countdown and geometry (1 for MATH, whose runs are shorter in
    epochs). Prompts that were not chosen keep their evidence, as in the published code.
    """

    def __init__(
        self,
        num_prompts: int,
        *,
        batch: int,
        group: int,
        seed: int,
        candidate_ratio: int = 8,
        decay: float = 0.5,
        target: float = 0.5,
    ) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed, candidate_ratio=candidate_ratio)
        self.decay, self.target = decay, target
        self.passes = np.ones(num_prompts)  # a
        self.fails = np.ones(num_prompts)  # b

    def _scores(self, candidates: np.ndarray) -> np.ndarray:
        return -((self._rng.beta(self.passes[candidates], self.fails[candidates]) - self.target) ** 2)

    def observe(self, prompts: np.ndarray, rates: np.ndarray) -> None:
        kept = 1 - self.decay
        self.passes[prompts] = self.decay * self.passes[prompts] + kept + self.group * rates
        self.fails[prompts] = self.decay * self.fails[prompts] + kept + self.group * (1 - rates)


class Dps(Predicting):
    """DPS, dynamics-predictive sampling (arXiv 2603.10887; maoyixiu/DPS): a hidden Markov model per prompt.

    States: 0 unsolved (all wrong), 1 partly solved, 2 solved (all right). A group shows its prompt's state. With the
    transition's expectation T_ij = A_ij / sum_k A_ik (from i to j) under Dirichlet counts A, one step does

        q_j   = 1[j is the state seen], or the predicted m_j where nothing was generated     (posterior)
        A_ij <- decay * A_ij + (1 - decay) * 1 + x_ij,  x_ij = q_j T_ij q'_i / sum           (x = 0 if nothing was seen)
        m_j  <- sum_i q_i T_ij                                                               (prediction, the new T)

    where q' is the posterior of the step before, and chooses the candidates with the largest m_1. A and the states
    start uniform. decay: .5 as published for Countdown and geometry (.7 for MATH).
    """

    def __init__(
        self,
        num_prompts: int,
        *,
        batch: int,
        group: int,
        seed: int,
        candidate_ratio: int = 8,
        decay: float = 0.5,
    ) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed, candidate_ratio=candidate_ratio)
        self.decay = decay
        self.counts_PIJ = np.ones((num_prompts, 3, 3))  # A: prompts, from, to
        self.posterior_PJ = np.full((num_prompts, 3), 1 / 3)
        self.predicted_PJ = np.full((num_prompts, 3), 1 / 3)

    def transitions(self) -> np.ndarray:
        """(P, 3, 3) expected probabilities of going from a state to another."""
        return self.counts_PIJ / self.counts_PIJ.sum(2, keepdims=True)

    def _scores(self, candidates: np.ndarray) -> np.ndarray:
        return self.predicted_PJ[candidates, 1]

    def observe(self, prompts: np.ndarray, rates: np.ndarray) -> None:
        states = np.where(rates == 0.0, 0, np.where(rates == 1.0, 2, 1))
        posterior_PJ = self.predicted_PJ.copy()
        posterior_PJ[prompts] = np.eye(3)[states]
        pairs_PIJ = self.posterior_PJ[prompts, :, None] * self.transitions()[prompts] * posterior_PJ[prompts, None, :]
        self.counts_PIJ = self.decay * self.counts_PIJ + (1 - self.decay)
        self.counts_PIJ[prompts] += pairs_PIJ / pairs_PIJ.sum((1, 2), keepdims=True)
        self.posterior_PJ = posterior_PJ
        self.predicted_PJ = np.einsum("pi,pij->pj", posterior_PJ, self.transitions())
