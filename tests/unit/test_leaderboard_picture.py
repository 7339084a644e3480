"""The leaderboard's pictures show the runs of its figures: each line rises by 25 points where its row says so."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from leaderboard_picture import Curve, lines, read_curves, rollouts_to_target
from leaderboard_play import make_job, play, rising
from leaderboard_plot import plot
from leaderboard_protocol import METHODS, REPORTED_LOOKS
from leaderboard_summary import LAST, PICTURES, PUBLISHED, Row, read, summarize

ROWS = {(row.pool, METHODS[row.method].title): row for row in read(PUBLISHED)}
README, POOLS = (path.read_text(encoding="utf-8") for path in PICTURES.values())
# The line is the mean of the seeds at the same number of rollouts, the figure the mean of the seeds' own numbers. They
# differ by more where seeds do.
CLOSE, SEEDS_DIFFER, OTHER_POOLS = 0.10, 0.20, 0.35
WRONG = 1.6


def tolerance(row: Row) -> float:
    """How far a line may be from its figure, as a share of it."""
    figure = row.rollouts[LAST]
    if row.pool != "B" or figure.low is None or figure.high is None:
        return OTHER_POOLS
    return SEEDS_DIFFER if (figure.high - figure.low) / 2 > figure.value / 4 else CLOSE


def differing(curves: Sequence[Curve], rows: dict[tuple[str, str], Row] = ROWS) -> list[str]:
    """Methods whose line does not reach the last target where their row says; bounds are left out."""
    found = []
    for curve in curves:
        row = rows[curve.pool, curve.title]
        figure = row.rollouts[LAST]
        if not figure.sign and not abs(rollouts_to_target(curve, row) / figure.value - 1) <= tolerance(row):
            found.append(f"{curve.pool}: {curve.title}")
    return found


def with_figure(row: Row, factor: float) -> Row:
    figure = row.rollouts[LAST]
    changed = figure.model_copy(update={"value": figure.value * factor})
    return row.model_copy(update={"rollouts": {**row.rollouts, LAST: changed}})


def stretched(svg: str, factor: float) -> str:
    """The picture with all lines longer."""
    figure = ElementTree.fromstring(svg)
    for line in lines(figure):
        path = line.get("d", "")
        left = float(path.split()[1])

        def moved(point: re.Match[str], left: float = left) -> str:
            return f"{point[1]} {left + factor * (float(point[2]) - left)} "

        line.set("d", re.sub(r"([ML]) (\S+) ", moved, path))
    return ElementTree.tostring(figure, encoding="unicode")


@pytest.mark.parametrize("svg", [README, POOLS], ids=PICTURES)
def test_a_picture_has_every_row_of_its_pools(svg: str):
    drawn = [(curve.pool, curve.title) for curve in read_curves(svg)]
    pools = {pool for pool, _ in drawn}
    assert sorted(drawn) == sorted(key for key in ROWS if key[0] in pools)


def test_the_pictures_are_of_these_pools():
    assert {curve.pool for curve in read_curves(README)} == {"B"}
    assert {curve.pool for curve in read_curves(POOLS)} == {row.pool for row in ROWS.values()}


@pytest.mark.parametrize("svg", [README, POOLS], ids=PICTURES)
def test_lines_reach_the_target_where_the_figures_say(svg: str):
    assert differing(read_curves(svg)) == []


@pytest.mark.parametrize("factor", [1 / WRONG, WRONG])
def test_another_figure_is_noticed(factor: float):
    curves = read_curves(README)
    rows = {key: with_figure(row, factor) for key, row in ROWS.items()}
    assert len(differing(curves, rows)) == len(curves) == 12


@pytest.mark.parametrize("factor", [1 / WRONG, WRONG])
def test_another_line_is_noticed(factor: float):
    assert len(differing(read_curves(stretched(README, factor)))) == 12
    assert differing(read_curves(stretched(README, 1.0))) == []


def test_exchanged_colors_are_noticed():
    curves = {curve.title: curve for curve in read_curves(README)}
    ours, uniform = METHODS["choose"].title, METHODS["uniform_rloo"].title
    assert len(differing([replace(curves[ours], title=uniform), replace(curves[uniform], title=ours)])) == 2


def test_a_picture_drawn_now_is_read(tmp_path: Path):
    speeds = {"choose": 0.1, "dps": 0.05, "uniform_rloo": 0.03, "uniform_grpo": 0.025}
    runs = [
        play(make_job(method, seed, looks=REPORTED_LOOKS), rising(speed + 0.002 * seed))
        for method, speed in speeds.items()
        for seed in range(3)
    ]
    plot(runs, tmp_path / "curves.svg")
    rows = {("B", METHODS[row.method].title): row for row in summarize(runs)}
    curves = read_curves((tmp_path / "curves.svg").read_text(encoding="utf-8"))
    assert len(curves) == len(speeds)
    assert differing(curves, rows) == []
