"""Golden redaction, SFT on the same golden solutions and GRPO at equal compute, on the same ladder.

    make demo-arc-data                                         # the base model and its 8 tasks, minutes; once
    python tests/benchmarks/golden_baselines.py                # all of it: about two hours on 2 idle cores
    python tests/benchmarks/golden_baselines.py --quick        # untuned, one seed, a tenth of the budget: some minutes
    python tests/benchmarks/golden_baselines.py --arms none sft redaction --seeds 5 --solutions 1

The protocol, fixed before the run
----------------------------------
Lab: one process per run, plain PyTorch in float32 on one thread (`golden_engine.py`), no Ray and no vLLM. Of golden
redaction the product's own code runs: controller, visitor, credit, targets, worker with its inner steps, with the
configuration of the demo (configs/golden_redaction_cpu.yaml). GRPO has verl's estimator and loss. Programs run in the
product's sandbox. What differs from a run: answers may be 16 tokens longer than the longest golden solution (the demo:
192 tokens, which cuts off the longest), they end at the end of the text and not at the fence, and equal programs run
once in a run.

Arms (`golden_baselines_protocol.ARMS`, `golden_arms.py`): none; sft; grpo; prefix_grpo, which has redaction's k but
learns whole responses; redaction; sft_then_grpo and sft_then_redaction, in which SFT has the first 1/64 of the budget.

Problems: the demo's 8 tasks, which the base model has read with mistakes. A seed chooses the 4 (and, in the second
setting, the 2) that the run may use; the rest are the *other tasks*: the base model writes them as well as the trained
ones, and no label, reward or solution of theirs is used. All arms of a seed have the same ones.

Budget: 1.6 million passes per solution, of which redaction should make about 120 visits per problem, as in the demo. A
pass is a token position that goes through the model without a gradient; one with a gradient counts 3 (forward, and
twice that backward). Prompts, rollouts, padding and the measurements of an update all count. A run ends at the first
update behind its budget; sft ends earlier, at the share of it that tuning finds best, since it needs no more. Passes
leave out the sandbox: it is in the processor seconds.

Tuned, on seed 100 with 4 solutions: sft's rate 1e-4, 3e-4, 1e-3 and its share of the budget 1/32, 1/8, 1/2; grpo's and
prefix_grpo's rate and updates per batch of 4 x 16, 3e-4 and 1e-3 with 1, 1e-4 and 3e-4 with 4; redaction's rate .03,
.06, .12 (all but sft with half of the budget). Chosen is the best pass rate on whole solutions at the end; of those
within 3 points of it the one with the least drift. The two-phase arms take what was found for their methods.

Reported, seeds 0 to 2, at the end of each run, pass rates of 32 answers per state at temperature 1, means over tasks:

    visited states   the trained tasks' states whose golden token has at most .98 under the base model: those that
                     redaction visits, the same for all arms
    whole solution   the trained tasks' bare prompts
    fresh pairs      the same answers, right on every one of up to 4 further pairs as well, which were in no prompt and
                     no reward: random grids and what the golden solution makes of them
    other tasks      their bare prompts
    drift            mean |change| of the log-prob of a token since the base model, in nats: of the other tasks' golden
                     solutions, and of all prompts, which no arm trains on

Also at 1/64, 1/32 .. 1/2 of the budget (SFT also at 1/256 and 1/128): whole solutions, the probability of exactly the
golden solution, drift and cost. From these comes the table of arms where they first have a pass rate of .5, in a line
between two looks, since drift at the end of runs that learned differently much says little. Intervals are 95 %
bootstrap percentiles over seeds; with three seeds they are the range of the means of three draws, and differences by
seed are given as well.

PREDICTION, written before any run of the demo's model. Whole solutions, 4 solutions: none .04 to .10; sft above .9,
from 1/32 of the budget on, as it is told all tokens at once and redaction finds them out one by one; grpo .3 to .7;
prefix_grpo .5 to .8; redaction .3 to .6; sft_then_grpo and sft_then_redaction .7 to .95, and neither better than sft.
Visited states: none .25, sft .95, grpo .6, prefix_grpo and redaction .7. Fresh pairs within 2 points of whole solutions
for all, as programs of golden form are right everywhere or nowhere. SFT reaches .5 with less than a thirtieth of what
grpo and redaction need. Other tasks: no arm more than 5 points above none; sft the most below it. Drift of the other
solutions at a pass rate of .5: redaction least, at most a third of grpo's and a fifth of sft's; at the end sft's is
above .1, redaction's below .02. With 2 solutions: the same order, sft's drift larger. So redaction would be worth it
only where untouched text must stay as it is, or where no golden solution may be learned word by word; the tables say
whether even that holds.

The quick form: one seed, 2 solutions, a tenth of the budget, 8 answers per state, settings of `UNTUNED`: whether it
runs, no more.

Files in --output: runs.jsonl (finished runs, including tuning: a second call only adds what is missing, so code that
was changed needs another folder), base.json (which model and data these are of), tuned.json, results.json,
golden_baselines.md.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

from golden_baselines_protocol import ARMS, CANDIDATES, UNTUNED, Job, Store, choose, make_job, tuning_jobs
from golden_baselines_report import write_report
from leaderboard_store import start_workers

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "outputs/models/arc_base"
DATA = ROOT / "outputs/data/arc/arc_agi_1_training.parquet"
OUTPUT = ROOT / "outputs/benchmarks/golden_baselines"
BUDGET, SOLUTIONS, SEEDS, SAMPLES = 1_600_000, (4, 2), 3, 32
QUICK_BUDGET, QUICK_SOLUTIONS, QUICK_SEEDS, QUICK_SAMPLES = 160_000, (2,), 1, 8

Tuned = dict[str, dict[str, float]]  # by method


def run_in_worker(job: Job, model: Path, data: Path) -> dict[str, Any]:
    """A run; torch and verl are loaded in the workers only."""
    import os

    os.environ.setdefault("VERL_PLATFORM", "cpu")
    from golden_runs import run

    return run(job, model, data)


def check_base(folder: Path, model: Path, data: Path) -> None:
    """Runs of two base models must not be compared: the folder remembers which one its runs started from.

    Raises:
        ValueError: If model or data are missing, or the folder has runs of others.
    """
    files = [model / "model.safetensors", data]
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        raise ValueError(f"{' and '.join(missing)} missing: run `make demo-arc-data`, or give --model and --data")
    own = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    path = folder / "base.json"
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != own:
        raise ValueError(f"{folder} has runs of another model or other data: give another --output, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(own) + "\n", encoding="utf-8")


def read_settings(path: Path, methods: Sequence[str]) -> Tuned:
    """Settings by method, as tuned.json has them.

    Raises:
        ValueError: If the file is missing, is something else, or lacks a method.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        tuned = {method: {name: float(own[name]) for name in UNTUNED[method]} for method, own in content.items()}
    except FileNotFoundError:
        raise ValueError(f"no settings at {path}: leave --settings out, and they are tuned") from None
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a file of tuned settings, as tuned.json is: {error!r}") from None
    if lacking := [method for method in methods if method not in tuned]:
        raise ValueError(f"{path} has no settings of {', '.join(lacking)}")
    return tuned


def methods_of(arms: Sequence[str]) -> list[str]:
    """What these arms learn by, each once."""
    return [method for method in CANDIDATES if any(method in ARMS[arm] for arm in arms)]


def collect(args: argparse.Namespace, given: Tuned | None, store: Store, workers: Executor) -> str:
    """Tune unless settings are given, make the runs, write the report; returns its text."""
    run, methods = partial(run_in_worker, model=args.model, data=args.data), methods_of(args.arms)
    if given is not None:
        tuned = given
    elif args.quick:
        tuned = UNTUNED
    else:
        most = max(args.solutions)
        by_method = {method: tuning_jobs(method, most, args.budget, args.samples) for method in methods}
        every = [job for jobs in by_method.values() for job in jobs]
        store.finish(every, run, workers, partial(say, "tuning"))
        tuned = {m: choose(store.finish(jobs, run, workers, partial(say, "tuning"))) for m, jobs in by_method.items()}
        (args.output / "tuned.json").write_text(json.dumps(tuned, indent=1) + "\n", encoding="utf-8")
    jobs = [
        make_job(arm, solutions, seed, tuned, args.budget, args.samples)
        for solutions in args.solutions
        for arm in args.arms
        for seed in range(args.seeds)
    ]
    results = store.finish(jobs, run, workers, partial(say, "reported"))
    return write_report(args.output, results, describe(args, tuned), tuned)


def say(what: str, text: str) -> None:
    print(f"{what}, {text}", flush=True)


def describe(args: argparse.Namespace, tuned: Tuned) -> str:
    """The paragraph above the tables."""
    settings = "; ".join(
        f"{method} {', '.join(f'{name} {value:g}' for name, value in own.items())}" for method, own in tuned.items()
    )
    how = "untuned" if args.quick else f"of {args.settings.name}" if args.settings else "tuned on a separate seed"
    return (
        f"{args.seeds} seed{'s' * (args.seeds > 1)}, {args.budget:,} passes per golden solution (a token position "
        f"without a gradient counts 1, with one 3), {args.samples} answers per state. Settings, {how}: {settings}. "
        "Means over seeds with 95 % bootstrap intervals; drift in nats per token."
    )


def parse(arguments: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, help=f"from 0 ({SEEDS}, with --quick {QUICK_SEEDS})")
    parser.add_argument("--solutions", nargs="+", type=int, help="golden solutions of a run, of 8 (4 2; --quick 2)")
    parser.add_argument("--budget", type=int, help=f"passes per solution ({BUDGET:,}; --quick {QUICK_BUDGET:,})")
    parser.add_argument("--samples", type=int, help=f"answers per state ({SAMPLES}; --quick {QUICK_SAMPLES})")
    parser.add_argument("--quick", action="store_true", help="untuned and small, in a separate folder")
    parser.add_argument("--output", type=Path, help=f"folder ({OUTPUT.relative_to(ROOT)}, with --quick .._quick)")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side, one thread each")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="a tuned.json, instead of tuning")
    parser.add_argument("--model", type=Path, default=MODEL, help="the base model of make demo-arc-data")
    parser.add_argument("--data", type=Path, default=DATA, help="its tasks, of data_preprocess.arc")
    args = parser.parse_args(arguments)
    args.seeds = (QUICK_SEEDS if args.quick else SEEDS) if args.seeds is None else args.seeds
    args.solutions = args.solutions or list(QUICK_SOLUTIONS if args.quick else SOLUTIONS)
    args.budget = (QUICK_BUDGET if args.quick else BUDGET) if args.budget is None else args.budget
    args.samples = (QUICK_SAMPLES if args.quick else SAMPLES) if args.samples is None else args.samples
    args.output = args.output or OUTPUT.with_name(OUTPUT.name + "_quick" * args.quick)
    return parser, args


def main(arguments: Sequence[str] | None = None) -> None:
    parser, args = parse(arguments)
    for name in ("seeds", "budget", "samples", "workers", "solutions"):
        value = min(args.solutions) if name == "solutions" else getattr(args, name)
        if value < 1:
            parser.error(f"--{name} must be at least 1, got {value}")
    try:
        check_base(args.output, args.model, args.data)
        store = Store(args.output / "runs.jsonl")
        given = None if args.settings is None else read_settings(args.settings, methods_of(args.arms))
    except ValueError as error:
        parser.error(str(error))
    try:
        with start_workers(args.workers) as workers:
            print(collect(args, given, store, workers))
    except BrokenProcessPool:
        raise SystemExit("a worker died, perhaps for lack of memory: the same command continues where it was") from None
    except KeyboardInterrupt:
        raise SystemExit("stopped: the same command continues where it was") from None


if __name__ == "__main__":
    main()
