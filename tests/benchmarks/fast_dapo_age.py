"""What the age of rollouts costs: rollouts to a target accuracy where every batch is trained on some versions late.

    python tests/benchmarks/fast_dapo_age.py [--pool E] [--seeds 24] [--versions 0 1 2] [--methods choose uniform_rloo]
    python tests/benchmarks/fast_dapo_age.py --batch 32 --group 2 --learning_rate 3e-4 --updates 1 --pool B

The plain-PyTorch lab in place of verl's asynchronous trainers, so that there can be enough seeds for differences of a
few percent: a method generates batch after batch, with the newest weights and all results so far, and the batch that is
trained on is the one that was generated `versions` updates ago. Without the tail of slow responses that is what a
trainer with verl's `num_warmup_batches=versions` does. Rollouts that still wait at the end were generated, and count.

The accuracy is exact pass@1 at temperature 1 on 512 held-out prompts, after every update; what the target took is
interpolated between the last two. Intervals are 95 % bootstrap percentiles over seeds; ratios are of means.

Prediction, written before the first run: one version costs as much as the batch that waits, two cost 15 %.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from leaderboard_protocol import METHODS, POOLS, Job, Settings
from leaderboard_report import Needed, ratio, ratio_text
from leaderboard_store import read_whole_lines, start_workers
from leaderboard_training import base_of, make_method, task_of
from learning_lab import Policy
from sampling_methods import Batch, Method

from verl_ext.core.json_lines import JsonLines

OUTPUT = Path(__file__).resolve().parents[2] / "outputs/benchmarks/fast_dapo_age"
BUDGET = 30_000  # rollouts


@dataclass(frozen=True)
class AgeJob:
    """One training run.

    Attributes:
        versions: Weight versions between the generation of a batch and the update on it.
        gain: In accuracy, to be reached.
    """

    method: str
    pool: str
    seed: int
    settings: Settings
    versions: int
    gain: float


class Late:
    """A method's batches, each this many updates after it was generated."""

    def __init__(self, method: Method, versions: int) -> None:
        self.method, self.versions = method, versions
        self.waiting: list[Batch] = []

    def next_batch(self, policy: Policy) -> Batch:
        """Generate with the policy as it is now; return the batch that has waited for long enough."""
        while len(self.waiting) <= self.versions:
            self.waiting.append(self.method.next_batch(policy))
        return self.waiting.pop(0)


def run(job: AgeJob) -> dict[str, float]:
    """Rollouts generated, trained on, and updates to the target, or to the end of the budget."""
    torch.set_num_threads(1)  # two processes on two cores, and sums that do not depend on the machine
    task, own = task_of(job.pool), job.settings
    estimator = METHODS[job.method].estimator
    rate = own.learning_rate
    policy = Policy(base_of(job.pool), task, learning_rate=rate, estimator=estimator, seed=job.seed, compact=True)
    late = Late(make_method(Job(job.method, job.pool, job.seed, own, BUDGET), task), job.versions)
    accuracy = policy.accuracy()
    target, spent = accuracy + job.gain, {"rollouts": 0.0, "trained": 0.0, "steps": 0.0}
    while spent["rollouts"] < BUDGET:
        before, earlier = accuracy, spent
        batch = late.next_batch(policy)
        policy.update(batch.rollouts, batch.groups, batch.weights, batch.advantages, updates=own.updates)
        accuracy = policy.accuracy()
        generated, trained = late.method.counts.generated, earlier["trained"] + len(batch.rollouts)
        spent = {"rollouts": float(generated), "trained": trained, "steps": earlier["steps"] + 1}
        if accuracy >= target:
            share = (target - before) / (accuracy - before)
            return {name: earlier[name] + share * (spent[name] - earlier[name]) for name in spent}
    return spent


def finish(jobs: Sequence[AgeJob], path: Path, workers: int) -> list[dict[str, float]]:
    """Make the runs that are not in the file; the results of all jobs, in their order."""
    store = JsonLines(path)
    known = {json.dumps(record["job"]): record["result"] for record in read_whole_lines(store)}
    missing = [job for job in jobs if json.dumps(asdict(job)) not in known]
    with start_workers(workers) as pool:
        for done, (job, result) in enumerate(zip(missing, pool.map(run, missing), strict=True), start=1):
            store.append([{"job": asdict(job), "result": result}])
            known[json.dumps(asdict(job))] = result
            print(f"{done} of {len(missing)} runs: {job.method}, {job.versions} versions, seed {job.seed}", flush=True)
    return [known[json.dumps(asdict(job))] for job in jobs]


def render(results: Mapping[tuple[str, int], Sequence[Mapping[str, float]]]) -> str:
    """A Markdown table, by method and versions."""

    def needed(key: tuple[str, int], column: str) -> Needed:
        reached = sum(result["rollouts"] < BUDGET for result in results[key])
        return Needed(tuple(result[column] for result in results[key]), reached)

    lines = ["| method | versions late | updates | rollouts | x | trained on | x |", "|---|---|---|---|---|---|---|"]
    for method, versions in results:
        first = next(key for key in results if key[0] == method)
        cells = [method, str(versions), f"{needed((method, versions), 'steps').mean:.1f}"]
        for column in ("rollouts", "trained"):
            own, base = needed((method, versions), column), needed(first, column)
            low, high = own.interval() or (own.mean, own.mean)
            cells += [f"{'>' * own.is_bound}{own.mean:,.0f} [{low:,.0f}, {high:,.0f}]", ratio_text(ratio(own, base))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", choices=tuple(POOLS), default="E")
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=["choose", "uniform_rloo"])
    parser.add_argument("--versions", nargs="+", type=int, default=[0, 1, 2], help="the first is what ratios refer to")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--gain", type=float, default=0.2)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--batch", type=int, default=16, help="prompts per batch")
    parser.add_argument("--group", type=int, default=4, help="rollouts per prompt, at most")
    parser.add_argument("--learning_rate", type=float, default=1.5e-4)
    parser.add_argument("--updates", type=int, default=2, help="per batch")
    args = parser.parse_args()
    if not (base_of(args.pool) / "config.json").exists():
        parser.error(f"the base model of pool {args.pool} is missing: run `make demo-data` or `make leaderboard`")
    settings = Settings(args.learning_rate, args.batch, args.group, args.updates)
    first = AgeJob("", args.pool, 0, settings, 0, args.gain)
    keys = [(method, versions) for method in args.methods for versions in args.versions]
    jobs = [
        replace(first, method=method, versions=versions, seed=seed)
        for seed in range(args.seeds)
        for method, versions in keys
    ]
    found = finish(jobs, OUTPUT / "runs.jsonl", args.workers)
    results: dict[tuple[str, int], list[Any]] = {key: [] for key in keys}
    for job, result in zip(jobs, found, strict=True):
        results[job.method, job.versions].append(result)
    print(render(results))


if __name__ == "__main__":
    main()
