"""Predicted pass rates compared with outcomes: scores of a step, and a table over the run. Pure."""

import numpy as np

# Prediction against outcome, in tenths of the predicted pass rate.
NUM_BINS = 10


class Reliability:
    """Predictions, each compared with the rollouts that followed it.

    Attributes:
        table: (10, 3) by tenths of the prediction: rollouts, sum of predictions, sum of successes.
    """

    def __init__(self) -> None:
        self.table = np.zeros((NUM_BINS, 3))
        self.reset()

    def reset(self) -> None:
        """Begin a new window of `scores`; the table keeps accumulating."""
        # Rollouts, sum of squared errors, of successes and of predictions, and the successes' shortfall.
        self._window = np.zeros(5)

    def observe(self, rate: float, passes: float, fails: float, shortfall: float) -> None:
        """Record the outcome of a prediction.

        Args:
            rate: Predicted pass rate.
            passes: Of the rollouts, as of `PassRatePosterior.observe`.
            fails: The same.
            shortfall: The same.
        """
        count = passes + fails
        place = min(int(rate * NUM_BINS), NUM_BINS - 1)
        # The sum of (s - rate)^2 over the successes s.
        squared = passes * (1 - rate) ** 2 + fails * rate**2 - shortfall
        self._window += count, squared, passes, rate * count, shortfall
        self.table[place] += count, rate * count, passes

    def scores(self) -> dict[str, float]:
        """Since the last reset: Brier score of single rollouts, Brier score of always predicting the mean, and the
        bias."""
        count, squared, passes, predicted, shortfall = self._window
        if not count:
            return {}
        mean = passes / count
        return {
            "predictor/brier": squared / count,
            "predictor/brier_of_the_mean": mean * (1 - mean) - shortfall / count,
            "predictor/bias": (predicted - passes) / count,
            "predictor/observed_rollouts": count,
        }

    def rows(self) -> list[dict[str, float]]:
        """Tenths that occurred: rollouts, mean prediction, observed mean success."""
        return [
            {"bin": place / NUM_BINS, "rollouts": count, "predicted": predicted / count, "observed": passes / count}
            for place, (count, predicted, passes) in enumerate(self.table.tolist())
            if count
        ]
