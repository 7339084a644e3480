"""The prior of a prompt's pass rate before anything was generated for it. Pure: numpy and scipy.

A prompt has features x, known without any rollout: its data source, its length, a difficulty field. Its pass rate is

    p ~ Beta(s m, s (1 - m)),      m = sigmoid(w x),      s = exp(v x)

m is the mean of similar prompts; s, the number of rollouts the prior counts as, says how alike they are. Outcomes are
then beta-binomial, and (w, v) is the most likely pair given those seen so far (empirical Bayes; beta-binomial
regression, Prentice 1986). So the value of the features is learned: if they are uninformative, only the constants
remain and every prompt has the same prior, fitted to the pool.

Regularisation while there are few outcomes: the constants start from an initial Beta prior, which counts as `weight`
prompts with two rollouts each; the other coefficients have a Gaussian prior around 0, narrower with more features.

Shapes: P prompts of the data set, N of them that were seen, F features.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, expit, logit, psi

# Maximum number of prompts in a fit, which then takes about 10 milliseconds however long the run is.
MAX_FITTED = 4096
# Expected spread of logits and log-strengths between prompts from all features together: with one scale per feature, 30
# uninformative features could fit the outcomes of 64 prompts perfectly and mispredict all others.
MEAN_SCALE, STRENGTH_SCALE = 1.0, 0.25
# A prior counts as exp(-4) to exp(4) rollouts, unless the initial one is outside this range.
LARGEST_LOG_STRENGTH, LARGEST_LOGIT = 4.0, 8.0
MAX_ITERATIONS = 50


class Beta(NamedTuple):
    """Parameters of Beta distributions, arrays of one shape."""

    alpha: np.ndarray
    beta: np.ndarray


class Outcomes(NamedTuple):
    """Outcomes of N prompts.

    Attributes:
        x_NF: (N, 1 + F) a constant 1, then their features.
        passes: (N,) rollouts.
        fails: (N,) rollouts.
        counts: (N,) number of prompts that each row stands for.
    """

    x_NF: np.ndarray
    passes: np.ndarray
    fails: np.ndarray
    counts: np.ndarray


class FeaturePrior:
    """Beta priors of a data set's prompts.

    Args:
        features_PF: (P, F) numbers, without a constant column; F may be 0. Standardised here; those that are the same
            for all prompts are left out.
        initial: (alpha, beta) of the prior before anything was seen.
        weight: Prompts that the initial prior counts as in `fit`; infinite: it is never changed.

    Attributes:
        coefficients: (2, 1 + F) w and v, the constants first. Replaced and never changed.

    Raises:
        ValueError: If a feature is not finite.
    """

    def __init__(self, features_PF: np.ndarray, initial: tuple[float, float], weight: float) -> None:
        features_PF = np.asarray(features_PF, dtype=np.float64)
        if features_PF.ndim != 2 or not np.isfinite(features_PF).all():
            raise ValueError(f"expected finite features of shape (prompts, features), got {features_PF.shape}")
        mean, spread = features_PF.mean(0), features_PF.std(0)
        varied = spread > 1e-9 * np.abs(mean)  # below this, a feature is constant up to rounding
        standardised = (features_PF[:, varied] - mean[varied]) / spread[varied]
        self._x_PF = np.concatenate([np.ones((len(features_PF), 1)), standardised], 1)
        self._initial, self._weight = initial, weight
        self.coefficients = np.zeros((2, self._x_PF.shape[1]))
        self.coefficients[:, 0] = logit(initial[0] / sum(initial)), np.log(sum(initial))
        self._known, self._known_for = Beta(np.empty(0), np.empty(0)), np.empty(0)
        self._limits = np.maximum((LARGEST_LOGIT, LARGEST_LOG_STRENGTH), np.abs(self.coefficients[:, 0]))

    def __call__(self, positions: np.ndarray) -> Beta:
        """Priors of the prompts at these positions, arrays of the shape of `positions`."""
        # Computed for all prompts once per fit, because many are requested before the next.
        if self._known_for is not self.coefficients:
            self._known, self._known_for = _priors(self._x_PF, self.coefficients, self._limits), self.coefficients
        return Beta(self._known.alpha[positions], self._known.beta[positions])

    def fit(self, positions: np.ndarray, passes: np.ndarray, fails: np.ndarray) -> None:
        """Fit the coefficients to these outcomes by maximum likelihood.

        Args:
            positions: Of distinct prompts; the cost grows with their number, see MAX_FITTED.
            passes: Of each prompt; may be fractional, because evidence is discounted.
            fails: Of each prompt.
        """
        if np.isinf(self._weight):
            return
        x_NF = self._x_PF[positions]
        # The initial prior as pseudo-outcomes: average prompts with two rollouts each, with the expected frequencies.
        a, b = self._initial
        expected = np.array([a * (a + 1), 2 * a * b, b * (b + 1)]) / ((a + b) * (a + b + 1))
        average = np.zeros((3, x_NF.shape[1]))
        average[:, 0] = 1.0
        outcomes = Outcomes(
            np.concatenate([x_NF, average]),
            np.append(passes, [2.0, 1.0, 0.0]),
            np.append(fails, [0.0, 1.0, 2.0]),
            np.append(np.ones(len(positions)), self._weight * expected),
        )

        def flat(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = loss(coefficients.reshape(2, -1), outcomes, self._limits)
            return value, gradient.ravel()

        # The constants stay where the loss is not flat; the features' contribution may be clipped.
        largest = np.full_like(self.coefficients, np.inf)
        largest[:, 0] = self._limits
        best = minimize(
            flat,
            self.coefficients.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(-largest.ravel(), largest.ravel(), strict=True)),
            options={"maxiter": MAX_ITERATIONS},
        )
        self.coefficients = best.x.reshape(2, -1)

    @property
    def average(self) -> tuple[float, float]:
        """(alpha, beta) of a prompt with average features."""
        alpha, beta = _priors(np.eye(1, self._x_PF.shape[1]), self.coefficients, self._limits)
        return float(alpha[0]), float(beta[0])


def loss(coefficients: np.ndarray, outcomes: Outcomes, limits: np.ndarray) -> tuple[float, np.ndarray]:
    """Negative log-probability of the outcomes and of the coefficients other than the constants, up to a constant.

    Args:
        coefficients: (2, 1 + F) w and v.
        outcomes: Beta-binomial under them.
        limits: (2,) largest logit of a mean and logarithm of a strength, either sign; beyond them the loss is flat.

    Returns:
        The loss, and its gradient, (2, 1 + F).
    """
    x_NF, passes, fails, counts = outcomes
    penalties = np.zeros_like(coefficients)
    num_features = coefficients.shape[1] - 1
    penalties[:, 1:] = num_features / np.array([[MEAN_SCALE], [STRENGTH_SCALE]]) ** 2
    alpha, beta = _priors(x_NF, coefficients, limits)
    strength = alpha + beta
    log_likelihood = counts @ (betaln(alpha + passes, beta + fails) - betaln(alpha, beta))
    both = psi(strength) - psi(strength + passes + fails)
    by_alpha = psi(alpha + passes) - psi(alpha) + both
    by_beta = psi(beta + fails) - psi(beta) + both
    by_logit = (by_alpha - by_beta) * alpha * beta / strength
    by_log_strength = by_alpha * alpha + by_beta * beta
    is_inside = np.abs(x_NF @ coefficients.T) <= limits
    gradient = x_NF.T @ (counts[:, None] * np.stack([by_logit, by_log_strength], 1) * is_inside)
    return float(0.5 * (penalties * coefficients**2).sum() - log_likelihood), penalties * coefficients - gradient.T


def _priors(x_NF: np.ndarray, coefficients: np.ndarray, limits: np.ndarray) -> Beta:
    logits = np.clip(x_NF @ coefficients[0], -limits[0], limits[0])
    strength = np.exp(np.clip(x_NF @ coefficients[1], -limits[1], limits[1]))
    return Beta(strength * expit(logits), strength * expit(-logits))
