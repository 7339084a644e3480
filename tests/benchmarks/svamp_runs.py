"""SmolLM2-135M on SVAMP, whole runs: uniform sampling, verl's filter_groups and ours, at equal rollouts.

    python tests/benchmarks/svamp_runs.py --dry-run                 # the commands, and which of them are finished
    python tests/benchmarks/svamp_runs.py                           # all arms; 45 to 75 minutes each
    python tests/benchmarks/svamp_runs.py --arms uniform_8 --seed 1 --rate 1.5e-4
    python tests/benchmarks/svamp_runs.py --report --level .11      # of the finished runs
    python tests/benchmarks/svamp_runs.py --report --seed 0 1 --rate default 1.5e-4

Needs `make demo-real-data`; and two_phase_chosen the states:

    python -m data_preprocess.prompt_states --model outputs/models/smollm2_135m --components 32 \
        --input outputs/data/svamp/svamp.parquet --local_save_dir outputs/data/svamp_states

Each run is `python -m recipe.fast_dapo.main +backend=cpu +experiment=smollm2_svamp_cpu` in a separate run folder, with

    two_phase        as the experiment is: 8 prompts of 4 + 4 rollouts, of 48 screened at a time
    two_phase_long   the same for 45 steps, three quarters of uniform_4's seconds
    two_phase_chosen as two_phase, and the 48 are chosen by their posterior, with the model's states as features
    choose           the recipe's default: 128 prompts of 2 rollouts, and 2 more if these differ
    uniform_4, _8, _16   +signal=plain: rollouts per prompt, 256 per batch
    uniform_8_small  the same with 64 per batch
    filter_groups    verl's dynamic sampling: 8 prompts of 8 rollouts with mixed results
    filter_groups_4  the same with 8 prompts of 4

All make two updates per batch, with RLOO (choose: its posterior baseline) at the experiment's rate. Each but
two_phase_long has as many steps as it was expected to take for about 5,000 rollouts. Runs end with
`recipe.fast_dapo.evaluate`: the 300 held-out problems, 8 answers each. During a run, 2 answers per problem are
evaluated four times. Neither counts as rollouts or as seconds, and nor do start-up and checkpoints. Finished runs are
skipped, and interrupted ones resume. A processor without bfloat16 computes in float32,
and one that has it with --float32, in other run folders.

PREDICTION, written before the first run of this script; `make demo-real`, with two phases, had ended at .141 after
6,932 rollouts. At 4,600, the budget of then: two_phase .13, choose .13, filter_groups .12, uniform_4 .115,
uniform_8 .11, uniform_16 .10. two_phase in fewer seconds than uniform_8, as it trains on 30 % of what it generates. A
prompt's group is mixed once in seven times at 4 rollouts, and of these rollouts two_phase trains on 160 mixed groups
of 8, uniform_8 on about 115, uniform_4 on about 170 of half the size. So the aim, half as many rollouts as the best
uniform arm for the same accuracy, is not expected to be met.

The uniform arms of then had 64 rollouts per batch. The first of them, now uniform_8_small, ended at .067: in the end
its answer to every question is 1. It made four times as many updates as two_phase, few of them with more than one
mixed group. So uniform arms and `choose` now have batches of 256, and with them as many updates as two_phase. Predicted
for these, at 5,100 rollouts: uniform_8 .105, uniform_4 and uniform_16 .10.

two_phase_chosen came after two_phase, uniform_8 and filter_groups were level: at equal rollouts, all three train on as
many mixed groups. By `svamp_features.py`, with the states 20 to 25 % of the screenings should be mixed instead of 14 %.
Predicted: 28 steps in 5,000 rollouts, .13; .11 after 1,900 rollouts, with 1.5 times fewer than two_phase.

Half the rate, `--seed 1 --rate 1.5e-4`, because all arms end level with little entropy left. Predicted: with 40 updates
two_phase .095, filter_groups .10, uniform_8 .10, all with an entropy above .2 nats and still rising: the experiment's
rate is the better one for all three.

uniform_4 ended at .139 in 5,120 rollouts, after 4,369 seconds; two_phase at .113 after 1,832. two_phase_long, with
`--seed 1`, is predicted at .14.

filter_groups_4 is uniform_4 without training on groups that have no signal: as many mixed groups per update. Predicted:
.135, after 2,000 seconds. If so, groups of 4 are what the accuracy comes from, and two_phase's continuations are spent
on prompts that have already said what they can.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar

from svamp_report import LOOK_SAMPLES, Outcome, read_outcome, write_report
from whole_runs import ROOT, RunError, WholeRun, execute, finish, missing_files

from verl_ext.launch.preflight.machine import IN_FLOAT32, has_bfloat16

OUTPUT = ROOT / "outputs/benchmarks/svamp"
MODEL, HELD_OUT = "outputs/models/smollm2_135m", "outputs/data/svamp/svamp_test.parquet"
STATES = "outputs/data/svamp_states/svamp.parquet"
NEEDED = {f"{MODEL}/config.json": "pretrained_model", HELD_OUT: "svamp"}
EVALUATION = ("--n", "8", "--k", "1", "8", "--temperature", "0.7", "--max_response_length", "40")
LOOKS = 4


@dataclass(frozen=True)
class Arm:
    """A method with its settings.

    Attributes:
        settings: Hydra overrides.
        steps: In which it was expected to generate about 5,000 rollouts.
    """

    settings: tuple[str, ...]
    steps: int


def uniform(prompts: int, rollouts: int, *more: str) -> tuple[str, ...]:
    """Batches without a curriculum, two updates each."""
    return (
        "+signal=plain",
        f"data.train_batch_size={prompts}",
        f"actor_rollout_ref.rollout.n={rollouts}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 2}",
        *(more or ("data.gen_batch_size=null",)),
    )


CHOOSE = (
    "curriculum.schedule=streaming",
    "curriculum.predictor=posterior",
    "curriculum.baseline=posterior",
    "curriculum.train_on=all",
    "algorithm.adv_estimator=posterior",
    "data.train_batch_size=128",
    "data.gen_batch_size=128",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.n_continue=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
)
# filter_groups: verl asks for one prompt at a time until the batch is complete.
FILTER = ("data.gen_batch_size=1", "algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc")
ARMS = {
    "two_phase": Arm((), 20),
    "two_phase_long": Arm((), 45),
    "two_phase_chosen": Arm(("curriculum.predictor=posterior", f"data.train_files={STATES}"), 28),
    "choose": Arm(CHOOSE, 17),
    "uniform_4": Arm(uniform(64, 4), 20),
    "uniform_8": Arm(uniform(32, 8), 20),
    "uniform_16": Arm(uniform(16, 16), 20),
    "uniform_8_small": Arm(uniform(8, 8), 78),
    "filter_groups": Arm(uniform(8, 8, *FILTER), 17),
    "filter_groups_4": Arm(uniform(8, 4, *FILTER), 22),
}


@dataclass(frozen=True)
class Run(WholeRun):
    """One of the runs.

    Attributes:
        arm: Of `ARMS`.
        seed: Of the order of the data; vLLM is not seeded.
        steps: Its length.
        output: The benchmark's folder.
        rate: Learning rate; None: the experiment's.
        float32: Also on a processor with bfloat16.
    """

    program: ClassVar[str] = "recipe.fast_dapo.main"

    arm: str
    seed: int
    steps: int
    output: Path
    rate: float | None = None
    float32: bool = False

    @property
    def folder(self) -> Path:
        """The run folder: metrics, checkpoints, summary."""
        with_rate = "" if self.rate is None else f"_rate{self.rate:g}"
        precision = "_float32" if self.float32 else ""
        return self.output / "runs" / f"{self.arm}_seed{self.seed}{with_rate}{precision}"

    @property
    def evaluation(self) -> Path:
        """The folder of the final evaluation."""
        return self.folder / "evaluation"

    def overrides(self) -> list[str]:
        """What follows the program's name."""
        every = -(-self.steps // LOOKS)
        return [
            "+backend=cpu",
            "+experiment=smollm2_svamp_cpu",
            *ARMS[self.arm].settings,
            f"run_dir={self.folder}",
            f"trainer.total_training_steps={self.steps}",
            f"trainer.test_freq={every}",
            f"trainer.save_freq={every}",
            # The untrained model is evaluated once for all arms.
            "trainer.val_before_train=false",
            "data.val_max_samples=-1",
            f"actor_rollout_ref.rollout.val_kwargs.n={LOOK_SAMPLES}",
            f"data.seed={self.seed}",
            *([] if self.rate is None else [f"actor_rollout_ref.actor.optim.lr={self.rate:g}"]),
            *(f"{name}={value}" for name, value in IN_FLOAT32.items() if self.float32 or not has_bfloat16()),
        ]


def evaluate(model: str, output: Path) -> None:
    """Run `recipe.fast_dapo.evaluate` unless its result is there; it continues its samples.

    Raises:
        RunError: It failed or was interrupted.
    """
    if (output / "result.json").exists():
        return
    print(f"evaluation of {model}", flush=True)
    options = ["--model", model, "--data", HELD_OUT, *EVALUATION, "--output", str(output)]
    log = output.with_name(f"{output.name}.log")
    status = execute(["python", "-m", "recipe.fast_dapo.evaluate", *options], log)
    if status != 0:
        raise RunError(f"the evaluation of {model} ended with status {status}: {log} says why")


def title(run: Run, seed: int, rate: float | None) -> str:
    """Of the run in a report whose first seed and rate are these: its arm, and what else differs."""
    with_seed = "" if run.seed == seed else f", seed {run.seed}"
    with_rate = "" if run.rate == rate else f", rate {'default' if run.rate is None else f'{run.rate:g}'}"
    return run.arm + with_seed + with_rate


def outcomes(runs: Sequence[Run], base: Path) -> dict[str, Outcome]:
    """By title, of the runs that are finished and evaluated; the first run has the report's first seed and rate."""
    done = [run for run in runs if run.is_finished() and (run.evaluation / "result.json").exists()]
    first = runs[0]
    return {
        title(run, first.seed, first.rate): read_outcome(run.folder, run.evaluation, base, run.steps) for run in done
    }


def learning_rate(text: str) -> float | None:
    """Of the command line; None for the experiment's."""
    return None if text == "default" else float(text)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="runs of each; default: 0")
    parser.add_argument(
        "--rate", type=learning_rate, nargs="+", default=[None], help="learning rates; `default`: the experiment's"
    )
    parser.add_argument(
        "--float32", action="store_true", help="also on a processor with bfloat16: to compare with one without"
    )
    parser.add_argument("--steps", type=int, help="of every arm, for a try; default: each arm's own")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    parser.add_argument("--level", type=float, help="accuracy; default: halfway to the lowest at the end of a run")
    parser.add_argument("--report", action="store_true", help="report the finished runs and start none")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    args = parse(argv)
    output = args.output.resolve()
    runs = [
        Run(arm, seed, args.steps or ARMS[arm].steps, output, rate, args.float32)
        for seed, rate, arm in product(args.seed, args.rate, args.arms)
    ]
    if args.dry_run:
        print("\n".join(run.describe() for run in runs))
        return
    base = output / "untrained"
    try:
        if not args.report:
            needed = NEEDED | ({STATES: "prompt_states"} if "two_phase_chosen" in args.arms else {})
            if (problem := missing_files(ROOT, needed, "this script's --help")) is not None:
                sys.exit(f"error: {problem}")
            evaluate(MODEL, base)
            for run in runs:
                finish([run])
                evaluate(str(run.folder / f"checkpoints/global_step_{run.steps}"), run.evaluation)
        found = outcomes(runs, base)
    except RunError as error:
        sys.exit(f"error: {error}")
    if not found:
        sys.exit(f"error: no run in {output} is finished and evaluated: leave --report out, and they are made")
    print(write_report(output, found, args.level))


if __name__ == "__main__":
    main()
