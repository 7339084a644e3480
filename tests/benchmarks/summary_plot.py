"""The picture of docs/benchmarks.md, drawn from that page's own tables.

    python tests/benchmarks/summary_plot.py      # after a figure of the summary has changed

Writes docs/assets/benchmarks.svg.
"""

import argparse
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from figure_files import save_figure
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"
PICTURE = ROOT / "docs/assets/benchmarks.svg"
# As in the leaderboard's picture.
OWN, VARIANT, BASELINE, WORSE = "#d62728", "#ff7f0e", "#7f7f7f", "#000000"
COLUMN_COLORS = (OWN, VARIANT, BASELINE)
LABEL_WIDTH = 34


@dataclass(frozen=True)
class Panel:
    """One table as bars.

    Attributes:
        heading: Of the table's section.
        title: Above the bars.
        columns: Columns of numbers, from 1, one bar each; column 0 has the names.
        baselines: Beginnings of the names of rows that are not ours.
    """

    heading: str
    title: str
    columns: tuple[int, ...] = (1,)
    baselines: tuple[str, ...] = ()


PANELS = (
    Panel("Rollouts, every method tuned", "Thousands of rollouts to +25 points", (1, 2, 3)),
    Panel("Seconds", "Seconds to +20 points, pool B", baselines=("verl", "uniform")),
    Panel("Safety", "Choose - uniform sampling, worst domain (points)"),
    Panel("TracIn", "Gain over GRPO, 30 % wrong rewards (points)", baselines=("IIF", "right")),
)


def read_table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of level 2, its own heading first, without markup.

    Raises:
        ValueError: There is no such section, or no table in it.
    """
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    if not rows:
        raise ValueError(f"expected a table under '## {heading}', found none: name the section as PANELS does")
    return [[re.sub(r"[*`]", "", cell).strip() for cell in row] for row in rows if set(row[0]) - set("-")]


def number(cell: str) -> str:
    """The number that a cell begins with, as it is written there."""
    match = re.match(r"[-+]?[\d.]+", cell)
    if match is None:
        raise ValueError(f"expected a cell that begins with a number, got {cell!r}")
    return match[0]


def draw(page: str, path: Path) -> None:
    """All panels into an SVG file."""
    figure = Figure(figsize=(11.5, 7.6), layout="constrained")
    for panel, axes in zip(PANELS, figure.subplots(2, 2).ravel(), strict=True):
        _draw_panel(axes, panel, read_table(page, panel.heading))
    save_figure(figure, path, "benchmarks")


def _draw_panel(axes: Axes, panel: Panel, table: list[list[str]]) -> None:
    heading, *rows = table
    height = 0.8 / len(panel.columns)
    for place, column in enumerate(panel.columns):
        texts = [number(row[column]) for row in rows]
        values = [float(text) for text in texts]
        colors = [
            WORSE if value < 0 else BASELINE if row[0].startswith(panel.baselines) else COLUMN_COLORS[place]
            for value, row in zip(values, rows, strict=True)
        ]
        centers = [row + (place - (len(panel.columns) - 1) / 2) * height for row in range(len(rows))]
        label = heading[column] if len(panel.columns) > 1 else None
        bars = axes.barh(centers, values, 0.9 * height, color=colors, label=label)
        axes.bar_label(bars, texts, padding=3, fontsize=8)
    axes.set_yticks(range(len(rows)), [textwrap.fill(row[0], LABEL_WIDTH) for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.22)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if len(panel.columns) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper right")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PICTURE)
    draw(PAGE.read_text(encoding="utf-8"), parser.parse_args().output)


if __name__ == "__main__":
    main()
