"""ARC tasks with generated pairs: random grids, and the output of a golden solution for them.

    python -m data_preprocess.arc_made --local_save_dir outputs/data/arc

For machines without ARC files: demo and tests then use the rules of real tasks with other grids. Writes
`made_tasks.json` in ARC's own format, the input of `data_preprocess.arc` and `data_preprocess.arc_model`.

A golden solution defines the rule of its task. Grids are small, in black and the colours named in the solution.
A pair counts if the solution runs on its input and changes it; a task is left out if too few grids do (most rules need
an arrangement that random grids do not have), or if all its outputs are equal. Outputs are computed in the sandbox.
"""

import argparse
import io
import json
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_preprocess.ending import errors_in_one_line
from verl_ext.arc.solutions import GOLDEN, read_solution, solution_names
from verl_ext.data.arc_tasks import Grid
from verl_ext.sandbox.pool import SandboxPool

FILE = "made_tasks.json"

NUM_EXAMPLES = 3
NUM_TESTS = 1
SIDES = (3, 5)
MAX_COLOURS = 3
TRIES = 6  # grids drawn per wanted pair


def named_colours(source: str) -> list[int]:
    """The colours, 1 to 9, that a solution's code names as whole numbers, in order."""

    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = {int(token.string) for token in tokens if token.type == tokenize.NUMBER and token.string.isdigit()}
    return sorted(found & set(range(1, 10)))


def draw_grid(rng: np.random.Generator, colours: Sequence[int]) -> Grid:
    """A grid of random sides, about half of it black and the rest in the colours."""
    rows, columns = (int(side) for side in rng.integers(SIDES[0], SIDES[1] + 1, size=2))
    cells = np.where(rng.random((rows, columns)) < 0.5, 0, rng.choice(list(colours), size=(rows, columns)))
    return tuple(map(tuple, cells.tolist()))


def make_task(source: str, pool: SandboxPool, rng: np.random.Generator) -> dict[str, Any] | None:
    """A task in ARC's format; None if random grids do not suit the rule."""
    wanted = NUM_EXAMPLES + NUM_TESTS
    colours = named_colours(source)
    while len(colours) < MAX_COLOURS:
        colours = sorted({*colours, int(rng.integers(1, 10))})
    pairs: list[dict[str, Grid]] = []
    for _ in range(TRIES * wanted):
        grid = draw_grid(rng, colours)
        output = pool.run(source, grid).grid
        if output is not None and output != grid and all(pair["input"] != grid for pair in pairs):
            pairs.append({"input": grid, "output": output})
        if len(pairs) == wanted:
            break
    if len(pairs) < wanted or all(pair["output"] == pairs[0]["output"] for pair in pairs):
        return None
    return {"train": pairs[:NUM_EXAMPLES], "test": pairs[NUM_EXAMPLES:]}


def make_tasks(names: Sequence[str], seed: int, golden_folder: Path = GOLDEN) -> dict[str, dict[str, Any]]:
    """Tasks by id, for golden solutions that work on random grids; each task is independent of the others."""
    tasks = {}
    with SandboxPool() as pool:
        for name in names:
            rng = np.random.default_rng([seed, int(name, 16)])
            task = make_task(read_solution(name, golden_folder), pool, rng)
            if task is not None:
                tasks[name] = task
    return tasks


def main(argv: Sequence[str] | None = None) -> None:
    """Make the tasks and print how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_save_dir", type=Path, required=True, help=f"folder for {FILE}")
    parser.add_argument("--seed", type=int, default=0, help="of the grids")
    args = parser.parse_args(argv)
    names = solution_names()
    path = args.local_save_dir / FILE
    with errors_in_one_line(args.local_save_dir):
        tasks = make_tasks(names, args.seed)
        args.local_save_dir.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tasks) + "\n", encoding="utf-8")
    print(f"{path}: {len(tasks)} tasks of {len(names)} golden solutions")


if __name__ == "__main__":
    main()
