"""Numbers 0 .. n - 1 in the order in which they were last taken. Pure: numpy.

A queue whose entries are not removed when their number is taken again, only recognised as outdated: `place` points to
the valid one. So `oldest` reads from the front, and both it and `take` cost O(numbers returned), however large n is;
after every n calls of `take` the queue is rebuilt without the outdated entries.
"""

import numpy as np


class LeastRecent:
    """An order of all numbers below n, least recently taken first."""

    def __init__(self, order: np.ndarray) -> None:
        """Start with an order, shape (n,); raises ValueError unless it is a permutation of 0 .. n - 1."""
        size = len(order)
        if not np.array_equal(np.sort(order), np.arange(size)):
            raise ValueError(f"expected every number below {size} once")
        dtype = np.min_scalar_type(2 * size)
        self._queue = np.empty(2 * size, dtype)
        self._place = np.empty(size, dtype)  # position of each number in the queue
        self._begin(order)

    def _begin(self, order: np.ndarray) -> None:
        self._head, self._tail = 0, len(order)
        self._queue[: self._tail] = order
        self._place[order] = np.arange(self._tail)

    def order(self) -> np.ndarray:
        """All numbers, least recently taken first: int64, shape (n,)."""
        return self._entries(self._head, self._tail)

    def _entries(self, start: int, stop: int) -> np.ndarray:
        """The valid entries of a part of the queue."""
        part = self._queue[start:stop]
        return part[self._place[part] == np.arange(start, stop)].astype(np.int64)

    def oldest(self, count: int, excluded: np.ndarray) -> np.ndarray:
        """The first `count` numbers that are not excluded, or fewer if there are fewer; the order does not change.

        Args:
            count: How many.
            excluded: Bool, shape (n,).

        Returns:
            Int64, oldest first.
        """
        found = np.empty(0, dtype=np.int64)
        start = self._head
        while len(found) < count and start < self._tail:
            stop = min(start + max(1024, 2 * count), self._tail)
            entries = self._entries(start, stop)
            if start == self._head:  # outdated entries are read only once
                self._head = int(self._place[entries[0]]) if len(entries) else stop
            found = np.concatenate([found, entries[~excluded[entries]]])
            start = stop
        return found[:count]

    def take(self, numbers: np.ndarray) -> None:
        """Move different numbers behind all others, in this order."""
        if self._tail + len(numbers) > len(self._queue):
            self._begin(self.order())
        end = self._tail + len(numbers)
        self._queue[self._tail : end] = numbers
        self._place[numbers] = np.arange(self._tail, end)
        self._tail = end
