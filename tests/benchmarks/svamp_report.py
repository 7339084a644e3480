"""Accuracy over rollouts and over seconds, of the run folders of `svamp_runs.py`. Reads files; no torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figure_files import save_figure
from matplotlib.figure import Figure
from run_looks import Look, first_reached, read_looks

from verl_ext.evaluation.statistics.estimates import Estimate, bootstrap_mean
from verl_ext.run.run_folder import RunFolder

LOOK_SAMPLES = 2  # per problem, during a run
ACCURACY = f"val-core/svamp/acc/mean@{LOOK_SAMPLES}"
REFERENCE = "two_phase"  # with which the others are compared
AVERAGE, ANY = "avg@8", "pass@8"
COLORS = {
    "two_phase": "#d62728",
    "two_phase_long": "#8c2d04",
    "two_phase_chosen": "#e377c2",
    "choose": "#ff7f0e",
    "uniform_4": "#999999",
    "uniform_8": "#555555",
    "uniform_16": "black",
    "uniform_8_small": "#cccccc",
    "filter_groups": "#0072b2",
    "filter_groups_4": "#56b4e9",
}


@dataclass(frozen=True)
class Evaluation:
    """Of the held-out problems, the same and in the same order for all arms.

    Attributes:
        average_P: Share of right answers, by problem.
        any_P: Whether one answer is right, by problem.
    """

    average_P: tuple[float, ...]
    any_P: tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        looks: The untrained model's evaluation, then the run's own ones.
        untrained: Final evaluation of the model before training.
        trained: And after it.
        rollouts_trained: On which updates were made.
    """

    looks: tuple[Look, ...]
    untrained: Evaluation
    trained: Evaluation
    rollouts_trained: int

    @property
    def last(self) -> Look:
        """At the end of training."""
        return self.looks[-1]


def read_evaluation(folder: Path) -> Evaluation:
    """A result of `recipe.fast_dapo.evaluate` on one file."""
    (data_set,) = json.loads((folder / "result.json").read_text(encoding="utf-8"))["data_sets"]
    prompts = sorted(data_set["prompts"], key=lambda prompt: prompt["index"])
    return Evaluation(*(tuple(prompt[name] for prompt in prompts) for name in (AVERAGE, ANY)))


def read_outcome(folder: Path, evaluation: Path, untrained: Path, steps: int) -> Outcome:
    """A run's files.

    Args:
        folder: The run folder.
        evaluation: Folder of the final evaluation.
        untrained: Folder of the evaluation before training.
        steps: Of the run.

    Raises:
        ValueError: If the run was not evaluated at its end.
    """
    before, summary = read_evaluation(untrained), RunFolder(folder).read_summary()
    looks = read_looks(folder, steps, [ACCURACY])
    if not looks or looks[-1].step != steps or summary is None:
        raise ValueError(f"{folder}: expected a summary and a validation after step {steps}")
    first = Look(0, 0, 0.0, (float(np.mean(before.average_P)),))
    return Outcome((first, *looks), before, read_evaluation(evaluation), summary["rollouts_trained"])


def halfway(outcomes: Mapping[str, Outcome]) -> float:
    """Accuracy halfway from the untrained model to the lowest of the last looks: all runs reach it."""
    start = next(iter(outcomes.values())).looks[0].values[0]
    return (start + min(outcome.last.values[0] for outcome in outcomes.values())) / 2


def difference(outcome: Outcome, reference: Outcome) -> Estimate:
    """In points of avg@8; the problems are resampled, each with both runs' answers."""
    return bootstrap_mean(100 * np.subtract(outcome.trained.average_P, reference.trained.average_P))


def summarize(outcomes: Mapping[str, Outcome], level: float) -> list[dict[str, Any]]:
    """One row per arm."""
    rows = []
    for arm, outcome in outcomes.items():
        accuracies = [look.values[0] for look in outcome.looks]
        row: dict[str, Any] = {
            "arm": arm,
            "steps": outcome.last.step,
            "rollouts": outcome.last.rollouts,
            "rollouts_trained": outcome.rollouts_trained,
            "seconds": outcome.last.seconds,
            "avg@8": asdict(bootstrap_mean(outcome.trained.average_P)),
            "pass@8": float(np.mean(outcome.trained.any_P)),
            "rollouts_to_level": first_reached(accuracies, [look.rollouts for look in outcome.looks], level),
            "seconds_to_level": first_reached(accuracies, [look.seconds for look in outcome.looks], level),
        }
        if REFERENCE in outcomes and arm != REFERENCE:
            row["minus_reference"] = asdict(difference(outcome, outcomes[REFERENCE]))
        rows.append(row)
    return rows


def cell(estimate: Mapping[str, float] | None, form: str) -> str:
    """A mean with its interval, in a table; nothing for None."""
    if estimate is None:
        return ""
    if estimate["low"] is None:
        return f"{estimate['value']:{form}}"
    return f"{estimate['value']:{form}} [{estimate['low']:{form}}, {estimate['high']:{form}}]"


def render(rows: Sequence[Mapping[str, Any]], untrained: Evaluation, level: float) -> str:
    """A Markdown table."""
    lines = [
        f"Untrained: avg@8 {cell(asdict(bootstrap_mean(untrained.average_P)), '.3f')}, pass@8 "
        f"{np.mean(untrained.any_P):.3f}. 95 % bootstrap intervals over problems. Level: {level:.3f}.",
        "",
        f"| arm | steps | rollouts generated | trained on | seconds | avg@8 | minus {REFERENCE}, points | pass@8 "
        "| rollouts to the level | seconds to the level |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        needed = [row["rollouts_to_level"], row["seconds_to_level"]]
        cells = [row["arm"], str(row["steps"])]
        cells += [f"{row[name]:,.0f}" for name in ("rollouts", "rollouts_trained", "seconds")]
        cells += [cell(row["avg@8"], ".3f"), cell(row.get("minus_reference"), "+.1f"), f"{row['pass@8']:.3f}"]
        cells += ["not reached" if value is None else f"{value:,.0f}" for value in needed]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(outcomes: Mapping[str, Outcome], level: float, path: Path) -> None:
    """Accuracy over rollouts and over seconds; the final evaluation with its interval as the last mark."""
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for axes, column in zip(figure.subplots(1, 2, sharey=True), ("rollouts", "seconds"), strict=True):
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle=":")
        for title, outcome in outcomes.items():
            arm, *other_settings = title.split(", ")
            x, y = [getattr(look, column) for look in outcome.looks], [look.values[0] for look in outcome.looks]
            style = "--" if other_settings else "-"
            axes.plot(x, y, color=COLORS.get(arm), linestyle=style, linewidth=1.2, label=title)
            final = bootstrap_mean(outcome.trained.average_P)
            if final.low is not None and final.high is not None:
                error = [[final.value - final.low], [final.high - final.value]]
                axes.errorbar(x[-1:], [final.value], error, fmt="o", color=COLORS.get(arm), capsize=3)
        axes.set_xlabel({"rollouts": "rollouts generated", "seconds": "seconds of training"}[column])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("right answers to held-out problems")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    save_figure(figure, path, "svamp")


def write_report(folder: Path, outcomes: Mapping[str, Outcome], level: float | None = None) -> str:
    """Write results.json, results.md and curves.svg into `folder`; returns the table.

    Args:
        folder: Is made.
        outcomes: By arm, with `, seed 1` and the like where runs of the same arm differ; at least one.
        level: Of accuracy; None: `halfway`.
    """
    level = halfway(outcomes) if level is None else level
    rows = summarize(outcomes, level)
    folder.mkdir(parents=True, exist_ok=True)
    looks = {arm: [asdict(look) for look in outcome.looks] for arm, outcome in outcomes.items()}
    results = {"level": level, "arms": rows, "looks": looks}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = render(rows, next(iter(outcomes.values())).untrained, level)
    (folder / "results.md").write_text(text + "\n", encoding="utf-8")
    plot(outcomes, level, folder / "curves.svg")
    return text
