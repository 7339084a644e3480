"""Pass rates of prompts: pass@k, the histogram that shows where a pool's signal is, and both as text.

A prompt whose samples are all wrong (pass rate 0) or all right (pass rate 1) has no contrast among its siblings and
gives a group-relative advantage of zero. So the shares of zeros and ones are separate from the ten bins between.

P = prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

NUM_BINS = 10

Counts = Sequence[int] | np.ndarray


def _checked(num_correct_P: Counts, num_samples: int | Counts) -> tuple[np.ndarray, np.ndarray]:
    """Both as int64 arrays (P,); raises ValueError for impossible counts."""
    correct_P = np.asarray(num_correct_P)
    if correct_P.ndim != 1 or not len(correct_P):
        raise ValueError(
            f"num_correct must be one number per prompt for at least one prompt, got shape {correct_P.shape}"
        )
    samples_P = np.broadcast_to(np.asarray(num_samples), correct_P.shape)
    for name, values in (("num_correct", correct_P), ("num_samples", samples_P)):
        if not np.array_equal(values, values.astype(np.int64)):
            raise ValueError(f"{name} must be counts, got {values}. Pass the number of samples, not a rate.")
    correct_P, samples_P = correct_P.astype(np.int64), samples_P.astype(np.int64)
    if samples_P.min() < 1 or correct_P.min() < 0 or (correct_P > samples_P).any():
        raise ValueError(
            f"expected 0 <= num_correct <= num_samples and num_samples >= 1, got num_correct={correct_P.tolist()} "
            f"and num_samples={samples_P.tolist()}"
        )
    return correct_P, samples_P


def pass_at_k(num_correct_P: Counts, num_samples: int | Counts, k: int) -> np.ndarray:
    """Unbiased estimate, per prompt, of the probability that at least one of k samples is right.

    1 - C(n - c, k) / C(n, k) for c right among n samples (Chen et al. 2021, "Evaluating Large Language Models Trained
    on Code", equation 1). Summed as logarithms of the ratios 1 - k / i, so nothing overflows and a small result for a
    large n keeps its digits.

    Args:
        num_correct_P: Right samples per prompt (P,).
        num_samples: Samples per prompt, one number for all or (P,).
        k: From 1 to the smallest number of samples.

    Returns:
        (P,) float64 in [0, 1].

    Raises:
        ValueError: If the counts are impossible or k is larger than a prompt's number of samples.

    Example:
        >>> pass_at_k([0, 1, 4], 4, k=2)
        array([0. , 0.5, 1. ])
    """
    correct_P, samples_P = _checked(num_correct_P, num_samples)
    if not 1 <= k <= samples_P.min():
        raise ValueError(
            f"k must be from 1 to the number of samples ({samples_P.min()}), got {k}. Draw more samples or lower k."
        )
    result_P = np.ones(len(correct_P))
    distinct, inverse = np.unique(np.stack([correct_P, samples_P]), axis=1, return_inverse=True)
    for number, (c, n) in enumerate(distinct.T):
        if n - c >= k:  # otherwise every choice of k samples contains a right one
            ratios = k / np.arange(n - c + 1, n + 1, dtype=np.float64)
            result_P[inverse.reshape(-1) == number] = 0.0 - np.expm1(np.log1p(-ratios).sum())
    return result_P


@dataclass(frozen=True)
class PassRateHistogram:
    """Shares of the prompts by pass rate; zeros, bins and ones together sum to 1.

    Attributes:
        zeros: Share of prompts without a right sample.
        bins: Shares of the prompts strictly between; bin i holds pass rates in [i / 10, (i + 1) / 10).
        ones: Share of prompts with only right samples.
    """

    zeros: float
    bins: tuple[float, ...]
    ones: float

    def __post_init__(self) -> None:
        shares = (self.zeros, *self.bins, self.ones)
        if len(self.bins) != NUM_BINS or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError(f"expected {NUM_BINS} bins and shares that sum to 1, got {self}")

    @property
    def mixed(self) -> float:
        """Share of prompts with right and wrong samples: the only prompts that a group-relative method learns from."""
        return sum(self.bins)

    def render(self, width: int = 40) -> str:
        """The histogram as lines of text, the longest bar `width` characters.

        Example:
            >>> print(histogram([0, 0, 1, 4], 4).render(width=4))
            0/n          50.0 %  ####
            (0.0, 0.1)    0.0 %
            [0.1, 0.2)    0.0 %
            [0.2, 0.3)   25.0 %  ##
            [0.3, 0.4)    0.0 %
            [0.4, 0.5)    0.0 %
            [0.5, 0.6)    0.0 %
            [0.6, 0.7)    0.0 %
            [0.7, 0.8)    0.0 %
            [0.8, 0.9)    0.0 %
            [0.9, 1.0)    0.0 %
            n/n          25.0 %  ##
        """
        labels = [f"{'(' if i == 0 else '['}{i / NUM_BINS:.1f}, {(i + 1) / NUM_BINS:.1f})" for i in range(NUM_BINS)]
        rows = [("0/n", self.zeros), *zip(labels, self.bins, strict=True), ("n/n", self.ones)]
        tallest = max(share for _, share in rows)
        lines = []
        for label, share in rows:
            # A share above zero always shows, because an empty bar would read as "none".
            bar = "#" * max(round(width * share / tallest), 1 if share else 0)
            lines.append(f"{label:<11}{100 * share:6.1f} %  {bar}".rstrip())
        return "\n".join(lines)


def histogram(num_correct_P: Counts, num_samples: int | Counts) -> PassRateHistogram:
    """Histogram of the pass rates c / n of (P,) prompts.

    Raises:
        ValueError: If the counts are impossible.
    """
    correct_P, samples_P = _checked(num_correct_P, num_samples)
    mixed_P = (correct_P > 0) & (correct_P < samples_P)
    # In integers: 0.1 * 3 is more than 3 / 10 in floating point, so such a rate would be one bin too low.
    bin_P = NUM_BINS * correct_P[mixed_P] // samples_P[mixed_P]
    counts = np.bincount(bin_P, minlength=NUM_BINS)
    total = len(correct_P)
    return PassRateHistogram(
        zeros=float((correct_P == 0).sum() / total),
        bins=tuple(float(count / total) for count in counts),
        ones=float((correct_P == samples_P).sum() / total),
    )


@dataclass(frozen=True)
class PassRateSummary:
    """Summary of a model's results on a set of prompts.

    Attributes:
        num_prompts: Prompts.
        num_samples: Samples of all prompts together.
        pass_rate: Mean over prompts of c / n, which is pass@1.
        standard_error: Standard error of `pass_rate` over prompts, in closed form; nan for one prompt.
        pass_at: Mean over prompts of pass@k, by k.
        histogram: Shares of prompts by pass rate.
    """

    num_prompts: int
    num_samples: int
    pass_rate: float
    standard_error: float
    pass_at: Mapping[int, float]
    histogram: PassRateHistogram

    def render(self) -> str:
        """The summary as lines of text."""
        lines = [f"{self.num_prompts} prompts, {self.num_samples} samples"]
        error = "" if np.isnan(self.standard_error) else f" +- {self.standard_error:.4f}"
        lines.append(f"pass@1   {self.pass_rate:.4f}{error}")
        lines += [f"pass@{k:<4}{value:.4f}" for k, value in sorted(self.pass_at.items()) if k != 1]
        return "\n".join([*lines, self.histogram.render()])


def summarize(num_correct_P: Counts, num_samples: int | Counts, ks: Sequence[int] = (1,)) -> PassRateSummary:
    """Summary of (P,) counts of right samples.

    Raises:
        ValueError: If the counts are impossible or a k is larger than a prompt's number of samples.
    """
    correct_P, samples_P = _checked(num_correct_P, num_samples)
    rate_P = correct_P / samples_P
    spread = float(rate_P.std(ddof=1) / np.sqrt(len(rate_P))) if len(rate_P) > 1 else float("nan")
    return PassRateSummary(
        num_prompts=len(correct_P),
        num_samples=int(samples_P.sum()),
        pass_rate=float(rate_P.mean()),
        standard_error=spread,
        pass_at={k: float(pass_at_k(correct_P, samples_P, k).mean()) for k in ks},
        histogram=histogram(correct_P, samples_P),
    )
