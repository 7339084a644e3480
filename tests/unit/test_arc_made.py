"""Tasks made from golden solutions: pairs follow the solutions, are small and distinct, and depend on the seed."""

import json
from pathlib import Path

import numpy as np
import pytest

from data_preprocess import arc_made
from verl_ext.arc.run import run_solution
from verl_ext.arc.solutions import read_solution
from verl_ext.data.arc_tasks import Pair, name_pairs, read_tasks
from verl_ext.sandbox.pool import SandboxPool

NAMES = ["6150a2bd", "67a3c6ac", "d511f180", "a79310a0"]


@pytest.fixture(scope="module")
def tasks() -> dict:
    return arc_made.make_tasks(NAMES, seed=0)


def test_pairs_are_what_the_golden_solution_does(tasks: dict):
    assert list(tasks) == NAMES
    for name, task in tasks.items():
        assert (len(task["train"]), len(task["test"])) == (arc_made.NUM_EXAMPLES, arc_made.NUM_TESTS)
        pairs = task["train"] + task["test"]
        named = name_pairs("made", [Pair(pair["input"], pair["output"]) for pair in pairs])
        assert all(result.problem == "" for result in run_solution(read_solution(name), named))
        assert all(pair["input"] != pair["output"] for pair in pairs)
        assert len({json.dumps(pair["input"]) for pair in pairs}) == len(pairs)


def test_a_task_depends_on_the_seed_and_not_on_the_others(tasks: dict):
    assert arc_made.make_tasks(NAMES[2:3], seed=0)[NAMES[2]] == tasks[NAMES[2]]
    assert arc_made.make_tasks(NAMES[2:3], seed=1)[NAMES[2]] != tasks[NAMES[2]]


@pytest.mark.parametrize(
    "body",
    [
        "return [list(row) for row in input_grid]",  # changes nothing
        "return [[1]]",  # the same for every grid
        "raise ValueError('a rule that needs another grid')",
        "return 'no grid'",
    ],
)
def test_a_rule_that_random_grids_do_not_suit_gives_no_task(body: str):
    with SandboxPool() as pool:
        assert arc_made.make_task(f"def solve(input_grid):\n    {body}\n", pool, np.random.default_rng(0)) is None


def test_grids_have_the_colours_that_the_solution_names():
    assert arc_made.named_colours("x = 2 if y == 5 else 0  # 7\nz = '8' + str(11) + '2'\nw = 3.5") == [2, 5]
    grids = [arc_made.draw_grid(np.random.default_rng(seed), [2, 5]) for seed in range(50)]
    assert {cell for grid in grids for row in grid for cell in row} == {0, 2, 5}
    assert {len(grid) for grid in grids} == {len(grid[0]) for grid in grids} == {3, 4, 5}


def test_the_command_writes_a_collection_that_the_other_scripts_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(arc_made, "solution_names", lambda: NAMES)
    arc_made.main(["--local_save_dir", str(tmp_path)])
    assert "4 tasks of 4 golden solutions" in capsys.readouterr().out
    assert [task.id for task in read_tasks(tmp_path / arc_made.FILE)[0]] == sorted(NAMES)
