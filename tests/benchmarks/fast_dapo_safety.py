"""Does choosing prompts cost accuracy somewhere? Fast DAPO's choose against uniform sampling where things go wrong.

    python tests/benchmarks/fast_dapo_safety.py            # all scenarios, 4 seeds: half an hour of one core
    python tests/benchmarks/fast_dapo_safety.py --quick    # 2 seeds, a quarter of the rollouts
    python tests/benchmarks/fast_dapo_safety.py --scenarios swapped_rewards graded --seeds 8

The protocol, fixed before the run
----------------------------------
Lab: `learning_lab.py` as in `fast_dapo_leaderboard.py`, 2,048 prompts, the base models of pools D and T. Uniform is
`uniform_rloo`: prompts in random order, N rollouts each, RLOO. Choose is `choosing_method.py`: the product's
controller, posterior and baseline; where rollouts are late or rewards graded it is driven as in `safety_methods.py`.
choose_flat is choose with one prior for all prompts.

Scenarios: `safety_scenarios.py`, whose docstrings say what each models.

    format                three sources, one with a format to discover
    swapped_rewards       a tenth of a source's prompts has another prompt's answer as ground truth
    inverted_rewards      for a tenth of a source's prompts right is rewarded 0 and wrong 1
    failing_environments  5 % of rollouts, and 5 % of steps in one source, have reward 0 whatever is said
    slow_hard_prompts     one source comes back 1 to 6 steps late, and what is older than 4 is dropped; uniform waits
    slow_waited_for       the same prompts, and choose also waits, as in the synchronous trainer
    slow_ahead            the same delays, one batch ahead, as in the asynchronous trainers: nothing grows too old
    length_bias           responses have a limit that a third of the learnable prompts does not fit into
    graded                the reward is the share of right digits; choose counts right answers as passes
    graded_successes      the same reward; choose takes it for a success of that size (success_threshold=null)

Measured: exact pass@1 at temperature 1 on 512 undamaged held-out learnable prompts, in each domain (data source, or
length class), after 20,000 generated rollouts, those that were dropped among them. Looks at every twentieth of them, at
the first step that has so many; the final accuracy is the mean of the last three. Reported: choose less uniform in
points, the mean over seeds, with the 95 % bootstrap percentiles of paired seeds: these have the same damage. The worst
domain of each scenario is in bold.

The bar: in no domain more than 1 point below uniform. "yes" has the whole interval above it, "on average" the mean.

A scenario counts only where uniform learns: at least 10 points in every domain that is more than hardly ever rewarded.

Settings: `safety_protocol.BY_HAND`, found by hand on pool B; or a tuned.json of the leaderboard, by pool and method.

The quick form: 2 seeds, 5,000 rollouts: whether it runs, no more.

Files in --output: runs.jsonl (finished runs: a second call only adds what is missing, so code that was changed needs
another folder), results.json, safety.md.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from fast_dapo_leaderboard import ROOT, check_base_models, read_tuned, stop
from leaderboard_protocol import Settings, seconds_of
from leaderboard_store import start_workers
from safety_protocol import BASELINE, BY_HAND, SCENARIOS, Job, SafetyStore
from safety_report import write_report

OUTPUT = ROOT / "outputs/benchmarks/fast_dapo_safety"
BUDGET, QUICK_BUDGET = 20_000, 5_000
SEEDS, QUICK_SEEDS = 4, 2


def run_in_worker(job: Job) -> dict[str, Any]:
    """A run; torch is loaded in the workers only."""
    from safety_training import run

    return run(job)


def settings_of(method: str, scenario: str, tuned: dict[str, dict[str, Settings]]) -> Settings:
    """The tuned settings of a method on a scenario's pool; where there are none, those found by hand."""
    return tuned.get(SCENARIOS[scenario].pool, {}).get(method, BY_HAND[method])


def describe(jobs: Sequence[Job], tuned: str | None) -> str:
    """The paragraph above the table."""
    own = sorted({f"{job.method} {_in_words(job.settings)}" for job in jobs})
    seeds = len({job.seed for job in jobs})
    return (
        f"{seeds} seed{'s' * (seeds > 1)}, {jobs[0].budget:,} rollouts. Settings{f' of {tuned}' if tuned else ''}: "
        f"{', '.join(own)}. Accuracy in percent, the mean of the last three looks; differences from uniform_rloo are "
        "means over seeds with 95 % bootstrap intervals, the worst domain of a scenario in bold."
    )


def _in_words(own: Settings) -> str:
    return f"{own.batch} x {own.group} at {own.learning_rate:g}, {own.updates} update{'s' * (own.updates > 1)}"


def parse(arguments: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--methods", nargs="+", choices=BY_HAND, default=[BASELINE, "choose"])
    parser.add_argument("--seeds", type=int, help=f"from 0 ({SEEDS}, with --quick {QUICK_SEEDS})")
    parser.add_argument("--quick", action="store_true", help="a quarter of the rollouts, in a separate folder")
    parser.add_argument("--output", type=Path, help=f"folder ({OUTPUT.relative_to(ROOT)}, with --quick .._quick)")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side, one thread each")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="a tuned.json of the leaderboard")
    return parser, parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    parser, args = parse(arguments)
    for name in ("seeds", "workers"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    seeds = args.seeds or (QUICK_SEEDS if args.quick else SEEDS)
    output = args.output or OUTPUT.with_name(OUTPUT.name + "_quick" * args.quick)
    try:
        tuned = {} if args.settings is None else read_tuned(args.settings)
        check_base_models(output, sorted({SCENARIOS[scenario].pool for scenario in args.scenarios}))
        store = SafetyStore(output / "runs.jsonl")
    except ValueError as error:
        parser.error(str(error))
    jobs = [
        Job(method, scenario, seed, settings_of(method, scenario, tuned), QUICK_BUDGET if args.quick else BUDGET)
        for scenario in args.scenarios
        for method in args.methods
        for seed in range(seeds)
    ]
    missing = [job for job in jobs if store.find(job) is None]
    minutes = sum(seconds_of(job.method, job.budget) for job in missing) / 60
    print(f"{len(missing)} runs to make, about {2 * minutes:.0f} processor minutes", flush=True)
    try:
        with start_workers(args.workers) as workers:
            results = store.finish(jobs, run_in_worker, workers, "safety")
    except BrokenProcessPool:
        stop("a worker died, perhaps for lack of memory: the same command continues where it was")
    except KeyboardInterrupt:
        stop("stopped: the same command continues where it was")
    print(write_report(output, results, describe(jobs, args.settings and args.settings.name)))


if __name__ == "__main__":
    main()
