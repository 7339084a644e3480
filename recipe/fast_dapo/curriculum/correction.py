"""What screening does to the gradient, and how to undo it. Pure.

A prompt is *kept* when its screening was mixed. Its group, all N samples, is then trained on, and a group with c passes
has a gradient estimate g(c) (RLOO, GRPO, any estimator that is 0 when all rewards are equal). Without a correction, the
expected gradient of a kept prompt is

    E[g(c) | kept]   instead of   E[g(c)],

and rare passes are over-represented: at pass rate .01 with n=4, N=24 the RLOO gradient is inflated 5.0 times, at .05
1.7 times, at .1 1.29 times (`inflation`). The N samples are exchangeable, so given c every order is equally likely and

    P(kept | c) = 1 - P(first s0 samples all fail | c) - P(first s1 samples all pass | c)
                = 1 - C(N-c, s0) / C(N, s0) - C(c, s1) / C(N, s1).

Screening with n samples has s0 = s1 = n. Sequential screening gives up after s0 failures or s1 passes in a row and
stops at the first mixed outcome; it keeps exactly the same prompts as screening with those limits, because only whether
the first s0 (s1) samples are all alike matters. The limits must have been fixed before the first sample was seen.

`horvitz_thompson` multiplies the group's advantages by 1 / P(kept | c), so that every *screened* prompt contributes its
plain expectation: E[1{kept} g(c) / P(kept | c)] = E[g(c)], because g(c) = 0 wherever P(kept | c) = 0. The largest
weight is N / min(s0, s1), at one pass or one failure; a clip below it trades a bias at the ends for variance.
`continuation_only` trains on the N - n samples that screening has not seen: unbiased given the prompt, and a prompt of
pass rate p takes part with probability P(screening is mixed | p). `none` is the original method.

The correction is of what a *screened* prompt contributes. Which prompts are screened is the data set's order or the
predictor's choice; that choice is made before the samples are drawn and changes the mix of prompts, not the expectation
of any one of them. A common factor (such as the share of prompts that are kept) is lost in a loss that is a mean.

Source: Horvitz and Thompson (1952), A generalization of sampling without replacement from a finite universe.
"""

from math import comb
from typing import Literal

import numpy as np

Correction = Literal["none", "horvitz_thompson", "continuation_only"]


def probability_kept(num_passes: int, group_size: int, max_fails: int, max_passes: int) -> float:
    """P(the screening of a group was mixed | its passes).

    Args:
        num_passes: Passes c among all N samples.
        group_size: N.
        max_fails: s0, samples after which a prompt that has only failed is given up.
        max_passes: s1, samples after which a prompt that has only passed is given up.

    Raises:
        ValueError: if a count is out of range.
    """
    if not 0 <= num_passes <= group_size:
        raise ValueError(f"num_passes must be from 0 to group_size={group_size}, got {num_passes}")
    for name, limit in (("max_fails", max_fails), ("max_passes", max_passes)):
        if not 2 <= limit <= group_size:
            raise ValueError(f"{name} must be from 2 (one sample is never mixed) to {group_size}, got {limit}")
    all_fail = comb(group_size - num_passes, max_fails) / comb(group_size, max_fails)
    all_pass = comb(num_passes, max_passes) / comb(group_size, max_passes)
    return max(0.0, 1.0 - all_fail - all_pass)


def horvitz_thompson_weight(num_passes: int, group_size: int, max_fails: int, max_passes: int) -> float:
    """1 / P(kept | c) of a group that was kept; arguments as of `probability_kept`.

    Raises:
        ValueError: if such a group cannot have been kept.
    """
    probability = probability_kept(num_passes, group_size, max_fails, max_passes)
    if probability <= 0.0:
        raise ValueError(
            f"a group with {num_passes} of {group_size} passes is never kept with limits {max_fails} and {max_passes}: "
            "its samples do not belong to this screening"
        )
    return 1.0 / probability


def clip_weights(weights: np.ndarray, clip: float | None) -> tuple[np.ndarray, float]:
    """Weights no larger than `clip` (None: as they are), and the share that was cut.

    Args:
        weights: Float array of any shape.
    """
    if clip is None:
        return weights, 0.0
    if clip < 1.0:
        raise ValueError(f"clip must be at least 1 (a weight is never smaller), got {clip}: raise it or set null")
    return np.minimum(weights, clip), float(np.mean(weights > clip)) if weights.size else 0.0


def rloo_signal(num_passes: np.ndarray, group_size: int) -> np.ndarray:
    """Size of a group's RLOO gradient with 0/1 rewards along the direction that raises the pass rate.

    The advantages of passes sum to c (N-c) / (N-1), those of failures to the opposite; divided by N this estimates
    p (1-p) without bias.
    """
    num_passes = np.asarray(num_passes, dtype=np.float64)
    return num_passes * (group_size - num_passes) / (group_size * (group_size - 1))


def inflation(pass_rate: float, n: int, group_size: int) -> float:
    """E[g | kept] / E[g] of RLOO with all N samples of screened prompts and no correction, exactly.

    Args:
        pass_rate: p, strictly between 0 and 1.
        n: Screening samples.
        group_size: N.
    """
    if not 0.0 < pass_rate < 1.0:
        raise ValueError(f"pass_rate must be strictly between 0 and 1, got {pass_rate}")
    counts = np.arange(group_size + 1)
    binomial = np.array([comb(group_size, int(c)) * pass_rate**c * (1 - pass_rate) ** (group_size - c) for c in counts])
    kept = np.array([probability_kept(int(c), group_size, n, n) for c in counts])
    signal = rloo_signal(counts, group_size)
    return float((binomial * kept * signal).sum() / (binomial * kept).sum() / (pass_rate * (1 - pass_rate)))
