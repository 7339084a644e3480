"""Reads the curves of a leaderboard's picture back: the runs that it was drawn from are not in the repository."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
from leaderboard_protocol import REPORTED_LOOKS
from leaderboard_summary import LAST, Row

SVG = "{http://www.w3.org/2000/svg}"
# The width of a method's line in `leaderboard_plot.plot`; those of the targets and the grid are thinner.
_LINE = "stroke-width: 1.8"
GAIN = float(LAST)


@dataclass(frozen=True)
class Curve:
    """A method's line on a pool.

    Attributes:
        rollouts: (points,) Rollouts generated.
        accuracy: (points,) Mean accuracy over seeds, in percent.
    """

    pool: str
    title: str
    rollouts: np.ndarray
    accuracy: np.ndarray


def read_curves(svg: str) -> list[Curve]:
    """All lines of a picture, with the axes' units from the positions of their ticks."""
    figure = ElementTree.fromstring(svg)
    titles = _titles(figure)
    found = []
    for panel in _groups(figure, "axes_"):
        pools = [text.text or "" for text in panel.iter(f"{SVG}text") if (text.text or "").startswith("pool ")]
        if not pools:
            continue
        of_x, of_y = _scale(panel, "xtick_", "x"), _scale(panel, "ytick_", "y")
        for line in lines(panel):
            points = np.array(re.findall(r"[ML] (\S+) (\S+)", line.get("d", "")), dtype=float)
            x, y = np.polyval(of_x, points[:, 0]), np.polyval(of_y, points[:, 1])
            found.append(Curve(pools[0].removeprefix("pool "), titles[_color(line)], x, y))
    return found


def lines(part: ElementTree.Element) -> list[ElementTree.Element]:
    """The methods' lines in a part of a picture, as path elements."""
    return [path for path in part.iter(f"{SVG}path") if _LINE in path.get("style", "")]


def _groups(part: ElementTree.Element, prefix: str) -> Iterator[ElementTree.Element]:
    return (group for group in part.iter(f"{SVG}g") if group.get("id", "").startswith(prefix))


def _color(line: ElementTree.Element) -> str:
    return re.findall(r"stroke: (#\w+)", line.get("style", ""))[0]


def _titles(figure: ElementTree.Element) -> dict[str, str]:
    """A method's title by the color of its line, from the legend."""
    (legend,) = _groups(figure, "legend_")
    texts = [text.text or "" for text in legend.iter(f"{SVG}text")]
    return dict(zip(map(_color, lines(legend)), texts, strict=True))


def _scale(panel: ElementTree.Element, prefix: str, axis: str) -> np.ndarray:
    """(2,) The line from positions to values through an axis's ticks."""
    places, values = [], []
    for tick in _groups(panel, prefix):
        (mark, *_), (label, *_) = tick.iter(f"{SVG}use"), tick.iter(f"{SVG}text")
        places.append(float(mark.get(axis, "nan")))
        values.append(_number(label.text or ""))
    return np.polyfit(places, values, 1)


def _number(label: str) -> float:
    return 1000 * float(label[:-1]) if label.endswith("k") else float(label)


def rollouts_to_target(curve: Curve, row: Row) -> float:
    """Where a line has risen by the last target, as the figures of its seeds count it; nan: nowhere.

    A seed reaches a target at the first look where the mean of three looks has: that is two looks after the first of
    the three, and half a look late on average. Looks are at whole batches, whose size in rollouts generated follows
    from the numbers of rollouts that were generated and trained on.
    """
    looks = _looks(_rollouts_per_batch(row), 1.5 * curve.rollouts[-1])
    accuracy = np.interp(looks, curve.rollouts, curve.accuracy)
    smoothed, ends = np.convolve(accuracy, np.full(3, 1 / 3), "valid"), looks[2:]
    target = curve.accuracy[0] + GAIN
    reached = np.flatnonzero(smoothed >= target)
    if not len(reached) or reached[0] == 0:
        return float("nan")
    around = slice(reached[0] - 1, reached[0] + 1)
    return float(np.interp(target, smoothed[around], ends[around]) + np.diff(ends[around])[0] / 2)


def _rollouts_per_batch(row: Row) -> float:
    if row.trained is None:
        raise ValueError(f"{row.method} on pool {row.pool} has no number of rollouts trained on")
    batches = row.trained.value / (row.updates * row.batch * row.group)
    return row.rollouts[LAST].value / batches


def _looks(batch: float, end: float) -> np.ndarray:
    """(looks,) Rollouts generated at the looks of a run with batches of one size."""
    looks, rollouts = [0.0], 0.0
    while rollouts < end:
        rollouts += batch
        if rollouts >= REPORTED_LOOKS.next_look(looks[-1]):
            looks.append(rollouts)
    return np.array(looks)
