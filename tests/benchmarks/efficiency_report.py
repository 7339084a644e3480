"""Tables and a picture of `fast_dapo_efficiency.py`'s runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Gains in accuracy on held-out learnable prompts.
TARGETS = (0.15, 0.20, 0.25)


def smoothed(history: Sequence[Mapping[str, Any]], place: int) -> float:
    """Mean accuracy of a look and the two before it."""
    return sum(entry["accuracy"] for entry in history[place - 2 : place + 1]) / 3


def at_target(result: Mapping[str, Any], gain: float, column: str) -> float:
    """`column` at the first look where the mean of the last three accuracies has gained this much; nan: never."""
    history = result["history"]
    for place in range(3, len(history)):
        if smoothed(history, place) >= history[0]["accuracy"] + gain:
            return float(history[place][column])
    return float("nan")


def area_under_curve(result: Mapping[str, Any], rollouts: float) -> float:
    """Mean gain in accuracy over the first rollouts, this many, in points."""
    history = result["history"]
    x = np.array([entry["rollouts"] for entry in history], dtype=float)
    y = 100 * (np.array([entry["accuracy"] for entry in history]) - history[0]["accuracy"])
    grid = np.linspace(0, rollouts, 512)
    return float(np.interp(grid, x, y).mean())


def ratio_after_first_epoch(result: Mapping[str, Any], num_prompts: int) -> float:
    """Rollouts generated per rollout trained on, from when as many prompts were screened as there are; nan: never."""
    history = result["history"]
    later = [entry for entry in history[1:] if entry["screened"] >= num_prompts]
    if len(later) < 2:
        return float("nan")
    return (later[-1]["rollouts"] - later[0]["rollouts"]) / (later[-1]["trained"] - later[0]["trained"])


def summarize(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per method, in order of appearance: means over its seeds."""
    methods = list(dict.fromkeys(result["job"]["method"] for result in results))
    budget = min(result["history"][-1]["rollouts"] for result in results)
    rows = []
    for method in methods:
        own = [result for result in results if result["job"]["method"] == method]
        row: dict[str, Any] = {
            "method": method,
            "learning_rate": own[0]["job"]["learning_rate"],
            "seeds": len(own),
            "generated_to_trained": sum(r["generated"] for r in own) / sum(r["trained"] for r in own),
            "informative_share": float(np.mean([r["informative_share"] for r in own])),
            "generation_share_of_seconds": float(np.mean([r["generation_share_of_seconds"] for r in own])),
            "predict_share_of_seconds": float(np.mean([r["predict_share_of_seconds"] for r in own])),
            "area_under_curve_points": float(np.mean([area_under_curve(r, budget) for r in own])),
            "area_budget_rollouts": budget,
        }
        for gain in TARGETS:
            for column in ("rollouts", "tokens", "seconds"):
                values = [at_target(result, gain, column) for result in own]
                row[f"{column}_to_{round(100 * gain)}"] = float(np.mean(values))  # nan if a seed never got there
                row[f"{column}_to_{round(100 * gain)}_by_seed"] = values
        rows.append(row)
    return rows


def render(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """A Markdown table; ratios are of mean rollouts to the last target."""
    by_method = {row["method"]: row for row in rows}
    last = f"rollouts_to_{round(100 * TARGETS[-1])}"
    head = ["method", "lr", *(f"+{round(100 * gain)}" for gain in TARGETS), "seeds", "tokens", "seconds"]
    head += ["x uniform", "x filter", "area", "gen/train", "informative", "generating"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [names[row["method"]], f"{row['learning_rate']:g}"]
        cells += [_thousands(row[f"rollouts_to_{round(100 * gain)}"]) for gain in TARGETS]
        cells.append(" / ".join(_thousands(value) for value in row[f"{last}_by_seed"]))
        cells += [
            _thousands(row[last.replace("rollouts", "tokens")]),
            f"{row[last.replace('rollouts', 'seconds')]:.0f}",
        ]
        for baseline in ("uniform_rloo", "filter_groups"):
            base = by_method.get(baseline, {}).get(last, float("nan"))
            cells.append(f"{base / row[last]:.2f}")
        cells += [f"{row['area_under_curve_points']:.1f}", f"{row['generated_to_trained']:.2f}"]
        cells += [f"{100 * row['informative_share']:.0f} %", f"{100 * row['generation_share_of_seconds']:.0f} %"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _thousands(value: float) -> str:
    return "never" if np.isnan(value) else f"{value / 1000:.1f}k"


def plot(results: Sequence[Mapping[str, Any]], names: Mapping[str, str], path: Path) -> None:
    """Accuracy over rollouts: one line per method (mean of its seeds), a thin one per seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for number, method in enumerate(dict.fromkeys(result["job"]["method"] for result in results)):
        own = [result["history"] for result in results if result["job"]["method"] == method]
        color = f"C{number}"
        for history in own:
            axes.plot(*_curve(history), color=color, alpha=0.25, linewidth=0.8)
        grid = np.linspace(0, min(history[-1]["rollouts"] for history in own), 200)
        mean = np.mean([np.interp(grid, *_curve(history, scale=1)) for history in own], axis=0)
        axes.plot(grid / 1000, mean, color=color, linewidth=2, label=names[method])
    axes.set_xlabel("rollouts generated (thousands)")
    axes.set_ylabel("pass@1 on held-out learnable prompts (%)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def _curve(history: Sequence[Mapping[str, Any]], scale: float = 1000) -> tuple[list[float], list[float]]:
    return [entry["rollouts"] / scale for entry in history], [100 * entry["accuracy"] for entry in history]


def write_report(
    folder: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]], names: Mapping[str, str], num_prompts: int
) -> str:
    """Write results.json, results.md and curves.png into `folder`; returns the text."""
    tuned = summarize(tables["tuned"])
    parts = ["Rollouts to a gain in accuracy, each method at its own learning rate:", render(tuned, names)]
    summary: dict[str, Any] = {"tuned": tuned}
    if tables["equal"]:
        summary["equal_rate"] = summarize(tables["equal"])
        parts += ["The same at one learning rate:", render(summary["equal_rate"], names)]
    ratios = [
        {
            "method": result["job"]["method"],
            "pool": result["job"]["pool"],
            "generated_to_trained": ratio_after_first_epoch(result, num_prompts),
            "predict_share_of_seconds": result["predict_share_of_seconds"],
        }
        for result in tables["ratio"]
    ]
    summary["after_first_epoch"] = ratios
    parts.append("Generated per trained rollout after the first epoch:")
    parts.append(
        "\n".join(f"- pool {r['pool']}, {names[r['method']]}: {r['generated_to_trained']:.2f}" for r in ratios)
    )
    for result in tables["ratio"]:
        if result["reliability"]:
            parts.append(f"Calibration, pool {result['job']['pool']}, {names[result['job']['method']]}:")
            lines = ["| predicted | observed | rollouts |", "|---|---|---|"]
            lines += [
                f"| {r['predicted']:.3f} | {r['observed']:.3f} | {r['rollouts']:.0f} |" for r in result["reliability"]
            ]
            parts.append("\n".join(lines))
    text = "\n\n".join(parts) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(text, encoding="utf-8")
    plot(tables["tuned"], names, folder / "curves.png")
    return text
