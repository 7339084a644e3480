"""Draws rows at random, depending only on the seed and on the rows' texts."""

import hashlib
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Keyed(Protocol):
    """A row whose text has a key that identifies its copies."""

    @property
    def key(self) -> str:
        """Key that is equal for rows that count as the same."""
        ...


Row = TypeVar("Row", bound=Keyed)


def draw_number(seed: int, key: str) -> bytes:
    """The random number of a row: SHA-256 of seed and key."""
    return hashlib.sha256(f"{seed}\n{key}".encode()).digest()


def draw(entries: Sequence[Row], size: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Draw `size` entries at random; returns the drawn and the others, each in the given order.

    Whether an entry is drawn depends on the seed and the keys, never on their order: the smallest numbers are drawn.
    """
    chosen = {id(entry) for entry in sorted(entries, key=lambda entry: draw_number(seed, entry.key))[:size]}
    return [e for e in entries if id(e) in chosen], [e for e in entries if id(e) not in chosen]
