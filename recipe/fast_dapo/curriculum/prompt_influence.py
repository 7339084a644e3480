"""Which prompts help a validation set, learned from the influence scores of the groups trained on. Pure: numpy.

A pass rate near 1/2 may be noise: where the rewards of a data source are wrong, its prompts look promising and teach
the wrong thing. TracIn recognises such groups by the inner product of their gradient with a validation set's. One
group's score is noisy, so scores are gathered by prompt and by data source. z is a group's score over the root mean
square of its update's, and the model is

    z ~ N(value of the prompt, 1),    value of the prompt ~ N(value of its source, 1 / PROMPT),
    value of a source ~ N(0, 1 / SOURCE)

A source's value is drawn from N(S / (SOURCE + n), 1 / (SOURCE + n)), its posterior if its prompts were all alike, with
n observations of sum S (Thompson sampling). A prompt's expected value is then (PROMPT v + S) / (PROMPT + n), with the
value v of its source and its own observations; where it is negative, the prompt is expected to harm. Older evidence
is discounted like that of pass rates.

Source: GradAlign (Yang et al. 2026, arXiv:2602.21492) chooses problems by the cosine of such gradients, from additional
rollouts of every candidate; here the scores are those of rollouts that are trained on anyway.
"""

from collections.abc import Mapping

import numpy as np

# Observations that the prior of a source's value, and that of a prompt's around its source's, count as.
SOURCE, PROMPT = 4.0, 20.0


class PromptInfluence:
    """Values of the prompts 0 .. num_prompts - 1.

    Args:
        sources_P: (P,) int, the number of each prompt's data source, from 0.
        discount: Factor of the evidence per weight version.
    """

    def __init__(self, sources_P: np.ndarray, discount: float) -> None:
        self._sources_P, self._discount = np.asarray(sources_P), discount
        self._sum = np.zeros(len(sources_P))
        self._count = np.zeros(len(sources_P))
        self._version = 0  # to which both are discounted

    def observe(self, positions: np.ndarray, scores: np.ndarray, version: int) -> None:
        """Take the scores of the groups of one update.

        Args:
            positions: (G,) int, each group's prompt.
            scores: (G,) float, <summed gradient of the group's losses, validation gradient>. A score of 0, of a group
                without advantages, and one that is not finite say nothing.
            version: Weight version of the update, not below the last one.
        """
        positions, scores = np.asarray(positions, dtype=np.int64), np.asarray(scores, dtype=np.float64)
        told = np.isfinite(scores) & (scores != 0)
        if not told.any():
            return
        kept = self._discount ** (version - self._version)
        self._sum *= kept
        self._count *= kept
        self._version = version
        largest = np.abs(scores[told]).max()  # squares of tiny scores underflow
        z = scores[told] / largest
        np.add.at(self._sum, positions[told], z / np.sqrt(np.mean(z**2)))
        np.add.at(self._count, positions[told], 1.0)

    def is_harmful(self, positions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N,) bool, whether each prompt's value is negative with the drawn values of the sources."""
        num_sources = int(self._sources_P.max()) + 1
        sums, counts = (np.bincount(self._sources_P, each, num_sources) for each in (self._sum, self._count))
        values = sums / (SOURCE + counts) + rng.standard_normal(num_sources) / np.sqrt(SOURCE + counts)
        return PROMPT * values[self._sources_P[positions]] + self._sum[positions] < 0

    @property
    def has_evidence(self) -> bool:
        """Whether any score was observed."""
        return bool(self._count.any())

    # ------------------------------ state ------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays for a checkpoint, each of one value per prompt, together with `version`."""
        return {"influence_sum": self._sum, "influence_count": self._count}

    def none(self) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint without evidence."""
        return {name: np.zeros_like(array) for name, array in self.arrays().items()}

    @property
    def version(self) -> int:
        """The weight version to which the evidence is discounted."""
        return self._version

    def restore(self, arrays: Mapping[str, np.ndarray], version: int) -> None:
        """Restore what `arrays` returned."""
        self._sum, self._count, self._version = arrays["influence_sum"], arrays["influence_count"], version
