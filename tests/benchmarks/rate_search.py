"""The learning rate at which a method does best, so that none is compared at the edge of its grid. Pure."""

from collections.abc import Callable, Sequence

FACTOR = 2.0
EXTREMES = (1.2e-4, 3.2e-2)


def best_rate(accuracy: Callable[[float], float], rates: Sequence[float]) -> float:
    """Of a grid that grows by `FACTOR` while its edge is the best, within `EXTREMES`.

    Args:
        accuracy: Of a run at a rate.
        rates: The first grid.
    """
    found = {rate: accuracy(rate) for rate in rates}
    while True:
        best = max(found, key=lambda rate: found[rate])
        if best not in (min(found), max(found)):
            return best
        beyond = best / FACTOR if best == min(found) else best * FACTOR
        if not EXTREMES[0] <= beyond <= EXTREMES[1]:
            return best
        found[beyond] = accuracy(beyond)
