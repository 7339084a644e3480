"""Corrects predictions by the errors of recent ones, because evidence lags behind the policy. Pure: numpy and scipy.

Evidence from earlier policies lags behind the current policy. The lag is similar for many prompts, because they are
learned together: a prompt of medium difficulty has become easier, a hopeless one has not. So the predicted pass rate m
of a prompt is corrected in its log-odds,

    logit p = logit m + w0 + w1 logit m + w2 4 m (1 - m) + w3 e 4 m (1 - m),

where e is the share of evidence in the posterior's strength (0: only the prior), and w fits the outcomes of
the last few policies: logistic regression with a Gaussian prior around 0, outcomes of older policies counting less.
Platt (1999) calibrates with w0 and w1; the other two are for the middle, which moves most.

Outcomes of one prompt are alike beyond its pass rate's mean: N of them count as N (n + 1) / (n + N) draws, n being what
its posterior counts as, the design effect of the beta-binomial.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, logit

NUM_COEFFICIENTS = 4
# Factor by which an outcome's weight is discounted per weight version; outcomes below 1 % are dropped.
MEMORY, NUM_VERSIONS = 0.8, 20
# Prior standard deviation of the coefficients, and their bound.
SCALE, LARGEST = 0.3, 3.0
# More outcomes change nothing: the latest of a version are left out.
MAX_OUTCOMES = 8192
_NEWTON_STEPS = 8


class Recalibration:
    """The current correction and the outcomes it is fitted to.

    Attributes:
        coefficients: (4,) w.
        outcomes: (version, rows) of the last versions; a row is (mean, strength, evidence share, passes, rollouts).
    """

    def __init__(self) -> None:
        self.coefficients = np.zeros(NUM_COEFFICIENTS)
        self.outcomes: deque[tuple[int, list[tuple[float, ...]]]] = deque(maxlen=NUM_VERSIONS)

    def __call__(self, means: np.ndarray, evidence_shares: np.ndarray) -> np.ndarray:
        """Corrected pass rates, of the shape of `means`, from .0005 to .9995."""
        basis = _basis(means, evidence_shares)
        return expit(np.clip(_logit(means) + basis @ self.coefficients, -7.6, 7.6))

    def observe(
        self, version: int, mean: float, strength: float, evidence_share: float, passes: float, rollouts: float
    ) -> None:
        """Record the outcome of a prediction.

        Args:
            version: Weight version, at least that of the last call.
            mean: Predicted pass rate, uncorrected.
            strength: Rollouts that the prediction counts as.
            evidence_share: Share of these that is evidence and not prior.
            passes: Of the new rollouts; the sum of their successes where these are graded.
            rollouts: New ones, at least 1.
        """
        if not self.outcomes or self.outcomes[-1][0] != version:
            self.outcomes.append((version, []))
        rows = self.outcomes[-1][1]
        if len(rows) < MAX_OUTCOMES // NUM_VERSIONS:
            rows.append((mean, strength, evidence_share, passes, rollouts))

    def fit(self, version: int) -> None:
        """Fit the coefficients to the outcomes, weighted for this version."""
        if not any(rows for _, rows in self.outcomes):
            return
        kept = np.concatenate([np.full(len(rows), MEMORY ** (version - at)) for at, rows in self.outcomes])
        mean, strength, share, passes, rollouts = np.concatenate([np.array(rows) for _, rows in self.outcomes]).T
        kept = kept * (strength + 1) / (strength + rollouts)
        basis, offset = _basis(mean, share), _logit(mean)
        w, precision = self.coefficients, 1 / SCALE**2
        for _ in range(_NEWTON_STEPS):
            rate = expit(offset + basis @ w)
            gradient = basis.T @ (kept * (passes - rollouts * rate)) - precision * w
            curvature = (basis.T * (kept * rollouts * rate * (1 - rate))) @ basis + precision * np.eye(len(w))
            w = np.clip(w + np.linalg.solve(curvature, gradient), -LARGEST, LARGEST)
        self.coefficients = w

    def state(self) -> list[Any]:
        """Plain lists."""
        return [self.coefficients.tolist(), [[version, [list(row) for row in rows]] for version, rows in self.outcomes]]

    def restore(self, state: Sequence[Any]) -> None:
        """Restore what `state` returned."""
        coefficients, outcomes = state
        self.coefficients = np.array(coefficients, dtype=np.float64)
        self.outcomes.clear()
        self.outcomes.extend((int(version), [tuple(row) for row in rows]) for version, rows in outcomes)


def _logit(means: np.ndarray) -> np.ndarray:
    return logit(np.clip(means, 1e-3, 1 - 1e-3))


def _basis(means: np.ndarray, evidence_shares: np.ndarray) -> np.ndarray:
    """(..., 4)"""
    middle = 4 * means * (1 - means)
    return np.stack([np.ones_like(means), _logit(means), middle, evidence_shares * middle], -1)
