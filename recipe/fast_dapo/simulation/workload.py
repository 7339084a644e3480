"""Simulated answers: pass rates of prompts and lengths of responses. Pure: numpy and scipy.

Pass rates: a share `never` is 0, a share `always` is 1, the others are Beta(alpha, beta). Lengths: log-normal, cut off
at `max_tokens`; the median of a prompt falls with its pass rate p, median_tokens * hard_factor^(1/2 - p), because hard
prompts have longer answers. The policy does not learn: a simulation is a window in which it hardly changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, expit


@dataclass(frozen=True)
class WorkloadSettings:
    """A pool of prompts; raises ValueError on a value out of range."""

    num_prompts: int = 10_000
    never: float = 0.3  # share of prompts with pass rate 0
    always: float = 0.2  # share of prompts with pass rate 1
    alpha: float = 0.7  # Beta parameters of the other pass rates
    beta: float = 0.7
    median_tokens: float = 1000.0
    sigma: float = 0.8  # standard deviation of the length's logarithm
    max_tokens: int = 8192
    hard_factor: float = 1.0  # median length at pass rate 0 / median length at pass rate 1

    def __post_init__(self) -> None:
        for name in ("num_prompts", "max_tokens"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be an int of at least 1, got {value!r}: change {name}")
        if not (self.never >= 0 and self.always >= 0 and self.never + self.always < 1):
            raise ValueError(
                f"never and always are shares of the prompts, together below 1; got {self.never} and {self.always}: "
                "only prompts with a pass rate between 0 and 1 are trained on"
            )
        for name in ("alpha", "beta", "hard_factor"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, got {getattr(self, name)!r}: change {name}")
        if not 1 <= self.median_tokens <= self.max_tokens:
            raise ValueError(
                f"median_tokens must be from 1 to max_tokens={self.max_tokens}, got {self.median_tokens}: most "
                "responses would be cut off otherwise"
            )
        if not 0 <= self.sigma < float("inf"):
            raise ValueError(f"sigma must be at least 0 and finite, got {self.sigma!r}: 0 makes all lengths equal")


class Workload:
    """A pool drawn from the settings; prompts are numbered 0 .. num_prompts - 1.

    Attributes:
        pass_rates: Float64, (num_prompts,).
    """

    def __init__(self, settings: WorkloadSettings, seed: int = 0) -> None:
        self.settings = settings
        self._rng = np.random.default_rng(seed)
        self.pass_rates = self._rng.beta(settings.alpha, settings.beta, settings.num_prompts)
        kind = self._rng.random(settings.num_prompts)
        self.pass_rates[kind < settings.never] = 0.0
        self.pass_rates[kind >= 1 - settings.always] = 1.0
        self._order = self._rng.permutation(settings.num_prompts)
        self._taken = 0

    def mixed_share(self, n: int) -> float:
        """Expected share of the prompts with both a pass and a failure among n rollouts."""
        rates = self.pass_rates
        return float(np.mean(1.0 - rates**n - (1.0 - rates) ** n))

    def next_indices(self, count: int) -> list[int]:
        """The next prompts, in an order that is reshuffled every epoch."""
        indices: list[int] = []
        while len(indices) < count:
            if self._taken == len(self._order):
                self._rng.shuffle(self._order)
                self._taken = 0
            part = self._order[self._taken : self._taken + count - len(indices)]
            indices += part.tolist()
            self._taken += len(part)
        return indices

    def draw(self, index: int, count: int) -> tuple[list[float], list[int]]:
        """Successes (0 or 1) and response tokens of `count` rollouts of one prompt."""
        rate, s = self.pass_rates[index], self.settings
        successes = (self._rng.random(count) < rate).astype(float)
        median = s.median_tokens * s.hard_factor ** (0.5 - rate)
        tokens = np.clip(np.rint(median * np.exp(s.sigma * self._rng.standard_normal(count))), 1, s.max_tokens)
        return successes.tolist(), tokens.astype(int).tolist()


def fit_pass_rates(outcomes: Iterable[tuple[int, int]]) -> dict[str, float]:
    """Maximum-likelihood `never`, `always`, `alpha` and `beta` from each prompt's passes and failures.

    Prompts that always failed or passed got fewer rollouts; this does not matter, because continuing depended only on
    their outcomes.

    Args:
        outcomes: (passes, fails) of each prompt, at least one prompt with both.
    """
    counts: dict[tuple[int, int], int] = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    passes, fails = np.array(list(counts), dtype=float).reshape(-1, 2).T
    prompts = np.array(list(counts.values()), dtype=float)
    if not np.any((passes > 0) & (fails > 0)):
        raise ValueError("expected prompts that both passed and failed, got none: there is nothing to fit")

    def parameters(x: np.ndarray) -> tuple[float, float, float, float]:
        # The two shares and the remainder, as a softmax.
        weights = np.exp(np.array([x[0], x[1], 0.0]) - max(x[0], x[1], 0.0))
        never, always, _ = weights / weights.sum()
        # Below .3 the Beta would compete with the two point masses for the same prompts.
        alpha, beta = 0.3 + 4.7 * expit(x[2:])
        return float(never), float(always), float(alpha), float(beta)

    def negative_log_likelihood(x: np.ndarray) -> float:
        never, always, alpha, beta = parameters(x)
        between = np.exp(betaln(alpha + passes, beta + fails) - betaln(alpha, beta))
        likelihood = (1 - never - always) * between + never * (passes == 0) + always * (fails == 0)
        return -float((prompts * np.log(likelihood)).sum())

    best = minimize(negative_log_likelihood, np.array([0.0, 0.0, -1.0, -1.0]), method="Nelder-Mead", tol=1e-6)
    return dict(zip(("never", "always", "alpha", "beta"), parameters(best.x), strict=True))
