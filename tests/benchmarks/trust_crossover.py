"""Where TracIn is ahead of its competitors: the picture and the verdicts of `tracin_trust.py`. No torch.

Gains are differences from plain GRPO's final accuracy on the same seed, in points. An interval is the 95 % bootstrap
interval over seeds: with two or three seeds, from the lowest to the highest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from figure_files import save_figure
from leaderboard_plot import OTHERS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from summary_plot import BASELINE, OWN, VARIANT, WORSE
from trust_methods import SHARE, Corruption

from verl_ext.evaluation.statistics.estimates import Estimate, bootstrap_mean

Standing = Literal["ahead", "equal", "behind"]
GRPO = "grpo"
REFERENCE = "clean"  # trains on right rewards, which nobody has: no competitor
TRACIN = ("tracin", "mixed_tracin")
PERCENT = f"{100 * SHARE:.0f} %"
TITLES: dict[Corruption, str] = {
    "flips": f"flips: {PERCENT} of all rewards reversed",
    "source": f"source: reversed for {PERCENT} of prompts",
    "off_target": f"off_target: another task's for {PERCENT} of prompts",
}
RIVALS = ("trusted_only", "mixed", "gradalign", "majority", "grpo_repeats", "olr", "gradalign_small")
COLORS = {"tracin": OWN, "mixed_tracin": VARIANT, GRPO: WORSE, REFERENCE: BASELINE} | dict(
    zip(RIVALS, OTHERS, strict=False)
)
MARKERS: dict[Standing, str] = {"ahead": "^", "equal": "s", "behind": "v"}
MEANINGS: dict[Standing, str] = {
    "ahead": "ahead of every competitor (region in its color)",
    "equal": "equal: intervals overlap",
    "behind": "behind a competitor",
}
SHADE, HATCH = 0.13, "//"  # of the regions of the two methods of TRACIN, which may overlap
SIDESTEP = 1.025  # from one method's points to the next one's, so that their intervals are seen
FIRST_MARK, MARK_HEIGHT = 1.03, 0.045  # of the standings above a panel, as shares of its height


@dataclass(frozen=True)
class Gain:
    """What a method adds to GRPO's final accuracy.

    Attributes:
        points: Mean over seeds and its interval, in points.
    """

    corruption: Corruption
    trusted: int
    method: str
    points: Estimate


@dataclass(frozen=True)
class Verdict:
    """How a method of `TRACIN` compares with its competitors, which are all methods but those of `TRACIN` and `clean`.

    Attributes:
        gain: Its own.
        rival: That of the competitor with the highest mean.
        standing: ahead: its interval is above every competitor's. behind: a competitor's interval is above its own.
            equal: neither. None with one seed, which has no interval.
    """

    gain: Gain
    rival: Gain
    standing: Standing | None

    @property
    def best(self) -> str:
        """The method with the highest mean among the competitors and this one."""
        return max(self.gain, self.rival, key=lambda gain: gain.points.value).method


def gains(rows: Sequence[Mapping[str, Any]]) -> list[Gain]:
    """Of every method, GRPO's own 0 included, in the order of the rows.

    Args:
        rows: Of results.json: corruption, trusted, method, and final_by_seed (shares from 0 to 1, of seeds 0, 1, …).

    Raises:
        ValueError: GRPO's row is missing, or has fewer seeds.
    """
    bases = {(row["corruption"], row["trusted"]): row["final_by_seed"] for row in rows if row["method"] == GRPO}
    found = []
    for row in rows:
        case, own = (row["corruption"], row["trusted"]), row["final_by_seed"]
        if len(bases.get(case, ())) < len(own):
            raise ValueError(
                f"expected a row of {GRPO} with at least {len(own)} seeds for {case[0]} and {case[1]} trusted prompts, "
                f"found {len(bases.get(case, ()))}: gains are counted from it, so run it with the same seeds"
            )
        points = bootstrap_mean(100 * (np.array(own) - np.array(bases[case][: len(own)])))
        found.append(Gain(*case, row["method"], points))
    return found


def verdicts(found: Sequence[Gain]) -> list[Verdict]:
    """One for each corruption, number of trusted prompts and method of `TRACIN` that was measured."""
    judged = []
    for own in found:
        if own.method in TRACIN:
            rivals = [gain for gain in _case(found, own) if gain.method not in (*TRACIN, REFERENCE)]
            rival = max(rivals, key=lambda gain: gain.points.value)
            judged.append(Verdict(own, rival, _standing(own.points, [gain.points for gain in rivals])))
    return judged


def _case(found: Sequence[Gain], own: Gain) -> list[Gain]:
    return [gain for gain in found if (gain.corruption, gain.trusted) == (own.corruption, own.trusted)]


def _standing(own: Estimate, rivals: Sequence[Estimate]) -> Standing | None:
    if own.low is None or own.high is None:
        return None
    if all(rival.high is not None and own.low > rival.high for rival in rivals):
        return "ahead"
    return "behind" if any(rival.low is not None and rival.low > own.high for rival in rivals) else "equal"


def render(judged: Sequence[Verdict]) -> str:
    """A Markdown table: standing, gain, and the best competitor's gain by number of trusted prompts."""
    counts = sorted({verdict.gain.trusted for verdict in judged})
    lines = [
        "| corruption | method | " + " | ".join(f"{count} trusted" for count in counts) + " |",
        "|---" * (2 + len(counts)) + "|",
    ]
    for corruption, method in dict.fromkeys((verdict.gain.corruption, verdict.gain.method) for verdict in judged):
        own = {v.gain.trusted: v for v in judged if (v.gain.corruption, v.gain.method) == (corruption, method)}
        cells = [_cell(own[count]) if count in own else "" for count in counts]
        lines.append(f"| {corruption} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(verdict: Verdict) -> str:
    text = f"{_points(verdict.gain.points)}; {verdict.rival.method} {_points(verdict.rival.points)}"
    return text if verdict.standing is None else f"{verdict.standing}: {text}"


def _points(points: Estimate) -> str:
    if points.low is None or points.high is None:
        return f"{points.value:+.1f}"
    return f"{points.value:+.1f} [{points.low:+.1f}, {points.high:+.1f}]"


def plot(found: Sequence[Gain], path: Path) -> None:
    """The picture of `draw` as an SVG file, the same for the same gains."""
    save_figure(draw(found), path, "trust")


def draw(found: Sequence[Gain]) -> Figure:
    """Gain over the number of trusted prompts: a panel per corruption, a line with intervals per method.

    Marks above a panel are the standings of `TRACIN`'s methods; the region where one is ahead has its color.
    """
    corruptions: list[Corruption] = list(dict.fromkeys(gain.corruption for gain in found))
    methods = list(dict.fromkeys(gain.method for gain in found))
    figure = Figure(figsize=(max(11.0, 4.6 * len(corruptions)), 5.4), layout="constrained")
    panels = figure.subplots(1, len(corruptions), sharey=True, squeeze=False).ravel()
    for corruption, axes in zip(corruptions, panels, strict=True):
        own = [gain for gain in found if gain.corruption == corruption]
        for place, method in enumerate(methods):
            sidestep = SIDESTEP ** (place - (len(methods) - 1) / 2)
            _draw_line(axes, [gain for gain in own if gain.method == method], sidestep)
        counts = sorted({gain.trusted for gain in own})
        _draw_standings(axes, verdicts(own), _spans(counts))
        axes.set_xscale("log")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(_spans(counts)[counts[0]][0], _spans(counts)[counts[-1]][1])
        axes.set_xlabel("trusted prompts")
        axes.grid(alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(TITLES[corruption], fontsize=11, pad=30)
    panels[0].set_ylabel("final accuracy - GRPO's (points)")
    # Columns are filled one after the other: the last one is of the marks.
    handles = [_style(method) for method in methods]
    handles += [Line2D([], [], linestyle="", label=" ")] * (-len(handles) % len(MARKERS))
    handles += [_mark(standing, "0.3") for standing in MARKERS]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) // len(MARKERS), frameon=False)
    return figure


def _style(method: str) -> Line2D:
    """How a method is drawn."""
    ours = method in TRACIN
    return Line2D(
        [], [], color=COLORS[method], linewidth=2.2 if ours else 1.3, linestyle="--" if method == REFERENCE else "-",
        marker="o", markersize=4.5 if ours else 3, zorder=4 if ours else 3, label=method,
    )  # fmt: skip


def _draw_line(axes: Axes, own: Sequence[Gain], sidestep: float) -> None:
    """Of one method, its points to the side by a factor."""
    own = sorted(own, key=lambda gain: gain.trusted)
    if not own:
        return
    x = [gain.trusted * sidestep for gain in own]
    line = _style(own[0].method)
    line.set_data(x, [gain.points.value for gain in own])
    axes.add_line(line)
    for place, gain in zip(x, own, strict=True):
        if gain.points.low is not None and gain.points.high is not None:
            axes.vlines(place, gain.points.low, gain.points.high, color=line.get_color(), linewidth=1, alpha=0.6)
    axes.autoscale_view()


def _draw_standings(axes: Axes, judged: Sequence[Verdict], spans: Mapping[int, tuple[float, float]]) -> None:
    """A mark per verdict above the panel, and a region behind the lines where one is ahead."""
    for verdict in judged:
        method, trusted, standing = verdict.gain.method, verdict.gain.trusted, verdict.standing
        if standing is None:
            continue
        height = FIRST_MARK + MARK_HEIGHT * TRACIN.index(method)
        mark = _mark(standing, COLORS[method])
        mark.set_data([trusted], [height])
        mark.set_transform(axes.get_xaxis_transform())
        mark.set_clip_on(False)
        axes.add_artist(mark)
        if standing == "ahead":
            if method == TRACIN[0]:
                axes.axvspan(*spans[trusted], color=COLORS[method], alpha=SHADE, linewidth=0, zorder=0)
            else:
                axes.axvspan(
                    *spans[trusted], facecolor="none", edgecolor=COLORS[method], alpha=0.35, hatch=HATCH, linewidth=0,
                    zorder=0,
                )  # fmt: skip


def _mark(standing: Standing, color: str) -> Line2D:
    """Filled only where TracIn is ahead."""
    face = color if standing == "ahead" else "none"
    return Line2D(
        [], [], color=color, linestyle="", marker=MARKERS[standing], markersize=6, markerfacecolor=face,
        label=MEANINGS[standing],
    )  # fmt: skip


def _spans(counts: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Around each number of trusted prompts, to the middle of its neighbors' on a logarithmic axis."""
    logs = np.log(counts)
    half_gaps = np.diff(logs) / 2 if len(counts) > 1 else np.log([2])
    edges = np.exp([logs[0] - half_gaps[0], *(logs[:-1] + half_gaps[: len(logs) - 1]), logs[-1] + half_gaps[-1]])
    return {count: (float(edges[n]), float(edges[n + 1])) for n, count in enumerate(counts)}
