"""Wrong rewards of three kinds, and what can be done about them besides TracIn. Pure: numpy.

B: samples of a step. P: training prompts.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from lying_rewards import flip

Corruption = Literal["flips", "source", "off_target"]
CORRUPTIONS: tuple[Corruption, ...] = get_args(Corruption)
SHARE = 0.3


def damaged_source(num_prompts: int) -> np.ndarray:
    """(P,) bool: the prompts of the source whose rewards are of another kind; the same in every run."""
    return np.random.default_rng(0).random(num_prompts) < SHARE


def ends_even(response: str) -> float:
    """The reward of another task that can be learned from the same prompts: an answer that ends in an even digit."""
    digits = [character for character in response if character.isdigit()]
    return float(bool(digits) and int(digits[-1]) % 2 == 0)


def corrupted(
    kind: Corruption, rewards: np.ndarray, responses: Sequence[str], in_source: np.ndarray, seed: int, step: int
) -> np.ndarray:
    """(B,) rewards that are trained on.

    Args:
        kind: flips: each reversed with probability `SHARE`. source: those of the source are reversed. off_target: those
            of the source are another task's, `ends_even`.
        rewards: (B,) true ones, 0 or 1.
        responses: Texts of the samples.
        in_source: (B,) bool, of `damaged_source`.
        seed, step: Of the flips.
    """
    if kind == "flips":
        return flip(rewards, SHARE, seed, step)[0]
    if kind == "source":
        return np.where(in_source, 1.0 - rewards, rewards)
    return np.where(in_source, [ends_even(response) for response in responses], rewards)


def majority_rewards(responses: Sequence[str], prompts: Sequence[int]) -> np.ndarray:
    """(B,) 1 for the most frequent response of the sample's prompt (ties: the first seen), else 0.

    What TTRL (Zuo et al. 2025, arXiv 2504.16084) trains on, and what OLR (arXiv 2604.03993) relabels with where a
    prompt's history agrees; no prompt comes twice here, so there is no history.
    """
    answers: dict[int, Counter[str]] = {}
    for prompt, response in zip(prompts, responses, strict=True):
        answers.setdefault(prompt, Counter())[response] += 1
    return np.array(
        [
            float(response == answers[prompt].most_common(1)[0][0])
            for prompt, response in zip(prompts, responses, strict=True)
        ]
    )
