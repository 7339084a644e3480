"""Worlds of processes: those of one process are part of `make test`, larger ones of `make test-release`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

ONLY_RELEASE = pytest.mark.release


def marks_of(world: int) -> tuple[pytest.MarkDecorator, ...]:
    """Of a check in a world of so many processes."""
    return (ONLY_RELEASE,) if world > 1 else ()


def each_world(worlds: Iterable[int]) -> list[Any]:
    """Values of `parametrize` for the number of processes."""
    return [pytest.param(world, marks=marks_of(world)) for world in worlds]


class Found(dict[int, dict[str, Any]]):
    """What the processes of each world found; those of a world run when they are first asked for.

    Args:
        run: Runs worlds of given sizes in a process of its own, and leaves WORLD.pt in the folder for each.
        folder: With the model and the rows.
    """

    def __init__(self, run: Callable[[int, tuple[int, ...], Path], None], folder: Path) -> None:
        super().__init__()
        self._run, self._folder = run, folder

    def __missing__(self, world: int) -> dict[str, Any]:
        mp.spawn(self._run, args=((world,), self._folder))
        self[world] = torch.load(self._folder / f"{world}.pt")
        return self[world]
