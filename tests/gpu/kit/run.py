"""Runs one job of the GPU kit for as long as one call may take; the same command continues it.

    python tests/gpu/kit/run.py leaderboard --state STATE --minutes 8.5
    python tests/gpu/kit/run.py leaderboard --state STATE --device cpu --toy     # does the code work?
    python tests/gpu/kit/run.py --list

The exit code is 0 when the job is complete and 3 when work is left, and the last line says what. The next call, on this
machine or another, needs the files directly in STATE, of which `results.json` has the figures.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "tests/benchmarks")]

from jobs import JOBS  # noqa: E402
from pieces import PieceError  # noqa: E402
from sessions import Setting, call, write_results  # noqa: E402

# Exit code of a call after which work is left.
UNFINISHED = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run, write the results, and print what is left; returns the exit code."""
    began = time.monotonic()
    args = _parser().parse_args(argv)
    if args.list or args.job is None:
        for name, entry in JOBS.items():
            print(f"{name:12} {entry.title} (needs the part {entry.part})")
        return 0
    state = args.state or ROOT / "outputs/gpu_kit" / args.job
    state.mkdir(parents=True, exist_ok=True)
    setting = Setting(state.resolve(), ROOT, args.device, args.toy, began + 60 * args.minutes)
    try:
        job = JOBS[args.job].load()(setting)
        if args.only:
            job.keep_only(args.only)
        is_complete = call(job, setting, args.steps)
    except PieceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    path = write_results(args.job, setting, job)
    print(f"{path}: {'complete' if is_complete else f'left: {job.left()}. The same command continues.'}")
    return 0 if is_complete else UNFINISHED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?", choices=tuple(JOBS))
    parser.add_argument("--list", action="store_true", help="list the jobs, the most valuable first")
    parser.add_argument("--state", type=Path, help="folder with the state to resume from (outputs/gpu_kit/JOB)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=8.5, help="minutes that this call may take (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="only these steps, for processes side by side")
    parser.add_argument("--steps", type=int, help="steps that this call may take")
    parser.add_argument("--toy", action="store_true", help="tiny models and few steps, to test the code")
    return parser


if __name__ == "__main__":
    sys.exit(main())
