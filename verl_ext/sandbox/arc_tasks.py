"""ARC task files: JSON, plain or gzipped, `{id: {"train": [{"input", "output"}, ...], "test": [...]}}`."""

import gzip
import json
from pathlib import Path

from verl_ext.errors import ConfigError
from verl_ext.sandbox.protocol import grid_problem
from verl_ext.sandbox.results import Pair

SPLITS = {"train": ("train",), "test": ("test",), "all": ("train", "test")}


def read_pairs(file: Path, task: str, pairs: str = "all") -> list[tuple[str, Pair]]:
    """The pairs of a task with their names, like `train 0`.

    Raises:
        ConfigError: If the file, the task or a pair is not what it should be.
    """
    try:
        data = file.read_bytes()
        tasks = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is not a readable JSON or JSON.gz file: {error}") from error
    if not isinstance(tasks, dict) or task not in tasks:
        known = sorted(tasks)[:3] if isinstance(tasks, dict) else type(tasks).__name__
        raise ConfigError(f"{file} has no task {task!r}; it begins with {known}")
    named = []
    for split in SPLITS[pairs]:
        for index, pair in enumerate(tasks[task].get(split, [])):
            problem = grid_problem(pair.get("input")) or grid_problem(pair.get("output"))
            if problem:
                raise ConfigError(f"{file}, task {task}, {split} {index}: {problem}")
            named.append((f"{split} {index}", Pair(pair["input"], pair["output"])))
    if not named:
        raise ConfigError(f"{file}, task {task} has no pairs in {pairs!r}")
    return named
