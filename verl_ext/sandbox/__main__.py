"""Check a solution against an ARC task, in the sandbox.

    python -m verl_ext.sandbox --task-file FILE --task ID --solution FILE [--pairs train|test|all] [--json]
        [--require minimum|full]

The solution defines `solve(input_grid: list[list[int]]) -> list[list[int]]`. Exit code 0 if it solves every pair, 1 if
it does not, 2 if this could not be determined.
"""

import argparse
import json
import sys
from pathlib import Path

from verl_ext.core.errors import ConfigError, SignalError
from verl_ext.data.arc_tasks import PARTS, read_named_pairs
from verl_ext.sandbox.policy import LEVELS, SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.results import Status

SPLITS = {"train": ("train",), "test": ("test",), "all": PARTS}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m verl_ext.sandbox", description="Check a solution against an ARC task, in the sandbox."
    )
    parser.add_argument("--task-file", type=Path, required=True, help="ARC tasks as JSON or JSON.gz")
    parser.add_argument("--task", required=True, help="the task's id in the file")
    parser.add_argument("--solution", type=Path, required=True, help="Python that defines solve(input_grid)")
    parser.add_argument("--pairs", choices=sorted(SPLITS), default="all", help="default: all")
    parser.add_argument("--require", choices=sorted(LEVELS), default="minimum", help="required isolation level")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        pairs = read_named_pairs(options.task_file, options.task, SPLITS[options.pairs])
        try:
            program = options.solution.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"--solution cannot be read: {error}") from error
        with SandboxPool(SandboxPolicy(require=options.require), workers=1) as pool:
            result, isolation = pool.check(program, list(pairs.values())), dict(pool.isolation)
    except SignalError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        shown = [{"pair": name, **pair} for name, pair in zip(pairs, result.as_dict()["pairs"], strict=True)]
        print(json.dumps({**result.as_dict(), "task": options.task, "isolation": isolation, "pairs": shown}))
    else:
        for name, pair in zip(pairs, result.pairs, strict=True):
            print(f"{name}: {pair.status}{f' ({pair.detail})' if pair.detail else ''}")
        print("solved" if result.solved else "not solved")
    if result.solved:
        return 0
    # One wrong pair is enough to fail.
    return 2 if {*result.statuses} <= {Status.OK, Status.INFRASTRUCTURE_ERROR} else 1


if __name__ == "__main__":
    sys.exit(main())
