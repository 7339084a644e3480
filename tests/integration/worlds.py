"""Worlds of processes: those of one process are part of `make test`, larger ones of `make test-release`."""

import importlib
import os
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


def fork_worlds(
    in_process: Callable[[int, int, Path], None],
    worlds: Iterable[int],
    folder: Path,
    worker: str,
    set_up: Callable[[], None],
) -> None:
    """Fork the processes of each world from this one, which imports verl first: that takes longer than most checks.

    Args:
        in_process: Called with the rank, the number of processes and the folder.
        worlds: Numbers of processes, one after the other.
        folder: See `Found`.
        worker: The worker's module.
        set_up: Called after verl and this module are imported.
    """
    torch.set_num_threads(1)
    os.environ["VERL_PLATFORM"] = "cpu"
    # Read by transformers. In a forked process torch sometimes refuses a new thread: "Invalid thread pool!".
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    from verl_ext import plugin

    plugin.register()
    for module in ("verl_ext.cpu.engine", worker):
        importlib.import_module(module)
    set_up()
    for world in worlds:
        mp.start_processes(in_process, args=(world, folder), nprocs=world, start_method="fork")


def be_rank(rank: int, world: int, folder: Path) -> None:
    """Set the variables from which verl's workers make a process group."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0", "DIST_INIT_METHOD": f"file://{folder}/meet_{world}"}
