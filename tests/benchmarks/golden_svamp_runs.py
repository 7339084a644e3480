"""SmolLM2-135M on the equations of SVAMP's problems by golden redaction, and what it then answers to other problems.

    python tests/benchmarks/golden_svamp_runs.py --dry-run          # the command, and whether the run is finished
    python tests/benchmarks/golden_svamp_runs.py                    # about an hour; an interrupted run resumes
    python tests/benchmarks/golden_svamp_runs.py --report           # of the finished run

Needs `make demo-real-data`, and the data set with its solutions:

    python -m data_preprocess.svamp --input svamp.json --solutions --local_save_dir outputs/data/svamp_solutions

The run is the experiment `smollm2_golden_cpu`: 30 updates of 4 states, of 16 problems. It is evaluated like the runs of
`svamp_runs.py`: the 300 held-out problems, 8 answers each.

PREDICTION, before the first run: 97 % of the labelled tokens move as intended, half of the problems reach their whole
solution, and avg@8 rises from .032 to .06, mostly by the form of the answer: sixteen problems are few to learn from
which calculation a question asks for.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from svamp_report import Evaluation, cell, read_evaluation
from svamp_runs import MODEL, NEEDED, OUTPUT, evaluate
from whole_runs import ROOT, RunError, WholeRun, finish, missing_files

from verl_ext.evaluation.statistics.estimates import bootstrap_mean
from verl_ext.run.run_folder import RunFolder

SOLUTIONS = {"outputs/data/svamp_solutions/svamp.parquet": "svamp --solutions"}


@dataclass(frozen=True)
class Run(WholeRun):
    """The run.

    Attributes:
        steps: Its length.
        output: The benchmark's folder, with the untrained model's evaluation.
    """

    program: ClassVar[str] = "recipe.golden_redaction.main"

    steps: int
    output: Path

    @property
    def folder(self) -> Path:
        """The run folder: metrics, checkpoints, summary."""
        return self.output / "golden"

    @property
    def evaluation(self) -> Path:
        """The folder of the final evaluation."""
        return self.folder / "evaluation"

    def overrides(self) -> list[str]:
        """What follows the program's name."""
        return [
            "+backend=cpu",
            "+experiment=smollm2_golden_cpu",
            f"run_dir={self.folder}",
            f"trainer.total_training_steps={self.steps}",
            f"trainer.save_freq={min(10, self.steps)}",
        ]


def render(summary: dict[str, Any], untrained: Evaluation, trained: Evaluation) -> str:
    """What the run did, and its evaluation, as Markdown."""
    lines = [f"- {title}: {text}" for title, text in summary["findings"]]
    lines.append(
        f"- {summary['global_steps']} steps, {summary['rollouts_generated']:,} rollouts, {summary['seconds']:,.0f} s"
    )
    rise = bootstrap_mean(100 * np.subtract(trained.average_P, untrained.average_P))
    rows = [
        ("untrained", untrained, ""),
        ("after golden redaction", trained, cell(asdict(rise), "+.1f")),
    ]
    lines += ["", "| | avg@8 | rise, points | pass@8 |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {cell(asdict(bootstrap_mean(found.average_P)), '.3f')} | {points} | {np.mean(found.any_P):.3f} |"
        for name, found, points in rows
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--dry-run", action="store_true", help="print the command")
    parser.add_argument("--report", action="store_true", help="report the finished run and start none")
    args = parser.parse_args(argv)
    run = Run(args.steps, args.output.resolve())
    if args.dry_run:
        print(run.describe())
        return
    untrained = run.output / "untrained"
    try:
        if not args.report:
            needed = NEEDED | SOLUTIONS
            if (problem := missing_files(ROOT, needed, "this script's --help")) is not None:
                sys.exit(f"error: {problem}")
            evaluate(MODEL, untrained)
            finish([run])
            evaluate(str(run.folder / f"checkpoints/global_step_{run.steps}"), run.evaluation)
    except RunError as error:
        sys.exit(f"error: {error}")
    summary = RunFolder(run.folder).read_summary()
    if summary is None or not (run.evaluation / "result.json").exists():
        sys.exit(f"error: the run in {run.folder} is not finished and evaluated: leave --report out, and it is made")
    print(render(summary, read_evaluation(untrained), read_evaluation(run.evaluation)))


if __name__ == "__main__":
    main()
