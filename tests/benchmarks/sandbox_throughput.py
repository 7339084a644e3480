"""Programs per second: the sandbox, with a process per pair, against verl's `prime_code`, with a process per program.

    python tests/benchmarks/sandbox_throughput.py [--programs 40] [--hanging 4] [--repeats 3] [--workers 2] [--json]

Both sides check the same programs on the same three ARC-like pairs each, with the same number of programs at a time, in
the same process: one that has imported nothing heavy, and one that has imported torch as a trainer has. The sides take
turns within every repeat, so that a busy machine slows both. Four kinds of programs: correct, wrong on every pair,
failing with an exception, and hanging in a loop (1 s on the clock allowed per pair on both sides). Both stop a program
at its first failed pair, as `prime_code` always does. What is called of verl is
`prime_code.utils.check_correctness`, the cheapest way in: `compute_score(continuous=True)`, which verl's default reward
uses, runs every program that fails a pair again pair by pair. Programs are not started early or cached on either side.
`prime_code` isolates nothing: the ratio compares what a trainer pays, not what it gets.

Prediction, written before the first run: bare parent 3.5x and torch-loaded parent 7x for correct, wrong and failing
programs. Hanging programs were predicted at 0.4x with every pair run, since `prime_code` gives up at the first; a first
trial without the early stop and with processor time instead of the clock showed 0.1x, so both sides now have the same
rule, for which 1.0x was predicted, wrong and failing programs then being 2.5 times faster than correct ones.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SECONDS = 1
KINDS = ("correct", "wrong", "failing", "hanging")
GRID = [[(3 * x + 5 * y) % 10 for x in range(12)] for y in range(10)]
INPUTS = [GRID, GRID[::-1], [row[::-1] for row in GRID]]
BODIES = {
    "correct": "return [list(row) for row in zip(*input_grid)]",
    "wrong": "return [row[:] for row in input_grid]",
    "failing": "return input_grid[len(input_grid)]",
    "hanging": "while True: pass",
}


def program(kind: str, index: int) -> str:
    """Like what a model writes for ARC: a page of code, of which some runs."""
    return f'''
from collections import Counter, deque

def components(grid, background):
    """Program {index}."""
    seen, found = set(), []
    for y, row in enumerate(grid):
        for x, color in enumerate(row):
            if color == background or (y, x) in seen:
                continue
            cells, queue = [], deque([(y, x)])
            seen.add((y, x))
            while queue:
                cy, cx = queue.popleft()
                cells.append((cy, cx))
                for ny, nx in ((cy + 1, cx), (cy - 1, cx), (cy, cx + 1), (cy, cx - 1)):
                    if 0 <= ny < len(grid) and 0 <= nx < len(row) and (ny, nx) not in seen and grid[ny][nx] == color:
                        seen.add((ny, nx))
                        queue.append((ny, nx))
            found.append(cells)
    return found

def solve(input_grid):
    background = Counter(color for row in input_grid for color in row).most_common(1)[0][0]
    components(input_grid, background)
    {BODIES[kind]}
'''


def serve(workers: int, torch: bool) -> None:
    """Time what is asked for, line by line, in a process that has loaded torch or has not."""
    if torch:
        import torch as _  # noqa: F401
    from verl.utils.reward_score.prime_code.utils import check_correctness

    from verl_ext.data.arc_tasks import Pair
    from verl_ext.sandbox.policy import SandboxPolicy
    from verl_ext.sandbox.pool import SandboxPool

    outputs = [[list(row) for row in zip(*grid, strict=True)] for grid in INPUTS]
    pairs = [Pair(grid, output) for grid, output in zip(INPUTS, outputs, strict=True)]
    cases = {"fn_name": "solve", "inputs": list(map(json.dumps, INPUTS)), "outputs": list(map(json.dumps, outputs))}

    def prime_code(source: str) -> bool:
        results, _ = check_correctness(in_outs=cases, generation=source, timeout=SECONDS, debug=False)
        return all(result is True for result in results)

    policy = SandboxPolicy(cpu_seconds=SECONDS, wall_seconds=SECONDS)
    replies = os.fdopen(os.dup(1), "w")  # what prime_code prints goes elsewhere
    os.dup2(2, 1)
    with SandboxPool(policy, workers) as pool, ThreadPoolExecutor(workers) as threads:
        sides = {
            "sandbox": lambda source: pool.check(source, pairs, stop_at_first_failure=True).solved,
            "prime_code": prime_code,
        }
        print(
            json.dumps({"torch": "torch" in sys.modules, "isolation": dict(pool.isolation)}), file=replies, flush=True
        )
        for line in sys.stdin:
            side, kind, number = json.loads(line)
            sources = [program(kind, index) for index in range(number)]
            started = time.perf_counter()
            solved = list(threads.map(sides[side], sources))
            seconds = time.perf_counter() - started
            assert solved == [kind == "correct"] * number, (side, kind, solved)
            print(json.dumps(seconds), file=replies, flush=True)


def measure(programs: int, hanging: int, repeats: int, workers: int) -> dict[str, Any]:
    """Programs per second by parent, kind and side, all repeats."""
    parents, rates, hellos = {}, {}, {}
    for parent in ("bare", "torch"):
        command = [sys.executable, __file__, "--serve", parent, "--workers", str(workers)]
        parents[parent] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hellos[parent] = json.loads(_line(parents[parent]))
    try:
        for repeat in range(-1, repeats):  # the first round warms up
            for kind in KINDS:
                number = hanging if kind == "hanging" else programs
                for parent, process in parents.items():
                    sides = ("sandbox", "prime_code") if repeat % 2 else ("prime_code", "sandbox")
                    for side in sides if repeat >= 0 or kind != "hanging" else ():
                        count = number if repeat >= 0 else workers
                        process.stdin.write(json.dumps([side, kind, count]) + "\n")
                        process.stdin.flush()
                        seconds = float(_line(process))
                        if repeat >= 0:
                            rates.setdefault(f"{parent} {kind} {side}", []).append(count / seconds)
    finally:
        for process in parents.values():
            process.stdin.close()
            process.wait()
    return {"rates": rates, "parents": hellos}


def _line(process: subprocess.Popen) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a measured process ended; its error is above")
    return line


def report(result: dict[str, Any]) -> str:
    rates = result["rates"]
    lines = ["| parent | programs | sandbox, programs/s | prime_code, programs/s | ratio |", "|---|---|---|---|---|"]
    for parent in ("bare", "torch"):
        for kind in KINDS:
            ours, theirs = (rates[f"{parent} {kind} {side}"] for side in ("sandbox", "prime_code"))
            spans = [f"{statistics.median(r):.3g} ({min(r):.3g}-{max(r):.3g})" for r in (ours, theirs)]
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            lines.append(f"| {parent} | {kind} | {spans[0]} | {spans[1]} | {ratio:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Programs per second: the sandbox against verl's prime_code.")
    parser.add_argument("--programs", type=int, default=40, help="a kind, side and repeat")
    parser.add_argument("--hanging", type=int, default=4, help="hanging programs per side and repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="programs at a time, on both sides")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", choices=["bare", "torch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.workers, options.serve == "torch")
    else:
        measured = measure(options.programs, options.hanging, options.repeats, options.workers)
        print(json.dumps(measured) if options.json else report(measured))
