"""Means over prompts with bootstrap intervals, for one data set and for the average over several. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

CONFIDENCE = 0.95
NUM_RESAMPLES = 9999

# Elements resampled at a time: 80 MB.
_BATCH_ELEMENTS = 10_000_000


@dataclass(frozen=True)
class Estimate:
    """A mean and its bootstrap interval.

    Attributes:
        value: The mean.
        low: Lower end of the 95 % interval; None if a data set has only one prompt, which says nothing about other
            prompts.
        high: Upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def render(self) -> str:
        """For example "0.4123  [0.3811, 0.4439]"."""
        return f"{self.value:.4f}  {self.interval()}".rstrip()

    def interval(self) -> str:
        """For example "[0.3811, 0.4439]"; "" if there is none."""
        return "" if self.low is None else f"[{self.low:.4f}, {self.high:.4f}]"


def repeat_error(values_PG: Sequence[Sequence[float]] | np.ndarray) -> float | None:
    """Standard error over repeats: how much the mean would vary if the same P prompts were sampled again.

    Sample g of every prompt is one repeat of the evaluation, with its own mean. The spread of these G means is divided
    by sqrt(G). The bootstrap interval is about other prompts instead, and is wider.

    Args:
        values_PG: One number per prompt and sample; the same number of samples for each prompt.

    Returns:
        The standard error; None for one sample per prompt, without repeats.

    Example:
        >>> repeat_error([[1.0, 0.0], [1.0, 1.0]])  # repeats of 1.0 and 0.5
        0.25
    """
    means_G = np.asarray(values_PG, dtype=np.float64).mean(axis=0)
    return float(means_G.std(ddof=1) / sqrt(len(means_G))) if len(means_G) > 1 else None


def macro_repeat_error(errors: Sequence[float | None]) -> float | None:
    """Standard error over repeats of the mean over data sets, which are sampled independently of each other.

    Args:
        errors: Error of each data set; None without repeats, which also makes the mean None.
    """
    known = [error for error in errors if error is not None]
    return sqrt(sum(error**2 for error in known)) / len(errors) if known and len(known) == len(errors) else None


def bootstrap_mean(values_P: Sequence[float] | np.ndarray, seed: int = 0) -> Estimate:
    """Mean over P prompts with the percentile bootstrap's interval (Efron and Tibshirani 1993, chapter 13).

    Prompts are resampled, not samples: the interval is about other prompts of the same kind. It is slightly too narrow
    for few prompts (30 prompts: by about 2 %).

    Args:
        values_P: One number per prompt.
        seed: Equal seeds give equal intervals.

    Raises:
        ValueError: If there is no prompt.
    """
    return bootstrap_macro_mean([values_P], seed)


def bootstrap_macro_mean(data_sets: Sequence[Sequence[float] | np.ndarray], seed: int = 0) -> Estimate:
    """Mean over data sets of their means over prompts; the prompts of each data set are resampled separately.

    Args:
        data_sets: For each data set, one number per prompt (P,); lengths may differ.
        seed: Equal seeds give equal intervals.

    Raises:
        ValueError: If there is no data set, or one without prompts.
    """
    from scipy.stats import bootstrap

    arrays = [np.asarray(values_P, dtype=np.float64) for values_P in data_sets]
    if not arrays or any(array.ndim != 1 or not len(array) for array in arrays):
        raise ValueError(f"expected at least one prompt per data set, got shapes {[array.shape for array in arrays]}")

    def macro_mean(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.mean([sample.mean(axis=axis) for sample in samples], axis=0)

    value = float(macro_mean(*arrays))
    if min(map(len, arrays)) == 1:
        return Estimate(value)
    if all((array == array[0]).all() for array in arrays):  # scipy warns about expected cases
        return Estimate(value, value, value)
    result = bootstrap(
        arrays,
        macro_mean,
        n_resamples=NUM_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        batch=max(_BATCH_ELEMENTS // sum(map(len, arrays)), 1),
        rng=np.random.default_rng(seed),
    )
    return Estimate(value, float(result.confidence_interval.low), float(result.confidence_interval.high))
