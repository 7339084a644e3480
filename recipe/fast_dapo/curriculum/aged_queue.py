"""A queue that returns its first or its stalest item, both in amortised O(1). Pure."""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class AgedQueue(Generic[T]):
    """First in, first out; also returns its stalest item without a scan.

    Arrival order is nearly the order of age, but a continuation that failed and was repeated arrives late with old
    samples. So the names are also kept by version, and the versions in a heap whose top always has items.
    """

    def __init__(self) -> None:
        self._items: OrderedDict[str, tuple[int, T]] = OrderedDict()
        self._names_by_version: dict[int, OrderedDict[str, None]] = {}
        self._versions: list[int] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return (item for _, item in self._items.values())

    @property
    def oldest_version(self) -> int | None:
        """The oldest version of all items; None if the queue is empty."""
        return self._versions[0] if self._versions else None

    @property
    def num_by_version(self) -> dict[int, int]:
        """Number of items per version; versions without items are left out."""
        return {version: len(names) for version, names in self._names_by_version.items()}

    def push(self, name: str, version: int, item: T, *, front: bool = False) -> None:
        """Add an item under a unique name, at the end or at the front."""
        if version not in self._names_by_version:
            self._names_by_version[version] = OrderedDict()
            heappush(self._versions, version)
        self._items[name] = version, item
        self._names_by_version[version][name] = None
        if front:
            self._items.move_to_end(name, last=False)
            self._names_by_version[version].move_to_end(name, last=False)

    def pop(self) -> T:
        """The first item in the queue."""
        return self.remove(next(iter(self._items)))

    def pop_stalest(self) -> T:
        """The item of the oldest version; among equals, the first in the queue."""
        return self.remove(next(iter(self._names_by_version[self._versions[0]])))

    def remove(self, name: str) -> T:
        """Remove and return the item with this name, which must exist."""
        version, item = self._items.pop(name)
        del self._names_by_version[version][name]
        if not self._names_by_version[version]:
            del self._names_by_version[version]
            while self._versions and self._versions[0] not in self._names_by_version:
                heappop(self._versions)
        return item
