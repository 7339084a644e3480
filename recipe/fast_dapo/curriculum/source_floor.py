"""A floor for each data source under the choice of prompts. Pure: numpy.

A source is owed `min_share` of the places that a random order would give it. Places are owed in fractions, and what is
owed adds up from choice to choice until it makes whole ones.
"""

import numpy as np


class SourceFloor:
    """Chooses the best candidates, of each data source at least its floor.

    Args:
        sources_P: (P,) int, the number of each prompt's data source, from 0. Sources with less than a hundredth of the
            prompts count as one.
        min_share: Of the choices that a random order would give a source, what it gets at least.

    Attributes:
        credits: (S,) choices that each source is owed.
    """

    def __init__(self, sources_P: np.ndarray, min_share: float) -> None:
        self._sources_P, self._min_share = _with_rare_ones_together(sources_P), min_share
        self._shares = np.bincount(self._sources_P) / len(sources_P)
        self.credits = np.zeros(len(self._shares))

    def best(self, candidates: np.ndarray, distance: np.ndarray, count: int, explored: np.ndarray) -> np.ndarray:
        """Indices of the candidates with the smallest distance, of each source at least its floor.

        Args:
            candidates: Positions of prompts.
            distance: Of each.
            count: Prompts of this choice, with those explored.
            explored: Positions that are chosen already; they count for their sources.
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
        # Where more is owed than there are places, who is owed most comes first.
        floor = np.concatenate(best)[np.argsort(-np.concatenate(debts), kind="stable")][:wanted]
        distance = distance.copy()
        distance[floor] = np.inf
        chosen = np.concatenate([floor, _smallest(distance, wanted - len(floor))])
        taken = self._counts(np.concatenate([explored, candidates[chosen]]))
        # What a source had beyond its floor does not count against it later. One whose prompts cannot be chosen is owed
        # each of them once at most.
        self.credits = np.clip(self.credits - taken, 0.0, self._shares * len(self._sources_P))
        return chosen

    def _counts(self, positions: np.ndarray) -> np.ndarray:
        """(S,) prompts of each source."""
        return np.bincount(self._sources_P[positions], minlength=len(self._shares))


def _with_rare_ones_together(sources_P: np.ndarray) -> np.ndarray:
    """Sources numbered from 0 again, those with less than a hundredth of the prompts as one.

    A floor for each of hundreds of sources would leave nothing to choose.
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
