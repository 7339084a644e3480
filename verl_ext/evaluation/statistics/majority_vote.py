"""maj@k: how often the most frequent answer of k samples is right. Exact, no sampling of subsets.

A sample's vote is its extracted answer's text; a sample without an answer ("") has none. Equal answers in different
notation (1/2 and 0.5) are different votes: merging them by equality with the ground truth would help only the right
ones.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import comb

import numpy as np

# C(n, k) overflows float64 for more samples.
MAX_SAMPLES = 1000


def majority_at_k(answers_G: Sequence[str], correct_G: Sequence[bool], k: int) -> float:
    """Expected accuracy of the majority answer of k of a prompt's G samples (self-consistency, Wang et al. 2022).

    The expectation is over all C(G, k) subsets, and over a fair draw among the answers that tie for the most votes. A
    subset without any answer counts as wrong. So for k = 1 this is the pass rate.

    Args:
        answers_G: Extracted answer of each sample; "" for none.
        correct_G: Whether each sample is right.
        k: From 1 to G.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: If the lengths differ, k is out of range, or there are more than `MAX_SAMPLES` samples.

    Example:
        >>> majority_at_k(["7", "7", "7", "8"], [True, True, True, False], k=2)  # 3 of 6 pairs tie
        0.75
    """
    n = len(answers_G)
    if len(correct_G) != n:
        raise ValueError(f"expected one verdict per answer, got {n} answers and {len(correct_G)} verdicts")
    if not 1 <= k <= n <= MAX_SAMPLES:
        raise ValueError(f"expected 1 <= k <= samples <= {MAX_SAMPLES}, got k={k} and {n} samples")
    votes: dict[str, list[bool]] = {}
    for answer, correct in zip(answers_G, correct_G, strict=True):
        votes.setdefault(answer, []).append(bool(correct))
    abstentions = len(votes.pop("", []))
    counts = sorted((len(verdicts), sum(verdicts)) for verdicts in votes.values())
    return _expected_accuracy(tuple(counts), abstentions, k)


@lru_cache(maxsize=4096)
def _expected_accuracy(counts: tuple[tuple[int, int], ...], abstentions: int, k: int) -> float:
    """Cached by (samples, right samples) of each answer, because most prompts share these patterns."""
    n = sum(count for count, _ in counts) + abstentions
    total = 0.0
    for position, (count, right) in enumerate(counts):
        if right:
            others = [other for number, (other, _) in enumerate(counts) if number != position]
            wins = sum(
                comb(count, most) * _shared_wins(others, abstentions, most, k - most)
                for most in range(1, min(count, k) + 1)
            )
            total += wins * right / count
    return total / comb(n, k)


def _shared_wins(others: Sequence[int], abstentions: int, most: int, rest: int) -> float:
    """Number of ways to draw `rest` samples from the others, each at most `most` times, divided by 1 + number of ties.

    The coefficient of x^rest in a product of polynomials, one factor per answer, whose x^i coefficient counts the ways
    to draw it i times; the ties are counted along the first axis.
    """
    ways = np.zeros((rest // most + 1, rest + 1))  # (ties, samples drawn)
    ways[0] = [float(comb(abstentions, drawn)) for drawn in range(rest + 1)]
    for count in others:
        product = np.zeros_like(ways)
        for drawn in range(min(count, most - 1, rest) + 1):
            product[:, drawn:] += comb(count, drawn) * ways[:, : rest + 1 - drawn]
        if most <= min(count, rest):
            product[1:, most:] += comb(count, most) * ways[:-1, : rest + 1 - most]
        ways = product
    return float((ways[:, rest] / np.arange(1, len(ways) + 1)).sum())
