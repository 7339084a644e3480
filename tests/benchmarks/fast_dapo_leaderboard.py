"""Every method for choosing and allocating rollouts, each tuned, compared by its cost to reach a target accuracy.

    python tests/benchmarks/fast_dapo_leaderboard.py                 # all of it; make leaderboard
    python tests/benchmarks/fast_dapo_leaderboard.py --quick         # under 15 minutes; make leaderboard QUICK=1
    python tests/benchmarks/fast_dapo_leaderboard.py --balanced      # training costs as much as generating
    python tests/benchmarks/fast_dapo_leaderboard.py --published --methods greso --pools B     # one row again

The protocol, fixed before the run
----------------------------------
Lab: `learning_lab.py`, a policy in plain PyTorch with verl's estimators, loss (clip .2/.28, token-mean) and correction
of samples that waited; 2,048 prompts of a pool of `data_preprocess.arithmetic`, one base model. `compact=True` leaves
rollouts without an advantage out of the forward pass, which is that of `lean_qwen2.py`; the gradient is the same up to
the order of its sums.

Methods (`leaderboard_protocol.METHODS`), each with its paper's settings; estimator RLOO, but GRPO for uniform_grpo, and
SPO's own. 2-GRPO is uniform_grpo with N = 2. two_phase is the product's controller: streaming, choice by the posterior,
sequential screening one by one, n = max(2, N / 4), n_continue = N - n. choose_flat is choose without features;
choose_states, with those of `data_preprocess.prompt_states`, and choose_noise, with uninformative ones, are run only by
name. filter_groups is `PlainFilterGroups`: it generates and keeps, for the same seeds, what verl's own buffer does on a
TransferQueue (tests/unit/slow/test_leaderboard_methods.py), without starting Ray for each of a thousand runs.

Tuned, per method and pool: learning rate 7.5e-5, 1.5e-4, 3e-4; seven batches of B prompts x N rollouts, 64 <= B x N <=
512; 2, 4 or 8 updates per batch (all on the same old log-probs, bounded by the loss's clip): 63 candidates. B is of 16,
32, 64, 128 and N of 2, 4, 8; two_phase needs N >= 4, and may have N = 16 and B = 8; a method with its own baseline may
have N = 1; SPO has no groups, so seven numbers of rollouts. A first grid with 1, 2 and 4 updates and rates up to 6e-4
was won by 4 updates at 1.5e-4, its corner, by nearly all methods, so it was moved.

Tuning is successive halving on seeds that are not reported, new ones in each rung:

    rung   candidates   seeds          rollouts of a run
    1      63           100            4,000
    2      16           101            8,000
    3      6            102, 103       12,000
    4      2            104 to 106     40,000

at most 764,000 rollouts, the same for every method. The first rung is played on pool B for all pools, the others on
the pool itself. The score of a candidate is its mean rollouts to +25 points,
where a seed that does not get there counts as the rung's budget; where that is equal, to +20, then to +15, then by the
area under the curve.

Reported: seeds 0 to 7, at most 40,000 rollouts; a run ends at +25 points, with --to-the-end 10,000 rollouts later (a
collapse is a fall by more than 3 points in these). Accuracy is the exact pass@1 at temperature 1 on held-out learnable
prompts, the mean over domains. A look at it comes at the first step 250 rollouts or 5 % after the last one, whichever
is more; while tuning 750 or 10 %. A target is reached at the look where the mean of three looks has gained so much.

Costs: rollouts and response tokens, generated and trained on; what is in two updates is trained on twice. Seconds at
stated prices are tokens: a generated one to a trained one 1:1, 1:3, 3:1, relative to tuned uniform. Tuned uniform is
the better of the two on the reported seeds, which favours it. A seed that never reaches a target counts as the budget;
such a mean is a lower bound and has a ">". Intervals are 95 % bootstrap percentiles over seeds.

The balanced form tunes and ends runs by another cost, generated rollouts + rollouts trained on, each as often as it is
in an update: with a price, more updates are no longer better for every method. Rates 1.5e-4, 3e-4, 6e-4 and 1, 2 or 4
updates; three times the budgets. It shares nothing but the protocol with the first form.

The quick form: pool B, 2 seeds, 20,000 rollouts, 6 candidates (3 batches, 2 rates, 4 updates) on two tuning seeds.

Files in --output: tuning.jsonl and runs.jsonl (finished runs: a second call only adds what is missing, so a method that
was changed needs another folder), tuned.json, results.json (one row per run), summary.json (one row per method and
pool), leaderboard.md, curves.svg, curves_POOL.svg. `leaderboard_summary.py DIR` publishes them in the docs.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from leaderboard_protocol import (
    BALANCED,
    CONTROLS,
    FULL,
    METHODS,
    POOLS,
    QUICK,
    Job,
    Protocol,
    Settings,
    seconds_of,
    tune,
)
from leaderboard_report import write_report
from leaderboard_store import RunStore, start_workers

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "outputs/models"
OUTPUT = ROOT / "outputs/benchmarks/fast_dapo_leaderboard"
PUBLISHED = Path(__file__).with_name("leaderboard_settings.json")
AFTER = 10_000  # additional rollouts of --to-the-end

Tuned = dict[str, dict[str, Settings]]  # by pool and method


def run_in_worker(job: Job) -> dict[str, Any]:
    """A run; torch is loaded in the workers only."""
    from leaderboard_training import run

    return run(job)


def read_tuned(path: Path) -> Tuned:
    """Settings by pool and method, as `write_tuned` writes them.

    Raises:
        ValueError: If the file is missing or is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {pool: {name: Settings(**own) for name, own in methods.items()} for pool, methods in content.items()}
    except FileNotFoundError:
        raise ValueError(f"no tuned settings at {path}: tune first, which writes tuned.json") from None
    except (json.JSONDecodeError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a file of tuned settings, as tuned.json is: {error}") from None


def published(balanced: bool) -> Path:
    """The settings of a form's published run."""
    return PUBLISHED.with_stem(PUBLISHED.stem + "_balanced" * balanced)


def check_tuned(args: argparse.Namespace, given: Tuned) -> None:
    """Raises ValueError where settings of a method are missing."""
    for pool in args.pools:
        if missing := [method for method in args.methods if method not in given.get(pool, {})]:
            raise ValueError(f"{args.settings} has no settings of {', '.join(missing)} on pool {pool}")


def write_tuned(path: Path, tuned: Tuned) -> None:
    """Add settings to the file."""
    known = read_tuned(path) if path.exists() else {}
    merged = {pool: known.get(pool, {}) | tuned.get(pool, {}) for pool in known | tuned}
    content = {pool: {name: asdict(own) for name, own in methods.items()} for pool, methods in merged.items()}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_base_models(folder: Path, pools: Sequence[str]) -> None:
    """Runs of two base models must not be compared: the folder remembers which ones its runs started from.

    Raises:
        ValueError: If a model is missing, or the folder has runs of another one.
    """
    path = folder / "base_models.json"
    remembered = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for pool in pools:
        weights = MODELS / POOLS[pool] / "model.safetensors"
        if not weights.exists():
            raise ValueError(
                f"the base model of pool {pool} is missing, {weights.parent}: run "
                "`python tests/benchmarks/leaderboard_tasks.py`"
            )
        own = hashlib.sha256(weights.read_bytes()).hexdigest()
        if remembered.setdefault(POOLS[pool], own) != own:
            raise ValueError(f"{folder} has runs of another {POOLS[pool]}: give another --output, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(remembered, indent=2) + "\n", encoding="utf-8")


def estimate(args: argparse.Namespace, protocol: Protocol, after: int) -> str:
    """The maximum duration of a call, as text; by CPU seconds measured on pool B."""
    # With a price, a rollout that is generated and trained on once costs more than one; what is thrown away does not.
    unit = 1 + protocol.price
    rollouts = protocol.num_seeds * (protocol.budget + after) / unit
    if args.settings is None:
        rollouts += protocol.tuning_cost / unit
    minutes = len(args.pools) * sum(seconds_of(method, rollouts) for method in args.methods) / 60
    bound = "about" if protocol.price else "at most"
    per_run = ", ".join(f"{method} {seconds_of(method, protocol.budget / unit):.0f}" for method in args.methods)
    return (
        f"Processor seconds of a run of {protocol.budget / unit:,.0f} rollouts: {per_run}.\n"
        f"Altogether {bound} {minutes:,.0f} processor minutes, {minutes / args.workers:,.0f} on {args.workers} idle "
        "cores, less what is already there. Many runs end sooner, at +25 points: expect two thirds to three quarters."
    )


def describe(protocol: Protocol, after: int, settings: str | None) -> str:
    """The paragraph above the tables."""
    what = "rollouts (generated + trained on)" if protocol.price else "rollouts"
    tuning = f"at most {protocol.tuning_cost:,} {what} on seeds {protocol.rungs[0].seeds[0]} and up"
    end = f"at +25 points{f' and {after:,} rollouts' if after else ''}, or after {protocol.budget:,} {what}"
    tuned = f"tuned per method and pool over {protocol.num_candidates} candidates, {tuning}"
    tuned += f" (the first rung on pool {protocol.pools[0]})"
    missing = "with what they had used" if protocol.price else "as the budget"
    return (
        f"Settings: {settings or tuned}. Reported: {protocol.num_seeds} other seeds; a run ends {end}. Means over "
        "seeds with 95 % bootstrap intervals; one with a > is a lower bound, as seeds that never reached the target "
        f"count {missing}. x uniform: how many times fewer rollouts than the better uniform method. Costs are "
        "tokens, generated : trained, relative to it."
    )


@dataclass(frozen=True)
class Stores:
    """Finished runs of tuning, and those that are reported."""

    tuning: RunStore
    reported: RunStore

    @classmethod
    def in_folder(cls, folder: Path) -> "Stores":
        return cls(RunStore(folder / "tuning.jsonl"), RunStore(folder / "runs.jsonl"))


def collect(
    args: argparse.Namespace, protocol: Protocol, given: Tuned | None, stores: Stores, workers: Executor
) -> str:
    """Tune what is not given, and make the reported runs, pool by pool; the report grows with each."""
    after, results, text = AFTER * args.to_the_end, [], ""
    for pool in args.pools:
        if given is None:
            finish = partial(stores.tuning.finish, run=run_in_worker, workers=workers, title=f"pool {pool}, tuning")
            tuned = tune(args.methods, pool, protocol, finish)
            write_tuned(args.output / "tuned.json", {pool: tuned})
        else:
            tuned = given[pool]
        jobs = [
            Job(method, pool, seed, tuned[method], protocol.budget, after, price=protocol.price)
            for method in args.methods
            for seed in range(protocol.num_seeds)
        ]
        results += stores.reported.finish(jobs, run_in_worker, workers, f"pool {pool}, reported")
        text = write_report(args.output, results, describe(protocol, after, args.settings and args.settings.name))
    return text


def parse(arguments: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=[name for name in METHODS if name not in CONTROLS]
    )
    parser.add_argument("--pools", nargs="+", choices=POOLS, help="by default all, with --quick B")
    parser.add_argument("--seeds", type=int, help="reported ones, from 0 (8, with --quick 2)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="fewer candidates, seeds, pools; in a separate folder")
    form.add_argument(
        "--balanced", action="store_true", help="tuned by generated + trained rollouts; in a separate folder"
    )
    parser.add_argument(
        "--to-the-end", action="store_true", help="continue for 10,000 rollouts (of cost) after +25: collapses"
    )
    parser.add_argument("--output", type=Path, help=f"folder ({OUTPUT.relative_to(ROOT)}, with --quick .._quick, ...)")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side, one thread each")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--settings", type=Path, metavar="FILE", help="the tuned.json of an earlier run; no tuning")
    known.add_argument(
        "--published", action="store_true", help=f"the settings of the published run, {PUBLISHED.name}; no tuning"
    )
    return parser, parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    parser, args = parse(arguments)
    protocol = QUICK if args.quick else BALANCED if args.balanced else FULL
    suffix = "_quick" * args.quick + "_balanced" * args.balanced
    args.pools = args.pools or list(protocol.pools)
    args.output = args.output or OUTPUT.with_name(OUTPUT.name + suffix)
    if args.published:
        args.settings = published(args.balanced)
    for name in ("seeds", "workers"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.seeds:
        protocol = replace(protocol, num_seeds=args.seeds)
    try:
        given = None if args.settings is None else read_tuned(args.settings)
        if given is not None:
            check_tuned(args, given)
        check_base_models(args.output, sorted({*args.pools, protocol.pools[0]} if given is None else args.pools))
        stores = Stores.in_folder(args.output)
    except ValueError as error:
        parser.error(str(error))
    print(estimate(args, protocol, AFTER * args.to_the_end), flush=True)
    try:
        with start_workers(args.workers) as workers:
            print(collect(args, protocol, given, stores, workers))
    except BrokenProcessPool:
        stop("a worker died, perhaps for lack of memory: the same command continues where it was")
    except KeyboardInterrupt:
        stop("stopped: the same command continues where it was")


def stop(message: str) -> NoReturn:
    raise SystemExit(message)


if __name__ == "__main__":
    main()
