"""A minimum share for each data source in the choice of prompts. Pure: numpy.

A source is owed `min_share` of the places that a random order would give it. Fractions of places accumulate from choice
to choice until they make whole ones.
"""

import numpy as np


class SourceFloor:
    """Chooses the best candidates, with at least the minimum share of each data source.

    Args:
        sources_P: (P,) int, the number of each prompt's data source, from 0. Sources with less than 1 % of the prompts
            are pooled.
        min_share: Minimum share of a source, relative to the choices that a random order would give it.

    Attributes:
        credits: (S,) choices that each source is owed.
    """

    def __init__(self, sources_P: np.ndarray, min_share: float) -> None:
        self._sources_P, self._min_share = _with_rare_ones_together(sources_P), min_share
        self._shares = np.bincount(self._sources_P) / len(sources_P)
        self.credits = np.zeros(len(self._shares))

    def best(self, candidates: np.ndarray, distance: np.ndarray, count: int, explored: np.ndarray) -> np.ndarray:
        """Indices of the candidates with the smallest distance, with at least the minimum share of each source.

        Args:
            candidates: Positions of prompts.
            distance: Distance of each candidate.
            count: Prompts of this choice, including the explored ones.
            explored: Positions already chosen; they count for their sources.
        """
        wanted = count - len(explored)
        if len(self._shares) == 1:
            return _smallest(distance, wanted)
        sources = self._sources_P[candidates]
        self.credits += self._min_share * count * self._shares
        owed = np.maximum(self.credits - self._counts(explored), 0)
        best: list[np.ndarray] = [np.empty(0, dtype=np.int64)]
        debts: list[np.ndarray] = [np.empty(0)]
        for source in np.flatnonzero(owed >= 1):
            own = np.flatnonzero(sources == source)
            best.append(own[_smallest(distance[own], min(int(owed[source]), len(own)))])
            debts.append(owed[source] - np.arange(len(best[-1])))
        # If more is owed than there are places, the source with the largest credit comes first.
        floor = np.concatenate(best)[np.argsort(-np.concatenate(debts), kind="stable")][:wanted]
        distance = distance.copy()
        distance[floor] = np.inf
        chosen = np.concatenate([floor, _smallest(distance, wanted - len(floor))])
        taken = self._counts(np.concatenate([explored, candidates[chosen]]))
        # Choices beyond the minimum do not count against a source later. A source whose prompts cannot be chosen is
        # owed each of them at most once.
        self.credits = np.clip(self.credits - taken, 0.0, self._shares * len(self._sources_P))
        return chosen

    def _counts(self, positions: np.ndarray) -> np.ndarray:
        """(S,) prompts of each source."""
        return np.bincount(self._sources_P[positions], minlength=len(self._shares))


def _with_rare_ones_together(sources_P: np.ndarray) -> np.ndarray:
    """Renumber sources from 0, pooling those with less than 1 % of the prompts.

    A minimum for each of hundreds of sources would leave nothing to choose.
    """
    counts = np.bincount(sources_P)
    is_rare = counts < 0.01 * len(sources_P)
    numbers = np.where(is_rare, counts.size, np.arange(counts.size))
    return np.unique(numbers[sources_P], return_inverse=True)[1].reshape(-1)


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` smallest values, in increasing order of value."""
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    part = np.argpartition(values, count - 1)[:count] if count < len(values) else np.arange(len(values))
    return part[np.argsort(values[part], kind="stable")]
