"""The golden solutions keep their form, compute their outputs, and solve every pair; the checker sees it when not."""

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from each import check_each

from verl_ext.arc.check import check_all, check_solution, order_problems
from verl_ext.arc.form import form_problems, hard_coded, measure
from verl_ext.arc.order import ORDER
from verl_ext.arc.prompts import golden_text
from verl_ext.arc.run import run_solution, run_solutions
from verl_ext.arc.solutions import GoldenError, read_pairs, read_solution, solution_names
from verl_ext.data.arc_tasks import Grid, Pair

ARC = Path(__file__).resolve().parents[3] / "shared" / "data" / "arc"
TASKS = [ARC / "arc-agi-1_training.json.gz", ARC / "arc-agi-2_training.json.gz"]
FRESH = ARC / "arc-gen_fresh_pairs.jsonl.gz"
NAMES = solution_names()

needs_data = pytest.mark.skipif(not ARC.is_dir(), reason=f"no development data: {ARC.name}/ is missing")

DOCSTRING = '''\
    """
    Observations:
    - The output has the size of the input.
    - Every cell grows by one.
    Procedure:
    1. Add one to each cell.
    """
'''
GOOD = (
    f"def solve(input_grid):\n{DOCSTRING}    result = [[c + 1 for c in row] for row in input_grid]\n    return result\n"
)
PAIRS = {"train 0": Pair(((1, 2),), ((2, 3),)), "test 0": Pair(((0,), (4,)), ((1,), (5,)))}
FIRST = {"train 0": PAIRS["train 0"]}


def solution(*code: str) -> str:
    return f"def solve(input_grid):\n{DOCSTRING}" + "".join(f"    {line}\n" for line in code) + "    return result\n"


def problems_on(source: str, time_limit: float = 20.0) -> dict[str, str]:
    return {result.pair: result.problem for result in run_solution(source, PAIRS, time_limit)}


# ------------------------------ the solutions ------------------------------


def test_there_are_enough_solutions_and_each_has_its_place_in_the_order():
    assert len(NAMES) >= 300
    assert tuple(NAMES) == ORDER
    assert order_problems({name: read_solution(name) for name in NAMES}) == {}


def test_every_solution_has_the_form_and_writes_no_output_down():
    def check(name: str) -> None:
        source = read_solution(name)
        assert form_problems(source) == []
        assert hard_coded(source) == []
        assert golden_text(source)

    check_each(NAMES, check)


def test_no_two_solutions_have_the_same_code():
    codes = [read_solution(name).split('"""')[2] for name in NAMES]
    assert len(set(codes)) == len(codes)


@needs_data
def test_every_solution_solves_every_official_and_every_fresh_pair():
    pairs = read_pairs(TASKS, FRESH)
    reports = check_all(pairs=pairs)
    assert {report.task: report.problems for report in reports if report.problems} == {}
    for report in reports:
        assert report.solved == report.pairs
        assert {"train", "test"} <= set(report.pairs)
    with_fresh = sum("fresh" in report.pairs for report in reports)  # of ARC-AGI-1's training set
    assert len(reports) - with_fresh >= 40
    sizes = [measure(read_solution(name)).code_lines for name in NAMES]
    assert sum(lines >= 20 for lines in sizes) >= 60


@needs_data
def test_a_real_solution_that_is_broken_is_reported_with_its_task_and_pair(tmp_path: Path):
    pairs = read_pairs(TASKS, FRESH)
    source = read_solution("a416b8f3").replace("row + row for", "row + row[::-1] for")
    (tmp_path / "a416b8f3.py").write_text(source)
    (report,) = check_all(tmp_path, pairs, ["a416b8f3"])
    assert report.solved["fresh"] < report.pairs["fresh"]
    assert any(problem.startswith("fresh ") and "cells differ" in problem for problem in report.problems)


# ------------------------------ form ------------------------------


def test_a_solution_in_the_form_has_no_problems():
    assert form_problems(GOOD) == []
    assert hard_coded(GOOD, [pair.output for pair in PAIRS.values()]) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def solve(input_grid:\n", "not valid Python"),
        ("import math\n" + GOOD, "one function `solve`"),
        (GOOD.replace("solve", "answer"), "one function `solve`"),
        (GOOD.replace("(input_grid)", "(grid)"), "def solve(input_grid)"),
        ("@staticmethod\n" + GOOD, "must begin with"),
        ("def solve(input_grid):\n    result = input_grid\n    return result\n", "no docstring"),
        (GOOD.replace("Procedure:", "Steps:"), "one line `Procedure:`"),
        (GOOD.replace("    - Every cell grows by one.\n", ""), "1 observations"),
        (GOOD.replace("Every cell grows by one", "The output has the size of the input"), "duplicated"),
        (GOOD.replace("- Every cell", "Every cell"), "not an observation"),
        (GOOD.replace("    1. Add one to each cell.\n", ""), "no step"),
        (GOOD.replace("1. Add", "2. Add"), "expected step `1. ...`"),
        (GOOD.replace("return result", "return [row for row in result]"), "return result"),
        (solution("if not input_grid:", "    return []", "result = input_grid"), "no other return"),
        (GOOD.replace("    return result", "    if result:\n        return result"), "as the last line"),
        (solution("import os", "result = os.environ"), "`os` is not allowed"),
        (solution("from os import path", "result = path"), "`os` is not allowed"),
        (solution("result = eval('1')"), "`eval` is not allowed"),
        (solution("result = input_grid.__class__"), "`__class__` is not allowed"),
        (solution("global result", "result = input_grid"), "`result` is not allowed"),
        (solution(*["result = input_grid"] * 60), "lines of code"),
        (solution("result = '```'"), "must not contain"),
    ],
)
def test_a_break_of_the_form_is_named(source: str, words: str):
    assert words in "; ".join(form_problems(source))


def test_a_function_inside_may_return_what_it_likes():
    assert form_problems(solution("def one(cell):", "    return cell + 1", "result = [[one(1)]]")) == []


def test_the_size_leaves_the_docstring_and_the_layout_out():
    short = measure(solution("result = input_grid"))
    assert short.code_lines == 2
    # def solve ( input_grid ) :   result = input_grid   return result
    assert short.code_tokens == 6 + 3 + 2
    assert measure(solution("# why", "result = input_grid")).code_tokens == short.code_tokens
    assert short.characters == len(solution("result = input_grid"))


# ------------------------------ hard-coded outputs ------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (["result = [[1, 2], [3, 4]]"], "a grid written out"),
        (["flat = (1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4)", "result = [list(flat)]"], "a literal of 13 values"),
        (["table = {0: (1, 2, 3, 4, 5, 6), 1: (1, 2, 3, 4, 5, 6)}", "result = table[0]"], "a literal of 14 values"),
        (["cells = (5, 0, 7, 0)", "result = [list(cells[:2]), list(cells[2:])]"], "a whole output"),
        (["row = (9, 4, 2, 3, 4, 5, 6)", "result = [list(row[1:])]"], "a row of an output"),
        (["result = [[int(c) for c in '5070']]"], "written as text"),
        (["result = [list(b'abc')]"], "written as text"),
        (["code = 5070", "result = [[code // 1000]]"], "written as a number"),
        (["result = [[5]] if input_grid == [[1]] else [[7]]"], "compares the whole input"),
        (["result = {'a': [[5]]}.get(str(input_grid))"], "uses the whole input as a key"),
        (["result = {}.get(tuple(input_grid))"], "uses the whole input as a key"),
        (
            ["n = sum(map(sum, input_grid))", "if n == 1:", "    result = [[1]]"]
            + [line for n in range(2, 6) for line in (f"elif n == {n}:", f"    result = [[{n}]]")],
            "a chain of 5 cases",
        ),
        (
            ["match len(input_grid):"]
            + [line for n in range(5) for line in (f"    case {n}:", f"        result = [[{n}]]")],
            "a chain of 5 cases",
        ),
        (
            [
                "g = " + " and ".join(f"input_grid[0][{n}] == 1" for n in range(4)),
                "result = [[1]]",
                "if g:",
                "    pass",
            ],
            "fixed cells",
        ),
        (
            ["if " + " and ".join(f"input_grid[0][{n}] == 1" for n in range(4)) + ":", "    result = [[1]]"],
            "fixed cells",
        ),
    ],
)
def test_a_solution_that_writes_its_outputs_down_is_found(code: Sequence[str], words: str):
    outputs: list[Grid] = [((5, 0), (7, 0)), ((4, 2, 3, 4, 5, 6), (0, 0, 0, 0, 0, 0))]
    assert words in "; ".join(hard_coded(solution(*code), outputs))


def test_small_tables_and_offsets_are_no_outputs():
    code = ["steps = ((-1, 0), (1, 0), (0, -1), (0, 1))", "names = {5: 8, 8: 5}", "result = [list(steps), names]"]
    assert hard_coded(solution(*code), [((1, 2, 3), (4, 5, 6))]) == []


# ------------------------------ running ------------------------------


def test_a_solution_is_run_on_every_pair():
    assert problems_on(GOOD) == {"train 0": "", "test 0": ""}


@pytest.mark.parametrize(
    ("code", "first", "second"),
    [
        (["result = [[c * 2 for c in row] for row in input_grid]"], "1 of 2 cells differ", "2 of 2 cells differ"),
        (["result = [[2, 3]]"], "", "size 1x2, expected 2x1"),
        (["result = [[c + 1 for c in row] for row in input_grid]", "input_grid[0][0] = 9"], *["changes its arg"] * 2),
        (
            ["for row in input_grid:", "    row[:] = [c for c in row]", "result = input_grid"],
            "returns rows of its argument",
            "returns rows of its argument",
        ),
        (["result = [tuple(c + 1 for c in row) for row in input_grid]"], *["list of lists of int"] * 2),
        (["result = [[c == 1 for c in row] for row in input_grid]"], *["list of lists of int"] * 2),
        (["import random", "result = [[random.random() > 2, 3]]"], *["list of lists of int"] * 2),
        (
            ["solve.n = getattr(solve, 'n', 0) + 1", "result = [[c + solve.n for c in row] for row in input_grid]"],
            "another output for the same input",
            "another output for the same input",
        ),
        (["result = [[8 // (c - 2) for c in row] for row in input_grid]"], "ZeroDivisionError", "2 of 2 cells differ"),
        (["if len(input_grid) == 2:", "    raise SystemExit", "result = [[2, 3]]"], "", "SystemExit"),
    ],
)
def test_a_failure_is_reported_with_its_pair(code: list[str], first: str, second: str):
    found = problems_on(solution(*code))
    for pair, words in (("train 0", first), ("test 0", second)):
        assert words in found[pair]
        assert bool(words) == bool(found[pair])


def test_a_hang_is_blamed_on_its_pair():
    code = ["while len(input_grid) == 2:", "    pass", "result = [[c + 1 for c in row] for row in input_grid]"]
    found = problems_on(solution(*code), time_limit=8.0)
    assert found == {"train 0": "", "test 0": "still running after 8 s"}
    found = problems_on(solution("while True:", "    pass", "result = []"), time_limit=1.0)
    assert found == {"train 0": "still running after 1 s", "test 0": "not reached"}


def test_a_process_that_dies_is_reported():
    assert set(problems_on(solution("import os", "os._exit(3)", "result = []")).values()) == {
        "the process ended without an answer"
    }


def test_a_solution_that_hangs_or_dies_leaves_the_others_their_results():
    hangs = solution("while True:", "    pass", "result = []")
    dies = solution("import os", "os._exit(3)", "result = []")
    found = run_solutions([(GOOD, PAIRS), (hangs, FIRST), (dies, FIRST), (GOOD, PAIRS)], time_limit=8.0)
    assert [[result.problem for result in results] for results in found] == [
        ["", ""],
        ["still running after 8 s"],
        ["the process ended without an answer"],
        ["", ""],
    ]
    assert run_solutions([]) == []


# ------------------------------ the check ------------------------------


def test_the_report_names_the_task_and_the_pair():
    source = solution("result = [[2, 3]]")
    report = check_solution("made_up", source, PAIRS, run_solution(source, PAIRS))
    assert (report.task, report.level) == ("made_up", 0)
    assert report.problems == ("test 0: wrong output: size 1x2, expected 2x1",)
    assert (report.solved, report.pairs) == ({"train": 1, "test": 0}, {"train": 1, "test": 1})
    assert check_solution(ORDER[0], GOOD, PAIRS).level == 1
    assert check_solution(ORDER[-1], "def", PAIRS).size is None


def test_files_that_disagree_with_the_order_are_named():
    longer = solution("result = [[c + 1 + 1 for c in row] for row in input_grid]")
    assert order_problems({"a": GOOD, "b": longer}, [("a", "b")]) == {}
    assert "follows b" in order_problems({"a": GOOD, "b": longer}, [("b", "a")])["a"]
    assert order_problems({"a": GOOD, "b": longer}, [("b",), ("a",)]) == {}
    assert "add it" in order_problems({"a": GOOD}, [()])["a"]
    assert "no file" in order_problems({}, [("a",)])["a"]
    assert "more than once" in order_problems({"a": GOOD}, [("a",), ("a",)])["a"]


def test_a_folder_is_checked_as_a_whole(tmp_path: Path):
    (tmp_path / "made_up.py").write_text(GOOD)
    (tmp_path / "__main__.py").write_text("")
    by_task = {report.task: report.problems for report in check_all(tmp_path, {"made_up": PAIRS})}
    assert by_task["made_up"] == ("is not in order.py: add it to a level",)
    assert set(by_task) == {"made_up", *ORDER}
    (report,) = check_all(tmp_path, {}, ["made_up"])
    assert report.problems == ("the given files have no pairs of this task",)
    with pytest.raises(GoldenError, match=r"no golden solution other\.py"):
        check_all(tmp_path, tasks=["other"])


def write_task(folder: Path, name: str, **changed: object) -> Path:
    pair = {"input": [[1, 2]], "output": [[2, 3]]}
    path = folder / "tasks.json"
    path.write_text(json.dumps({name: {"train": [pair], "test": [pair], **changed}}))
    return path


def test_pairs_come_from_collections_and_fresh_files(tmp_path: Path):
    tasks, fresh = write_task(tmp_path, "a"), tmp_path / "fresh.jsonl"
    fresh.write_text(json.dumps({"id": "a", "pairs": [{"input": [[1]], "output": [[2]]}]}) + "\n")
    assert list(read_pairs([tasks], fresh)["a"]) == ["train 0", "test 0", "fresh 0"]
    fresh.write_text("{}\n")
    with pytest.raises(GoldenError, match="expected lines"):
        read_pairs([tasks], fresh)
    with pytest.raises(GoldenError, match="no such file"):
        read_pairs([], tmp_path / "other.jsonl")


def command(*args: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "recipe.golden_redaction.golden", *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])


def test_the_command_fails_when_a_solution_does(tmp_path: Path):
    wrong = {"train": [{"input": [[1, 2]], "output": [[2, 3]]}]}
    done = command("check", "--task", ORDER[0], "--task-file", write_task(tmp_path, ORDER[0], **wrong))
    assert done.returncode == 1
    assert f"{ORDER[0]}: train 0: wrong output" in done.stdout
    done = command("check", "--task", ORDER[0], "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["task"] == ORDER[0]
    done = command("check", "--task", "made_up")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: made_up: there is no golden solution")


def test_the_command_module_is_named_as_documented():
    assert importlib.import_module("recipe.golden_redaction.golden").main
