"""What a prompt's pass rate is likely to be before anything was generated for it. Pure: numpy and scipy.

A prompt has features x, known without any rollout: its data source, its length, a difficulty field. Its pass rate is

    p ~ Beta(s m, s (1 - m)),      m = sigmoid(w x),      s = exp(v x)

m is the mean of prompts that look like it, s how alike these are: rollouts that the prior counts as. Outcomes are then
beta-binomial, and (w, v) is the most likely pair given those seen so far (empirical Bayes; beta-binomial regression,
Prentice 1986). How much the features are worth is thus learned: where they tell nothing, w and v are the
constant alone and every prompt has the same prior, the one that fits the pool.

What holds it back while little is known: the constant parts begin at an initial Beta prior, as the opinion of
`weight` prompts with two rollouts each, and the others have a Gaussian prior around 0.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, expit, logit, psi

# Prompts that are enough for a fit, which then takes a few milliseconds however long a run is.
MAX_FITTED = 4096
# Of the coefficients of standardised features. A factor of e^2 in the odds or in the strength is nothing unusual for
# the first; how alike prompts are differs less.
MEAN_SCALE, STRENGTH_SCALE = 2.0, 0.5
# exp(4) rollouts: a prior never counts for more, nor for less than exp(-4).
LARGEST_LOG_STRENGTH, LARGEST_LOGIT = 4.0, 8.0


class Beta(NamedTuple):
    """Parameters of Beta distributions, arrays of one shape."""

    alpha: np.ndarray
    beta: np.ndarray


class FeaturePrior:
    """Beta priors of a data set's prompts.

    Args:
        features_PF: (P, F) numbers, without a constant column; F may be 0. Standardised here.
        initial: (alpha, beta) of the prior before anything was seen.
        weight: Prompts that this opinion counts as in `fit`; infinite: it stays.

    Raises:
        ValueError: If a feature is not finite.
    """

    def __init__(self, features_PF: np.ndarray, initial: tuple[float, float], weight: float) -> None:
        features_PF = np.asarray(features_PF, dtype=np.float64)
        if features_PF.ndim != 2 or not np.isfinite(features_PF).all():
            raise ValueError(f"expected finite features of shape (prompts, features), got {features_PF.shape}")
        spread = features_PF.std(0)
        varied = spread > 0
        standardised = (features_PF[:, varied] - features_PF[:, varied].mean(0)) / spread[varied]
        self._x_PF = np.concatenate([np.ones((len(features_PF), 1)), standardised], 1)
        self._initial, self._weight = initial, weight
        self.coefficients = np.zeros((2, self._x_PF.shape[1]))  # w and v
        self.coefficients[:, 0] = logit(initial[0] / sum(initial)), np.log(sum(initial))

    def __call__(self, positions: np.ndarray) -> Beta:
        """Priors of the prompts at these positions, arrays of the shape of `positions`."""
        logits, log_strengths = self._clipped(self._x_PF[positions])
        mean, strength = expit(logits), np.exp(log_strengths)
        return Beta(strength * mean, strength * (1 - mean))

    def fit(self, positions: np.ndarray, passes: np.ndarray, fails: np.ndarray) -> None:
        """Take the coefficients that make these outcomes most likely.

        Args:
            positions: Of different prompts; the cost grows with their number, see MAX_FITTED.
            passes: Of each; not necessarily whole, as evidence is discounted.
            fails: Of each.
        """
        x = self._x_PF[positions]
        penalties = np.ones((2, x.shape[1])) / np.array([[MEAN_SCALE], [STRENGTH_SCALE]]) ** 2
        penalties[:, 0] = 0.0  # the constant parts are held by the initial opinion instead

        # That opinion, as outcomes of two rollouts each in the numbers that it expects, of average prompts.
        a, b = self._initial
        expected = np.array([a * (a + 1), 2 * a * b, b * (b + 1)]) / ((a + b) * (a + b + 1))
        average = np.zeros((3, x.shape[1]))
        average[:, 0] = 1.0
        x = np.concatenate([x, average])
        passes, fails = np.append(passes, [2.0, 1.0, 0.0]), np.append(fails, [0.0, 1.0, 2.0])
        counts = np.append(np.ones(len(positions)), self._weight * expected)

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            coefficients = flat.reshape(2, -1)
            logits, log_strengths = x @ coefficients[0], x @ coefficients[1]
            m, s = expit(logits), np.exp(np.clip(log_strengths, -LARGEST_LOG_STRENGTH, LARGEST_LOG_STRENGTH))
            alpha, beta = np.maximum(s * m, 1e-9), np.maximum(s * (1 - m), 1e-9)
            likelihood = counts * (betaln(alpha + passes, beta + fails) - betaln(alpha, beta))
            both = psi(s) - psi(s + passes + fails)
            by_alpha = psi(alpha + passes) - psi(alpha) + both
            by_beta = psi(beta + fails) - psi(beta) + both
            gradient = np.stack(
                [
                    x.T @ (counts * (by_alpha - by_beta) * s * m * (1 - m)),
                    x.T @ (counts * (by_alpha * alpha + by_beta * beta)),
                ]
            )
            value = 0.5 * (penalties * coefficients**2).sum() - likelihood.sum()
            return float(value), (penalties * coefficients - gradient).ravel()

        best = minimize(loss, self.coefficients.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 50})
        self.coefficients = best.x.reshape(2, -1)

    @property
    def average(self) -> tuple[float, float]:
        """(alpha, beta) of a prompt with average features."""
        logits, log_strengths = self._clipped(np.eye(1, self._x_PF.shape[1]))
        mean, strength = float(expit(logits[0])), float(np.exp(log_strengths[0]))
        return strength * mean, strength * (1 - mean)

    def _clipped(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits, log_strengths = x @ self.coefficients[0], x @ self.coefficients[1]
        return (
            np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT),
            np.clip(log_strengths, -LARGEST_LOG_STRENGTH, LARGEST_LOG_STRENGTH),
        )
