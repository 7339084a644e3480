"""OLR, online label refinement (Yang et al. 2026, arXiv 2604.03993): answers of the policy replace doubtful labels.

Pure: numpy. A visit: a prompt's group of rollouts in one epoch. The constants are those of the authors' script for
Qwen3-4B (800 problems, 10 epochs, ShenzhiYang2000/OLR).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

EPOCHS = 10
FIRST_EPOCHS = 5  # without replacements
LEAST_SLOPE = 0.05


def slope(rates: Sequence[float]) -> float:
    """Least-squares slope of pass rates over visits: S = (t - mean t)'(p - mean p) / (t - mean t)'(t - mean t).

    Returns:
        Change per visit; 0 for fewer than two.
    """
    if len(rates) < 2:
        return 0.0
    times = np.arange(len(rates)) - (len(rates) - 1) / 2
    return float(times @ (np.asarray(rates) - np.mean(rates)) / (times @ times))


def most_frequent(values: Sequence[str]) -> str | None:
    """The one that comes most often; None if two do, as in the authors' code."""
    counts = Counter(values).most_common(2)
    return None if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]) else counts[0][0]


class LabelRefinement:
    """The history of every prompt, and from it the label that its rollouts are compared with.

    With y_t the most frequent answer among the K rollouts of visit t, and p_t its share of them:

        label = y_t   if slope(p_1 .. p_t) > `least_slope`, and y_t is the most frequent one among y_1 .. y_t
                the given one otherwise, and in the first `first_epochs` visits
    """

    def __init__(self, first_epochs: int = FIRST_EPOCHS, least_slope: float = LEAST_SLOPE) -> None:
        self.first_epochs, self.least_slope = first_epochs, least_slope
        self._answers: dict[int, list[str | None]] = defaultdict(list)
        self._rates: dict[int, list[float]] = defaultdict(list)

    def visit(self, prompt: int, responses: Sequence[str]) -> str | None:
        """Remember a visit.

        Returns:
            The answer that is now the label; None: the given label stays.
        """
        answer = most_frequent(responses)
        answers, rates = self._answers[prompt], self._rates[prompt]
        answers.append(answer)
        rates.append(0.0 if answer is None else responses.count(answer) / len(responses))
        if len(rates) <= self.first_epochs or slope(rates) <= self.least_slope:
            return None
        return answer if answer == most_frequent([each for each in answers if each is not None]) else None

    def rewards(self, given: np.ndarray, responses: Sequence[str], prompts: Sequence[int]) -> np.ndarray:
        """(B,) rewards of a step: by the new label where there is one, those of the given label elsewhere.

        Args:
            given: (B,) rewards as they come, some of them wrong.
            responses: Texts of the samples.
            prompts: Of the samples; all rollouts of a prompt are of one visit.
        """
        rewards = given.copy()
        for prompt in dict.fromkeys(prompts):
            rows = [row for row, each in enumerate(prompts) if each == prompt]
            if (label := self.visit(prompt, [responses[row] for row in rows])) is not None:
                rewards[rows] = [float(responses[row] == label) for row in rows]
        return rewards
