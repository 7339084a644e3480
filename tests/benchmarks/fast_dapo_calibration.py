"""Do the posterior's predictions follow the policy? Predicted against observed pass rates of choose's prompts.

    python tests/benchmarks/fast_dapo_calibration.py                # all pools, 3 seeds: about 15 minutes of two cores
    python tests/benchmarks/fast_dapo_calibration.py --pools C --seeds 1

Runs choose as the leaderboard does, at its published settings, for 12,000 rollouts, with and without recalibration
(`curriculum.posterior.recalibrate`). Every rollout of a chosen prompt is compared with the pass rate that was predicted
when the prompt was chosen, by tenths of the prediction. The aim: in every tenth with at least 1,000 rollouts of a run,
predicted and observed means differ by at most .05.

Prints a row per pool, seed and variant: the largest difference, its tenth, and the difference over all rollouts.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fast_dapo_leaderboard import PUBLISHED, ROOT, check_base_models, read_tuned
from leaderboard_protocol import NUM_PROMPTS, POOLS, Settings
from leaderboard_store import start_workers

OUTPUT = ROOT / "outputs/benchmarks/fast_dapo_calibration"
BUDGET = 12_000
ENOUGH = 1_000  # rollouts in a tenth


@dataclass(frozen=True)
class Job:
    """One training run."""

    pool: str
    seed: int
    recalibrate: bool
    settings: Settings


def run(job: Job) -> list[dict[str, float]]:
    """The reliability table of a run: rollouts, mean prediction and observed mean by tenths of the prediction."""
    import torch
    from choosing_method import Choose
    from leaderboard_training import base_of, task_of
    from learning_lab import Policy

    torch.set_num_threads(1)
    task, own = task_of(job.pool), job.settings
    policy = Policy(
        base_of(job.pool), task, learning_rate=own.learning_rate, estimator="rloo", seed=job.seed, compact=True
    )
    method = Choose(
        NUM_PROMPTS, batch=own.batch, group=own.group, seed=job.seed, task=task, recalibrate=job.recalibrate
    )
    while method.counts.generated < BUDGET:
        batch = method.next_batch(policy)
        policy.update(batch.rollouts, batch.groups, batch.weights, batch.advantages, updates=own.updates)
    return method.reliability_table()


def worst(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The tenth whose predicted and observed means differ most, among those with enough rollouts.

    Raises:
        ValueError: No tenth has enough.
    """
    large = [row for row in rows if row["rollouts"] >= ENOUGH]
    if not large:
        raise ValueError(f"expected a tenth with at least {ENOUGH:,} rollouts, got {[row['rollouts'] for row in rows]}")
    return max(large, key=lambda row: abs(row["predicted"] - row["observed"]))


def describe(job: Job, rows: Sequence[dict[str, float]]) -> str:
    """A row of the table."""
    row, count = worst(rows), sum(row["rollouts"] for row in rows)
    bias = sum(row["rollouts"] * (row["predicted"] - row["observed"]) for row in rows) / count
    return (
        f"| {job.pool} | {job.seed} | {'yes' if job.recalibrate else 'no'} | {row['predicted'] - row['observed']:+.3f} "
        f"| {row['bin']:.1f} | {row['rollouts']:,.0f} | {bias:+.3f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=list(POOLS))
    parser.add_argument("--seeds", type=int, default=3, help="from 0")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"folder ({OUTPUT.relative_to(ROOT)})")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side, one thread each")
    args = parser.parse_args(arguments)
    try:
        tuned = read_tuned(PUBLISHED)
        check_base_models(args.output, args.pools)
    except ValueError as error:
        parser.error(str(error))
    jobs = [
        Job(pool, seed, recalibrate, tuned[pool]["choose"])
        for pool in args.pools
        for recalibrate in (True, False)
        for seed in range(args.seeds)
    ]
    tables = []
    print("| pool | seed | recalibrated | predicted - observed | tenth from | rollouts in it | over all rollouts |")
    print("|---|---|---|---|---|---|---|")
    with start_workers(args.workers) as workers:
        for job, rows in zip(jobs, workers.map(run, jobs), strict=True):
            print(describe(job, rows), flush=True)
            tables.append({"pool": job.pool, "seed": job.seed, "recalibrate": job.recalibrate, "tenths": rows})
    (args.output / "calibration.json").write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
