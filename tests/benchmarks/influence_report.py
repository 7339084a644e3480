"""Tables and a picture of `tracin_utility.py`'s runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FINAL_LOOKS = 3  # whose mean is the final accuracy


def final_accuracy(result: Mapping[str, Any]) -> float:
    return float(np.mean([look["accuracy"] for look in result["history"][-FINAL_LOOKS:]]))


def accuracy_at(result: Mapping[str, Any], total_rollouts: float) -> float:
    """Accuracy after this many rollouts of both kinds, linearly interpolated between looks.

    Each look stands for the mean of the last `FINAL_LOOKS`, as in `final_accuracy`.
    """
    history = result["history"]
    x = [look["total_rollouts"] for look in history]
    y = [
        float(np.mean([look["accuracy"] for look in history[max(0, n - FINAL_LOOKS) : n]]))
        for n in range(1, len(x) + 1)
    ]
    return float(np.interp(total_rollouts, x, y))


def summarize(results: Sequence[Mapping[str, Any]], baseline: str = "grpo") -> list[dict[str, Any]]:
    """One row per method: means over its seeds, standard errors, and differences from the baseline's same seeds."""
    budget = min(result["history"][-1]["total_rollouts"] for result in results)
    by_seed = {(r["job"]["method"], r["job"]["seed"]): r for r in results}
    rows = []
    for method in dict.fromkeys(result["job"]["method"] for result in results):
        own = [result for result in results if result["job"]["method"] == method]
        finals = [final_accuracy(result) for result in own]
        row: dict[str, Any] = {
            "method": method,
            "learning_rate": own[0]["job"]["learning_rate"],
            "seeds": len(own),
            "start": float(np.mean([result["history"][0]["accuracy"] for result in own])),
            "final": float(np.mean(finals)),
            "final_se": _standard_error(finals),
            "final_by_seed": finals,
            "at_equal_total": float(np.mean([accuracy_at(result, budget) for result in own])),
            "equal_total_rollouts": budget,
            "total_rollouts": float(np.mean([result["history"][-1]["total_rollouts"] for result in own])),
            "seconds": float(np.mean([result["seconds"] for result in own])),
            "curve": _curve(own),
        }
        if all((baseline, result["job"]["seed"]) in by_seed for result in own):
            gains = [final_accuracy(r) - final_accuracy(by_seed[baseline, r["job"]["seed"]]) for r in own]
            row |= {"gain": float(np.mean(gains)), "gain_se": _standard_error(gains)}
        for part in ("samples", "gradients"):
            for name in own[0][part]:
                values = [result[part].get(name, float("nan")) for result in own]
                # The least convincing seed's p-value.
                row[name] = float(max(values) if name.startswith("p_") else np.mean(values))
        rows.append(row)
    return rows


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _curve(own: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Mean accuracy by training rollouts."""
    looks = zip(*(result["history"] for result in own), strict=True)
    return {look[0]["rollouts"]: float(np.mean([entry["accuracy"] for entry in look])) for look in looks}


def render_learning(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """Accuracy, as a Markdown table."""
    last = max(rows[0]["curve"])
    marks = [min(rows[0]["curve"], key=lambda rollouts: abs(rollouts - share * last)) for share in (1 / 3, 2 / 3)]
    head = ["method", "lr", "seeds", "start", *(f"{mark:,} rollouts" for mark in marks), "final", "against GRPO"]
    head += ["at equal total", "rollouts in all", "kept", "informative kept", "reversed among those"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [names[row["method"]], f"{row['learning_rate']:g}", str(row["seeds"]), _share(row["start"])]
        cells += [_share(row["curve"][mark]) for mark in marks]
        several = row["seeds"] > 1
        cells += [_share(row["final"]) + (f" ± {_share(row['final_se'])}" if several else "")]
        cells += [_points(row["gain"]) + (f" ± {100 * row['gain_se']:.1f}" if several else "") if "gain" in row else ""]
        cells += [_share(row["at_equal_total"]), f"{row['total_rollouts']:,.0f}"]
        cells += [f"{100 * row[name]:.0f} %" for name in ("selection_ratio", "informative_kept", "flipped_among_kept")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def render_scores(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """How well scores identify reversed rewards, as a Markdown table."""
    head = ["method", "AUROC, all", "informative", "p", "learnable groups", "reported 1", "reported 0"]
    head += ["positive: reversed", "positive: true", "G: halves", "G: exact"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        if "auroc_all" not in row:
            continue
        cells = [names[row["method"]], _share(row["auroc_all"]), _share(row["auroc_informative"])]
        cells += [f"{row['p_informative']:.0e}"]
        cells += [_share(row[f"auroc_{name}"]) for name in ("learnable", "reported_1", "reported_0")]
        cells += [f"{100 * row[f'positive_share_{name}']:.0f} %" for name in ("flipped", "unflipped")]
        cells += [f"{row[name]:.2f}" if name in row else "" for name in ("half_agreement", "exact_agreement")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def render_tuning(tuning: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """Mean final accuracy by learning rate, as a Markdown table."""
    rates = sorted({result["job"]["learning_rate"] for result in tuning})
    by_rate: dict[tuple[str, float], list[float]] = {}
    for result in tuning:
        job = result["job"]
        by_rate.setdefault((job["method"], job["learning_rate"]), []).append(final_accuracy(result))
    accuracy = {key: float(np.mean(values)) for key, values in by_rate.items()}
    lines = ["| method | " + " | ".join(f"{rate:g}" for rate in rates) + " |", "|" + "---|" * (len(rates) + 1)]
    for method in dict.fromkeys(method for method, _ in accuracy):
        cells = [_share(accuracy[method, rate]) if (method, rate) in accuracy else "" for rate in rates]
        lines.append(f"| {names[method]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def plot(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], path: Path) -> None:
    """Mean accuracy over training rollouts, one line per method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.add_subplot()
    for number, row in enumerate(rows):
        style = "-" if row["method"] not in ("clean", "exact") else "--"
        color = f"C{number % 10}" if number < 10 else "black"
        curve = row["curve"]
        axes.plot(list(curve), [100 * y for y in curve.values()], style, color=color, label=names[row["method"]])
    axes.set_xlabel("training rollouts")
    axes.set_ylabel("pass@1 on held-out learnable prompts (%)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=150)


def write_report(
    folder: Path, results: Sequence[Mapping[str, Any]], tuning: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> str:
    """Write results.json, results.md and curves.png into `folder`; returns the text."""
    rows = summarize(results)
    parts = ["Accuracy on held-out learnable prompts:", render_learning(rows, names)]
    parts += ["Scores against reversed rewards:", render_scores(rows, names)]
    if tuning:
        parts += ["Final accuracy by learning rate, mean of separate seeds:", render_tuning(tuning, names)]
    text = "\n\n".join(parts) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(text, encoding="utf-8")
    plot(rows, names, folder / "curves.png")
    return text
