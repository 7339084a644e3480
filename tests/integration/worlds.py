"""Worlds of processes: those of one process are part of `make test`, larger ones of `make test-release`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

ONLY_RELEASE = pytest.mark.release


def marks_of(world: int) -> tuple[pytest.MarkDecorator, ...]:
    """Marks for a check in a world of this many processes."""
    return (ONLY_RELEASE,) if world > 1 else ()


def each_world(worlds: Iterable[int]) -> list[Any]:
    """Values of `parametrize` for the number of processes."""
    return [pytest.param(world, marks=marks_of(world)) for world in worlds]


class Found(dict[int, dict[str, Any]]):
    """Results of the processes of each world, which run when their results are first needed.

    Args:
        run: Runs worlds of the given sizes in a separate process, and writes WORLD.pt to the folder for each.
        folder: Folder with the model and the rows.
    """

    def __init__(self, run: Callable[[int, tuple[int, ...], Path], None], folder: Path) -> None:
        super().__init__()
        self._run, self._folder = run, folder

    def __missing__(self, world: int) -> dict[str, Any]:
        mp.spawn(self._run, args=((world,), self._folder))
        self[world] = torch.load(self._folder / f"{world}.pt")
        return self[world]
