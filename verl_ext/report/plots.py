"""Curves as PNG files for papers, drawn by matplotlib without a browser."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_ext.core.errors import ConfigError
from verl_ext.report import curves
from verl_ext.report.compare_data import names_of
from verl_ext.report.run_records import RunRecords
from verl_ext.run.metrics_stream import STEP

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C7A00", "#666666")


def add_png_arguments(parser: argparse.ArgumentParser) -> None:
    """The option `--png` and its details."""
    parser.add_argument("--png", type=Path, metavar="DIR", help="also write the curves as PNG into this folder")
    parser.add_argument(
        "--metrics", metavar="A,B", help="with --png: these metrics (default: those shown first on the page)"
    )
    parser.add_argument(
        "--smooth", type=float, default=0.0, metavar="W", help="with --png: weight of the past, 0 to <1"
    )
    parser.add_argument("--x", choices=list(curves.AXES), default="step", help="with --png: the horizontal axis")


def write_pngs(runs: Sequence[RunRecords], options: argparse.Namespace) -> list[Path]:
    """One picture per metric.

    Raises:
        ConfigError: A metric is in no run, or the smoothing weight is out of range.
    """
    tables = [curves.columns(run.metrics) for run in runs]
    known = sorted({name for table in tables for name in table} - {STEP})
    chosen = [name for name in options.metrics.split(",") if name] if options.metrics else curves.headlines(known)
    for name in chosen:
        if name not in known:
            near = ", ".join(other for other in known if name.rpartition("/")[2] in other) or ", ".join(known[:5])
            raise ConfigError(f"--metrics: no run has {name!r}; there are {near}")
    if not 0 <= options.smooth < 1:
        raise ConfigError(f"--smooth must be at least 0 and below 1, got {options.smooth:g}: try 0.6")
    options.png.mkdir(parents=True, exist_ok=True)
    paths = [options.png / f"{file_name(name)}.png" for name in chosen]
    for name, path in zip(chosen, paths, strict=True):
        _draw(path, name, names_of([run.path for run in runs]), tables, options)
        print(path)
    return paths


def file_name(metric: str) -> str:
    """A metric's name without characters that file systems or LaTeX reject."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", metric.replace("/", "--"))


def _draw(path: Path, metric: str, labels: Sequence[str], tables: Sequence[Any], options: argparse.Namespace) -> None:
    # Not pyplot: it keeps figures alive, and may want a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axes = figure.add_subplot()
    for place, (label, table) in enumerate(zip(labels, tables, strict=True)):
        if metric not in table:
            continue
        colour = COLOURS[place % len(COLOURS)]
        values = table[metric]
        smoothed = curves.smooth(values, options.smooth)
        triples = zip(curves.axis(table, options.x), values, smoothed, strict=True)
        kept = [triple for triple in triples if triple[0] is not None and triple[1] is not None]
        if not kept:
            continue
        x, raw, drawn = zip(*kept, strict=True)
        if options.smooth > 0:
            axes.plot(x, raw, color=colour, alpha=0.25, linewidth=0.8)
        # "$" and a leading "_" are special in matplotlib.
        text = label.replace("$", r"\$")
        marker = "o" if len(kept) <= 12 else None
        axes.plot(
            x, drawn, color=colour, linewidth=1.4, marker=marker, markersize=3, label=f"\N{ZERO WIDTH SPACE}{text}"
        )
    axes.set_xlabel(curves.AXES[options.x][1])
    axes.set_title(metric, fontsize=9)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(tables) > 1:
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=200, metadata={"Software": None})
