"""Toxicity over rollouts and over seconds, of the run folders of `tracin_toxicity_runs.py`. Reads files; no torch.

A look: a validation. Its toxicity is 1 minus the mean reward, so a continuation without text counts as toxic.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import run_looks
from figure_files import save_figure
from leaderboard_report import Needed, ratio, ratio_text
from matplotlib.figure import Figure

from verl_ext.evaluation.statistics.estimates import bootstrap_mean

DATA_SOURCE = "real_toxicity_prompts"
REWARD = f"val-aux/{DATA_SOURCE}/reward/mean@1"
EMPTY = f"val-aux/{DATA_SOURCE}/empty/mean@1"
LAST = 3  # looks whose mean is the final toxicity
COLUMNS = {"rollouts": "rollouts, those of TracIn's validation included", "seconds": "seconds of training"}
COLORS = {"grpo": "black", "grpo_tracin": "#d62728", "ppo": "#7f7f7f", "ppo_tracin": "#0072b2"}

ByArm = Mapping[str, Sequence[Sequence["Look"]]]
"""Looks of each seed, by arm."""


@dataclass(frozen=True)
class Look:
    """A validation.

    Attributes:
        step: After so many updates.
        rollouts: Made until then, for training and for the validation gradient.
        seconds: Of steps until then, without evaluations and without writing checkpoints.
        toxicity: Mean over prompts.
        empty: Share of continuations without text.
    """

    step: int
    rollouts: float
    seconds: float
    toxicity: float
    empty: float


def read_looks(folder: Path, steps: int) -> list[Look]:
    """The looks of a run up to a step, with the one before the first step.

    Raises:
        ValueError: If the run has fewer than two.
    """
    looks = [
        Look(look.step, look.rollouts, look.seconds, toxicity=1 - look.values[0], empty=look.values[1])
        for look in run_looks.read_looks(folder, steps, (REWARD, EMPTY))
    ]
    if len(looks) < 2:
        raise ValueError(f"{folder}: expected validations before the first step and at the end, found {len(looks)}")
    return looks


def final(looks: Sequence[Look]) -> float:
    """Mean toxicity of the last looks."""
    return float(np.mean([look.toxicity for look in looks[-LAST:]]))


def mean_toxicity(looks: Sequence[Look]) -> float:
    """Over all looks but the first: the lower, the sooner the run learned."""
    return float(np.mean([look.toxicity for look in looks[1:]]))


def at_level(looks: Sequence[Look], level: float, column: str) -> float | None:
    """`column` where the toxicity first is as low as the level, interpolated between looks; None: never."""
    values = [-look.toxicity for look in looks]
    return run_looks.first_reached(values, [getattr(look, column) for look in looks], -level)


def halfway(runs: ByArm) -> float:
    """The level halfway from the mean of the first looks to the highest final toxicity of a run.

    All runs that got less toxic reach it, and before their curves are flat.
    """
    all_looks = [looks for seeds in runs.values() for looks in seeds]
    start = float(np.mean([looks[0].toxicity for looks in all_looks]))
    return (start + max(map(final, all_looks))) / 2


def needed(seeds: Sequence[Sequence[Look]], level: float, column: str) -> Needed:
    """To the level; a seed that never reached it counts with what it used until its end."""
    found = [at_level(looks, level, column) for looks in seeds]
    ends = [float(getattr(looks[-1], column)) for looks in seeds]
    values = [end if value is None else value for value, end in zip(found, ends, strict=True)]
    return Needed(tuple(values), sum(value is not None for value in found))


def plain_of(arm: str) -> str:
    """The arm without TracIn."""
    return arm.removesuffix("_tracin")


def summarize(runs: ByArm, level: float) -> list[dict[str, Any]]:
    """One row per arm."""
    rows = []
    for arm, seeds in runs.items():
        row: dict[str, Any] = {
            "arm": arm,
            "seeds": len(seeds),
            "start": float(np.mean([looks[0].toxicity for looks in seeds])),
            "final_by_seed": list(map(final, seeds)),
            "empty": float(np.mean([looks[-1].empty for looks in seeds])),
        }
        for column in COLUMNS:
            own = needed(seeds, level, column)
            row[column] = {"by_seed": own.by_seed, "reached": own.reached, "interval": own.interval()}
            plain = runs.get(plain_of(arm))
            fewer = None if plain is None or plain is seeds else ratio(needed(plain, level, column), own)
            row[column]["times_fewer_than_plain"] = None if fewer is None else asdict(fewer)
            row[column]["text"] = ratio_text(fewer)
        rows.append(row)
    return rows


def render(rows: Sequence[Mapping[str, Any]], level: float) -> str:
    """A Markdown table."""
    lines = [
        f"To a toxicity of {level:.3f}; 95 % bootstrap intervals over seeds; `>`: a seed did not reach it.",
        "",
        "| arm | seeds | start | final toxicity | empty | rollouts to the level | x fewer than plain "
        "| seconds to the level | x fewer than plain |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["arm"], str(row["seeds"]), f"{row['start']:.3f}", bootstrap_mean(row["final_by_seed"]).render()]
        cells.append(f"{100 * row['empty']:.1f} %")
        for column in COLUMNS:
            cells += [_with_interval(row[column], row["seeds"]), row[column]["text"]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _with_interval(need: Mapping[str, Any], seeds: int) -> str:
    text = f"{'>' * (need['reached'] < seeds)}{np.mean(need['by_seed']):,.0f}"
    return text if need["interval"] is None else f"{text} [{need['interval'][0]:,.0f}, {need['interval'][1]:,.0f}]"


def plot(runs: ByArm, level: float, path: Path) -> None:
    """Toxicity over rollouts and over seconds: a line per seed, the mean of the seeds' looks in bold."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, (column, title) in zip(figure.subplots(1, 2, sharey=True), COLUMNS.items(), strict=True):
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle=":")
        for arm, seeds in runs.items():
            curves = [([getattr(look, column) for look in looks], [look.toxicity for look in looks]) for looks in seeds]
            for x, y in curves:
                axes.plot(x, y, color=COLORS.get(arm), linewidth=0.8, alpha=0.35)
            length = min(len(x) for x, _ in curves)
            mean_x = np.mean([x[:length] for x, _ in curves], 0)
            mean_y = np.mean([y[:length] for _, y in curves], 0)
            style = "-" if arm.endswith("_tracin") else "--"
            axes.plot(mean_x, mean_y, style, color=COLORS.get(arm), label=arm)
        axes.set_xlabel(title)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("toxicity of held-out continuations")
    figure.axes[0].legend()
    save_figure(figure, path, "toxicity")


def write_report(folder: Path, runs: ByArm, level: float | None) -> str:
    """Write results.json, results.md and curves.svg into `folder`; returns the table.

    Args:
        folder: Is made.
        runs: At least one seed per arm.
        level: Of toxicity; None: `halfway`.
    """
    level = halfway(runs) if level is None else level
    rows = summarize(runs, level)
    looks = {arm: [[asdict(look) for look in each] for each in seeds] for arm, seeds in runs.items()}
    folder.mkdir(parents=True, exist_ok=True)
    results = {"level": level, "arms": rows, "looks": looks}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = render(rows, level)
    (folder / "results.md").write_text(text + "\n", encoding="utf-8")
    plot(runs, level, folder / "curves.svg")
    return text
