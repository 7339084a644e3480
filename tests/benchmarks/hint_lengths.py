"""How much of its golden solution a hopeless prompt is given, so that its pass rate is near 1/2. Pure: numpy.

The hint of a prompt is the first k tokens of its golden solution of L tokens. Its share is s = level + offset, and k is
s L, rounded up or down at random so that its mean is s L. After a group of which a share r has passed,

    level  <- level  + level_step (1/2 - r),            of all prompts, follows the policy that learns
    offset <- offset + offset_step (1/2 - r) / visits,  of the prompt, follows how hard it is among the others

which is the stochastic approximation of Robbins and Monro (1951).
A prompt whose share has come to 0 gets no hint: its group is an ordinary one. AdaBack (2506.18110) adapts each prompt's
share by binary search; here a prompt is seen too seldom for that, so what one prompt tells counts for all of them.

A hinted rollout is no evidence on the prompt without a hint, so hinted groups have their own posterior: the pass rate
of all recent hinted rollouts with as many tokens left to write, counted as 4 rollouts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Rollouts that the pass rate of other prompts counts as, and what is kept of these from choice to choice.
_STRENGTH, _KEPT = 4.0, 0.9


@dataclass(frozen=True)
class HintSettings:
    """How hints adapt.

    Attributes:
        start: Share of the golden solution that the first hints give.
        level_step: By which a group that passes or fails as a whole moves the level by half of it.
        offset_step: The same for the prompt's offset, at its first group.
        hopeless_below: A prompt is hopeless if the posterior mean of its pass rate without a hint is below.
    """

    start: float = 0.9
    level_step: float = 0.01
    offset_step: float = 0.2
    hopeless_below: float = 0.05

    def __post_init__(self) -> None:
        for name in ("start", "hopeless_below"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"expected {name} from 0 to 1, got {value}")
        if min(self.level_step, self.offset_step) < 0:
            raise ValueError(f"expected steps of at least 0, got {self.level_step} and {self.offset_step}")


class Hint(NamedTuple):
    """The hint of one group of a prompt.

    Attributes:
        position: Of the prompt.
        length: Tokens of its golden solution; 0: it is an ordinary group.
        alpha, beta: Of the posterior of the hinted prompt's pass rate.
    """

    position: int
    length: int
    alpha: float
    beta: float


class HintLengths:
    """The hints of the prompts 0 .. P - 1.

    Args:
        lengths_P: (P,) int, tokens of each prompt's golden solution, at least 1.
        settings: How hints adapt.
        seed: Of the choice of prompts and of rounding.

    Attributes:
        level: Share of the golden solution that an average hopeless prompt is given.
    """

    def __init__(self, lengths_P: Sequence[int] | np.ndarray, settings: HintSettings, seed: int) -> None:
        self._lengths = np.asarray(lengths_P, dtype=np.int64)
        if self._lengths.ndim != 1 or not len(self._lengths) or self._lengths.min() < 1:
            raise ValueError("expected the length of every prompt's golden solution, each at least 1 token")
        self.settings, self.level = settings, settings.start
        self._rng = np.random.default_rng(seed)
        num_prompts = len(self._lengths)
        self._offsets, self._visits = np.zeros(num_prompts), np.zeros(num_prompts)
        # By the number of tokens that are left to write.
        self._passes, self._fails = (np.zeros(int(self._lengths.max()) + 1) for _ in range(2))
        self._last = np.zeros(num_prompts, dtype=np.int64)  # number of the choice
        self._num_choices = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def choose(self, means_P: np.ndarray, count: int) -> list[Hint]:
        """Hopeless prompts whose last hint is longest ago, and their hints.

        Args:
            means_P: (P,) posterior means of the pass rates without a hint.
            count: Prompts, at most.
        """
        hopeless = np.flatnonzero(means_P < self.settings.hopeless_below)
        order = np.lexsort((self._rng.random(len(hopeless)), self._last[hopeless]))
        chosen = hopeless[order[:count]]
        self._num_choices += 1
        self._passes *= _KEPT
        self._fails *= _KEPT
        self._last[chosen] = self._num_choices
        shares = np.clip(self.level + self._offsets[chosen], 0.0, 1.0)
        rounded = np.floor(shares * self._lengths[chosen] + self._rng.random(len(chosen))).astype(np.int64)
        # At least one token is the policy's own.
        tokens = np.minimum(rounded, self._lengths[chosen] - 1)
        own = self._lengths[chosen] - tokens
        means = (0.5 + self._passes[own]) / (1 + self._passes[own] + self._fails[own])
        return [
            Hint(int(position), int(length), float(_STRENGTH * mean), float(_STRENGTH * (1 - mean)))
            for position, length, mean in zip(chosen, tokens, means, strict=True)
        ]

    def observe(self, hint: Hint, passes: float, fails: float) -> None:
        """Take the outcome of a group whose hint `choose` gave; also of one of length 0."""
        position, own = hint.position, self._lengths[hint.position] - hint.length
        if min(passes, fails) < 0 or not passes + fails:
            raise ValueError(f"expected at least one rollout, got {passes} passes and {fails} fails")
        missed = 0.5 - passes / (passes + fails)
        self._visits[position] += 1
        self.level = float(np.clip(self.level + self.settings.level_step * missed, 0.0, 1.0))
        moved = self._offsets[position] + self.settings.offset_step * missed / self._visits[position]
        self._offsets[position] = np.clip(moved, -1.0, 1.0)
        self._passes[own] += passes
        self._fails[own] += fails

    def metrics(self) -> dict[str, float]:
        """The level, and the mean share of the prompts that had a hint."""
        hinted = self._visits > 0
        shares = np.clip(self.level + self._offsets[hinted], 0.0, 1.0)
        return {
            "hints/level": self.level,
            "hints/share": float(shares.mean()) if hinted.any() else self.level,
            "hints/prompts": float(hinted.sum()),
        }
