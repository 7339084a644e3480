"""The leaderboard's picture: accuracy over rollouts generated, one panel per pool, one line per method."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from efficiency_report import TARGETS
from figure_files import save_figure
from leaderboard_protocol import BASELINES, METHODS, Result
from leaderboard_report import by_method
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

POINTS = 50
COLUMNS = 3
# Ours in red, the baselines in black and grey, the others in colors that color-blind people can tell apart.
OWN = {"choose": "#d62728", "two_phase": "#ff7f0e", "uniform_rloo": "#000000", "uniform_grpo": "#7f7f7f"}
OTHERS = ("#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#8c564b", "#9467bd", "#bcbd22", "#17becf")


def plot(results: Sequence[Result], path: Path) -> None:
    """Mean over seeds, and a band from the lower to the upper quartile.

    A seed whose run has ended keeps its accuracy.
    """
    names = list(by_method(results))
    others = iter(OTHERS * len(names))
    colors = {name: OWN.get(name) or next(others) for name in names}
    pools = list(dict.fromkeys(result["job"]["pool"] for result in results))
    columns = min(len(pools), COLUMNS)
    num_rows = -(-len(pools) // columns)
    figure = Figure(figsize=(max(7.0, 4.6 * columns), 3.7 * num_rows + 1.2), layout="constrained")
    panels = figure.subplots(num_rows, columns, squeeze=False).ravel()
    for panel in panels[len(pools) :]:
        panel.set_visible(False)
    handles = {}
    for pool, panel in zip(pools, panels, strict=False):
        own = by_method([result for result in results if result["job"]["pool"] == pool])
        base = next(iter(own.values()))[0]["history"][0]["accuracy"]
        for gain in TARGETS:
            panel.axhline(100 * (base + gain), color="0.8", linewidth=0.8, linestyle=":", zorder=0)
        for method, runs in own.items():
            grid = np.linspace(0, max(run["history"][-1]["rollouts"] for run in runs), POINTS)
            curves = [_accuracies(run, grid) for run in runs]
            low, high = np.quantile(curves, [0.25, 0.75], axis=0)
            style = "--" if method in BASELINES else "-"
            (line,) = panel.plot(grid, np.mean(curves, 0), style, color=colors[method], linewidth=1.8)
            panel.fill_between(grid, low, high, color=colors[method], alpha=0.12, linewidth=0)
            handles.setdefault(METHODS[method].title, line)
        panel.set_title(f"pool {pool}", fontsize=11)
        panel.set_xlabel("rollouts generated")
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k" if value else "0"))
        panel.set_xlim(left=0)
        panel.grid(alpha=0.2)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[::columns]:
        panel.set_ylabel("pass@1, held out (%)")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2 * columns + 1, frameon=False)
    save_figure(figure, path, "leaderboard")


def _accuracies(result: Result, grid: np.ndarray) -> np.ndarray:
    """In percent; after the last look as at it."""
    history = result["history"]
    return 100 * np.interp(grid, [look["rollouts"] for look in history], [look["accuracy"] for look in history])
