"""Candidates for golden solutions from other people's ARC programs.

    python -m data_preprocess.arc_programs --input solvers.py --library dsl.py constants.py \\
        --tasks arc-agi-1_training.json --local_save_dir outputs/candidates

`--input` takes files and folders: Python files named by a task id, modules with one function `solve_<task>` per task,
and JSON or JSON lines with a task id and a program per row. A program takes one grid, as lists, tuples or a numpy
array. The parts of the `--library` files that it uses are copied into its candidate, one function `solve(input_grid)`,
which runs in the sandbox on every pair of its task. No program is run outside the sandbox or imported.

Writes `<task>.py`, the shortest correct candidate per task, and `report.jsonl`, one line per program with the reason
why it was left out, or the work left before an accepted candidate is a golden solution.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from data_preprocess.ending import OutputError, errors_in_one_line
from verl_ext.arc.importer.judge import ATTEMPTS, Outcome, judge, summary
from verl_ext.arc.importer.modules import Library
from verl_ext.arc.importer.read import REPORT, read_library, read_programs
from verl_ext.arc.solutions import read_pairs
from verl_ext.core.errors import ConfigError
from verl_ext.sandbox.policy import LEVELS, SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.programs import Programs


def import_programs(args: argparse.Namespace) -> list[Outcome]:
    """Write the candidates and the report incrementally, and return the outcomes.

    Raises:
        SignalError: An input is invalid, or the sandbox cannot run here.
    """
    folder: Path = args.local_save_dir
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputError(f"--local_save_dir {folder} is not empty: its files might be overwritten. Name a new folder.")
    if not 0 < args.time_limit <= 3600:
        raise ConfigError(f"--time_limit must be above 0 and at most 3600 seconds, got {args.time_limit:g}")
    pairs = read_pairs(args.tasks, args.fresh)
    # Tasks with only fresh pairs have no official pair to be judged on.
    pairs = {task: known for task, known in pairs.items() if any(not name.startswith("fresh") for name in known)}
    library = Library(read_library(args.library))
    found = read_programs(args.input, pairs.keys(), args.library)
    folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    policy = SandboxPolicy(
        cpu_seconds=args.time_limit, wall_seconds=max(30.0, 5 * args.time_limit), require=args.require
    )
    with SandboxPool(policy, args.workers) as pool, (folder / REPORT).open("w", encoding="utf-8") as report:
        for outcome in judge(found, library, pairs, Programs(pool, ATTEMPTS)):
            if outcome.source:
                (folder / f"{outcome.task}.py").write_text(outcome.source, encoding="utf-8")
            line = {
                "program": outcome.program,
                "task": outcome.task,
                "verdict": outcome.verdict,
                "reason": outcome.reason,
                "to_do": outcome.to_do,
            }
            report.write(json.dumps(line) + "\n")
            report.flush()
            outcomes.append(outcome)
    return outcomes


def main(argv: Sequence[str] | None = None) -> None:
    """Import programs and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, nargs="+", required=True, help="files or folders of programs")
    parser.add_argument("--library", type=Path, nargs="+", default=[], help="Python files that the programs import")
    parser.add_argument("--tasks", type=Path, nargs="+", required=True, help="ARC collections with the official pairs")
    parser.add_argument("--fresh", type=Path, help="fresh pairs, JSON lines {id, pairs}, which must also be solved")
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the candidates, new or empty")
    parser.add_argument("--time_limit", type=float, default=4.0, help="CPU seconds per pair, on which it is run twice")
    parser.add_argument("--workers", type=int, help="number of concurrent programs; default: one per CPU")
    parser.add_argument("--require", choices=sorted(LEVELS), default="minimum", help="isolation of the sandbox")
    args = parser.parse_args(argv)
    with errors_in_one_line(args.local_save_dir):
        outcomes = import_programs(args)
    print(f"{args.local_save_dir}: {summary(outcomes)}")


if __name__ == "__main__":
    main()
