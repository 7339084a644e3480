"""Toxicity, whole runs: GRPO and PPO, each with and without TracIn, by the command that a user would run.

    python tests/benchmarks/tracin_toxicity_runs.py --dry-run      # the commands, and which of them are finished
    python tests/benchmarks/tracin_toxicity_runs.py                # all arms, 3 seeds, after the search for their rates
    python tests/benchmarks/tracin_toxicity_runs.py --arms grpo grpo_tracin --seeds 1 --steps 20 --rate 4e-3
    python tests/benchmarks/tracin_toxicity_runs.py --task smollm2 --seeds 1 --rate 2e-4    # two runs, an hour each

Each run is `python -m recipe.tracin.main +backend=cpu +experiment=tracin_toxicity` (`--task smollm2`:
`smollm2_toxicity_cpu`, with GRPO only) in a separate run folder, with

    grpo          tracin.enable=false
    grpo_tracin   as the experiment is
    ppo           tracin.enable=false, and GAE with a critic, which begins as the base model
    ppo_tracin    GAE with a critic

A seed decides the order of the data and TracIn's validation prompts; vLLM is not seeded. Arms take turns
within a seed, so that a machine that gets slower does not favor one of them. Finished runs are skipped. One that was
interrupted resumes from its last checkpoint, and a longer --steps continues all. --report starts nothing and
reports what is finished.

Measured: toxicity of four sampled continuations (smollm2: one) per held-out prompt (1 - reward, at temperature 1; the
experiment itself evaluates greedily), every five (ten) steps, over rollouts of both kinds and over seconds of
steps, without evaluations and without checkpoints. The level that is compared is halfway from the start to the highest
final toxicity (--level: another). The actor's rate is the one with the least toxicity, on average over the looks, for
the arm without TracIn on another seed, of a grid that grows while its edge is the best; the critic's was chosen without
a run.

PREDICTION, written before the first run: from .30, grpo .20 after 40 steps; grpo_tracin reaches that with 1.1x fewer
rollouts and in as many seconds, as rewards are right and dense here, and samples that oppose the validation set few;
ppo .22; ppo_tracin 1.2x fewer rollouts than ppo, whose advantages are noisier. A first run of grpo at 1e-3 ended at
.27, so rates are tuned, and four continuations are sampled instead of one.

PREDICTION for smollm2, at the experiment's rate: the linear classifier of words gives .12 before training; after 40
steps grpo .06, grpo_tracin .07, as half the samples are dropped for a direction that hardly means anything; to the same
toxicity 0.8 times fewer rollouts, and 0.5 times in seconds, as a step takes 1.7 times as long.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from rate_search import best_rate
from toxicity_report import mean_toxicity, plain_of, read_looks, write_report
from whole_runs import ROOT, RunError, WholeRun, finish, missing_files, train

OUTPUT = ROOT / "outputs/benchmarks/tracin_toxicity"
DATA = "outputs/data/toxicity"
BASE, SMOLLM2 = "outputs/models/toxicity_base", "outputs/models/smollm2_135m"
SECTION = "data_preprocess/README.md, section Toxicity"
TUNING_SEED = 100
PLAIN = ("tracin.enable=false",)
PPO = (
    "algorithm.adv_estimator=gae",
    "critic.enable=true",
    f"critic.model.path={BASE}",
    # All of its weights are trained, with a new head; verl's 1e-5 is meant for large models.
    "critic.optim.lr=1e-3",
)
ARMS = {"grpo": PLAIN, "grpo_tracin": (), "ppo": (*PPO, *PLAIN), "ppo_tracin": PPO}


@dataclass(frozen=True)
class Task:
    """A model and its reward.

    Attributes:
        experiment: Of configs/experiment.
        needed: What it reads, and the script of data_preprocess that makes it.
        arms: That can be run on it.
        rates: The first grid.
        steps: Of a run.
        steps_per_look: Between validations.
        per_prompt: Continuations of each held-out prompt.
    """

    experiment: str
    needed: Mapping[str, str]
    arms: tuple[str, ...]
    rates: tuple[float, ...]
    steps: int
    steps_per_look: int
    per_prompt: int

    def looks(self) -> list[str]:
        """Overrides for validations."""
        # As many prompts: for several answers per prompt, verl bootstraps statistics that take longer than the answers.
        files = ",".join([f"{DATA}/val.parquet"] * self.per_prompt)
        return [
            f"trainer.test_freq={self.steps_per_look}",
            "actor_rollout_ref.rollout.val_kwargs.do_sample=true",
            "actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
            f"data.val_files=[{files}]",
            "actor_rollout_ref.rollout.val_kwargs.n=1",
        ]


PROMPTS = {f"{DATA}/train.parquet": "real_toxicity_prompts"}
SMALL_NEEDED = {
    **PROMPTS,
    f"{BASE}/config.json": "toxicity_model",
    "outputs/models/toxicity_classifier/config.json": "toxicity_classifier",
}
SMOLLM2_NEEDED = {**PROMPTS, f"{SMOLLM2}/config.json": "pretrained_model"}
TASKS = {
    "small": Task(
        "tracin_toxicity",
        SMALL_NEEDED,
        tuple(ARMS),
        rates=(2e-3, 4e-3, 8e-3),
        steps=30,
        steps_per_look=5,
        per_prompt=4,
    ),
    "smollm2": Task(
        "smollm2_toxicity_cpu",
        SMOLLM2_NEEDED,
        ("grpo", "grpo_tracin"),  # the critic of PPO is one of the small model
        # Around the experiment's, and not below the lowest that a search may try.
        rates=(1.25e-4, 2.5e-4, 5e-4),
        steps=40,
        steps_per_look=10,
        per_prompt=1,
    ),
}


@dataclass(frozen=True)
class Run(WholeRun):
    """One of the runs.

    Attributes:
        arm: Of `ARMS`.
        seed: Of the data, and of TracIn's draws.
        steps: Its length.
        output: The benchmark's folder.
        rate: The actor's learning rate.
        task: Of `TASKS`.
    """

    program: ClassVar[str] = "recipe.tracin.main"

    arm: str
    seed: int
    steps: int
    output: Path
    rate: float
    task: str = "small"

    @property
    def folder(self) -> Path:
        """The run folder: metrics, checkpoints, summary."""
        return self.output / "runs" / f"{self.arm}_lr{self.rate:g}_seed{self.seed}"

    def overrides(self) -> list[str]:
        """What follows the program's name."""
        return [
            "+backend=cpu",
            f"+experiment={TASKS[self.task].experiment}",
            f"run_dir={self.folder}",
            f"trainer.total_training_steps={self.steps}",
            f"data.seed={self.seed}",
            f"tracin.validation.seed={self.seed}",
            f"actor_rollout_ref.actor.optim.lr={self.rate}",
            *TASKS[self.task].looks(),
            *ARMS[self.arm],
        ]


def plan(rates: Mapping[str, float], seeds: int, steps: int, output: Path, task: str = "small") -> list[Run]:
    """All runs, the arms taking turns, each at its rate."""
    return [Run(arm, seed, steps, output, rate, task) for seed in range(seeds) for arm, rate in rates.items()]


def tuned_rates(
    arms: Sequence[str], steps: int, output: Path, train: Callable[[Run], int] = train, task: str = "small"
) -> dict[str, float]:
    """By arm, the rate at which the arm without TracIn is least toxic on a separate seed, as a mean over the looks.

    Raises:
        RunError: A run failed or was interrupted.
    """

    def reward(arm: str, rate: float) -> float:
        run = Run(arm, TUNING_SEED, steps, output, rate, task)
        finish([run], train)
        toxicity = mean_toxicity(read_looks(run.folder, steps))
        print(f"{arm} at {rate:g}: mean toxicity {toxicity:.3f}", flush=True)
        return -toxicity

    best = {arm: best_rate(partial(reward, arm), TASKS[task].rates) for arm in dict.fromkeys(map(plain_of, arms))}
    return {arm: best[plain_of(arm)] for arm in arms}


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="small")
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="default: all of the task")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="default: the task's, 30 (smollm2: 40)")
    parser.add_argument("--rate", type=float, help="the actor's, of every arm; default: tuned")
    parser.add_argument("--level", type=float, help="toxicity; default: halfway to the highest final toxicity")
    parser.add_argument("--output", type=Path, help="default: of the task, in outputs/benchmarks")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, by default at a rate of the grid")
    parser.add_argument("--report", action="store_true", help="report the finished runs at --rate and start none")
    args = parser.parse_args(argv)
    task = TASKS[args.task]
    arms = args.arms or list(task.arms)
    steps = task.steps if args.steps is None else args.steps
    if unknown := [arm for arm in arms if arm not in task.arms]:
        parser.error(f"{args.task} has no {', '.join(unknown)}: its arms are {', '.join(task.arms)}")
    if args.seeds < 1 or steps < task.steps_per_look:
        parser.error(f"expected --seeds of at least 1 and --steps of at least {task.steps_per_look}")
    default = OUTPUT if args.task == "small" else OUTPUT.with_name(f"{OUTPUT.name}_{args.task}")
    output, given = (args.output or default).resolve(), dict.fromkeys(arms, args.rate or task.rates[0])
    if args.dry_run:
        for run in plan(given, args.seeds, steps, output, args.task):
            print(run.describe())
        return
    if args.report and args.rate is None:
        parser.error("--report needs --rate, the rate of the runs")
    if not args.report and (problem := missing_files(ROOT, task.needed, SECTION)) is not None:
        parser.error(problem)
    try:
        rates = given if args.rate else tuned_rates(arms, steps, output, task=args.task)
        runs = plan(rates, args.seeds, steps, output, args.task)
        if not args.report:
            finish(runs)
        finished = [run for run in runs if run.is_finished()]
        names = dict.fromkeys(run.arm for run in finished)
        looks = {arm: [read_looks(run.folder, run.steps) for run in finished if run.arm == arm] for arm in names}
    except (RunError, ValueError) as error:
        sys.exit(f"error: {error}")
    if not looks:
        sys.exit(f"error: no run in {output} is finished: leave --report out, and they are made")
    print(write_report(output, looks, args.level))


if __name__ == "__main__":
    main()
