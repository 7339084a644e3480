"""Runs a golden solution on pairs, in a separate process.

Golden solutions are trusted: they are read before they are added. This process guards against mistakes, such as an
infinite loop, but not against malice; model-written programs belong in a sandbox.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_ext.data.arc_tasks import Grid, Pair

# Prints one line of JSON per input as soon as it is done, so that a hang can be attributed to its pair.
_CHILD = """
import json, sys
def is_grid(grid):
    return type(grid) is list and all(
        type(row) is list and all(type(cell) is int for cell in row) for row in grid
    )
def rows(grid):
    return [list(row) for row in grid]
def answer(source, given):
    space = {}
    exec(source, space)
    argument = rows(given)
    first = space["solve"](argument)
    if argument != given:
        return {"mutated": True}
    if not is_grid(first):
        return {"output": None}
    kept = rows(first)
    # A result that shares its rows with the argument changes the caller's grid later on.
    for row in first:
        row[:] = [-1] * len(row)
    if argument != given:
        return {"shared": True}
    return {"output": kept, "repeats": space["solve"](rows(given)) == kept}
for source, inputs in json.load(sys.stdin):
    for given in inputs:
        try:
            line = answer(source, given)
        except BaseException as error:
            line = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(line), flush=True)
"""


@dataclass(frozen=True)
class PairResult:
    """The result of a solution on a pair.

    Attributes:
        pair: Name of the pair.
        problem: Why it does not count as solved; empty if it does.
    """

    pair: str
    problem: str = ""


def run_solution(source: str, pairs: Mapping[str, Pair], time_limit: float = 20.0) -> list[PairResult]:
    """The result of every pair; the process never sees the expected outputs.

    Args:
        source: Text of the solution.
        pairs: Pairs that it is run on, by name.
        time_limit: Seconds for all pairs together.
    """
    lines, end = _answers([(source, pairs)], time_limit)
    timed_out = end.startswith("still running")
    results = []
    for place, (name, pair) in enumerate(pairs.items()):
        if place < len(lines):
            results.append(PairResult(name, _judge(json.loads(lines[place]), pair.output)))
        elif timed_out and place > len(lines):
            results.append(PairResult(name, "not reached"))
        else:
            results.append(PairResult(name, end))
    return results


def run_solutions(
    solutions: Sequence[tuple[str, Mapping[str, Pair]]], time_limit: float = 20.0
) -> list[list[PairResult]]:
    """The results of many solutions, in one process as long as none fails.

    Solutions that it did not finish, because one hung or killed it, are run again in separate processes.

    Args:
        solutions: Text and pairs of each.
        time_limit: Seconds for all of them together, and then for each that is run again.
    """
    lines, _ = _answers(solutions, time_limit)
    found, start = [], 0
    for source, pairs in solutions:
        own = lines[start : start + len(pairs)]
        start += len(pairs)
        if len(own) == len(pairs):
            answers = zip(pairs.items(), map(json.loads, own), strict=True)
            found.append([PairResult(name, _judge(answer, pair.output)) for (name, pair), answer in answers])
        else:
            found.append(run_solution(source, pairs, time_limit))
    return found


def _answers(solutions: Sequence[tuple[str, Mapping[str, Pair]]], time_limit: float) -> tuple[list[str], str]:
    """The lines that the process wrote, one per pair, and how it ended if lines are missing."""
    message = json.dumps([(source, [pair.input for pair in pairs.values()]) for source, pairs in solutions])
    command = [sys.executable, "-I", "-S", "-c", _CHILD]
    try:
        done = subprocess.run(command, input=message, capture_output=True, text=True, timeout=time_limit)
    except subprocess.TimeoutExpired as stopped:
        output = stopped.stdout or b""
        text = output.decode() if isinstance(output, bytes) else output
        return text.splitlines(), f"still running after {time_limit:g} s"
    error = done.stderr.strip().rpartition("\n")[2]
    return done.stdout.splitlines(), error or "the process ended without an answer"


def _judge(answer: dict[str, Any], wanted: Grid) -> str:
    if "error" in answer:
        return answer["error"]
    if "mutated" in answer:
        return "changes its argument"
    if "shared" in answer:
        return "returns rows of its argument instead of copies"
    if answer["output"] is None:
        return "does not return a list of lists of int"
    if not answer["repeats"]:
        return "gives another output for the same input"
    return _difference(tuple(map(tuple, answer["output"])), wanted)


def _difference(output: Grid, wanted: Grid) -> str:
    if output == wanted:
        return ""
    sizes = [f"{len(grid)}x{len(grid[0]) if grid else 0}" for grid in (output, wanted)]
    if [len(row) for row in output] != [len(row) for row in wanted]:
        return f"wrong output: size {sizes[0]}, expected {sizes[1]}"
    wrong = sum(a != b for row, other in zip(output, wanted, strict=True) for a, b in zip(row, other, strict=True))
    return f"wrong output: {wrong} of {sum(map(len, wanted))} cells differ"
