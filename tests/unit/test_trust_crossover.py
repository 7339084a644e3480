"""Where TracIn is ahead of its competitors, on made results of `tracin_trust.py` (`trust_crossover.py`)."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from leaderboard_plot import OTHERS
from trust_crossover import COLORS, MARKERS, RIVALS, SIDESTEP, TRACIN, draw, gains, plot, render, verdicts
from trust_methods import CORRUPTIONS

# Points over GRPO on three seeds, whose own accuracy differs. Of flips: ahead, equal, behind.
SEEDS = (0.30, 0.34, 0.32)
MADE = {
    ("flips", 8): {"clean": (24, 25, 23), "tracin": (8, 9, 10), "trusted_only": (1, 4, 7), "majority": (-4, -3, -2)},
    ("flips", 32): {"clean": (24, 25, 23), "tracin": (8, 9, 10), "trusted_only": (9, 11, 14), "majority": (-4, -3, -2)},
    ("flips", 512): {"clean": (24, 25, 23), "tracin": (8, 9, 10), "trusted_only": (20, 19, 21), "mixed": (8, 30, 40)},
    ("source", 8): {"tracin": (-2, -1, 1), "mixed_tracin": (5, 6, 7), "mixed": (2, 3, 4)},
}


def make_rows(made: Mapping[tuple[str, int], Mapping[str, Sequence[float]]]) -> list[dict[str, Any]]:
    rows = []
    for (corruption, trusted), points in made.items():
        num_seeds = len(next(iter(points.values())))
        for method, gained in {"grpo": [0.0] * num_seeds, **points}.items():
            finals = [base + gain / 100 for base, gain in zip(SEEDS, gained, strict=False)]
            rows.append({"corruption": corruption, "trusted": trusted, "method": method, "final_by_seed": finals})
    return rows


ROWS = make_rows(MADE)
JUDGED = {(v.gain.corruption, v.gain.trusted, v.gain.method): v for v in verdicts(gains(ROWS))}


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """Numbers of trusted prompts and points by method."""
    found = {}
    for line in axes.get_lines():
        if line.get_linestyle() != "None":
            x, y = (np.asarray(data, dtype=float).tolist() for data in line.get_data())
            found[str(line.get_label())] = x, y
    return found


def marks(axes: Axes) -> set[tuple[float, str, str]]:
    """Number of trusted prompts, color and form of every standing."""
    return {
        (float(np.ravel(artist.get_xdata())[0]), to_hex(artist.get_color()), str(artist.get_marker()))
        for artist in axes.get_lines()
        if artist.get_linestyle() == "None"
    }


def test_tracin_is_ahead_where_its_interval_is_above_all_others():
    standings = {key: verdict.standing for key, verdict in JUDGED.items()}
    assert standings == {
        ("flips", 8, "tracin"): "ahead",
        ("flips", 32, "tracin"): "equal",
        ("flips", 512, "tracin"): "behind",
        ("source", 8, "tracin"): "behind",
        ("source", 8, "mixed_tracin"): "ahead",
    }


def test_neither_right_rewards_nor_tracins_own_methods_are_competitors():
    rivals = {key: (verdict.rival.method, verdict.best) for key, verdict in JUDGED.items()}
    assert rivals == {
        ("flips", 8, "tracin"): ("trusted_only", "tracin"),
        ("flips", 32, "tracin"): ("trusted_only", "trusted_only"),
        ("flips", 512, "tracin"): ("mixed", "mixed"),
        ("source", 8, "tracin"): ("mixed", "mixed"),
        ("source", 8, "mixed_tracin"): ("mixed", "mixed_tracin"),
    }


def test_a_wide_competitor_with_a_lower_mean_is_not_left_behind():
    rows = make_rows({("flips", 8): {"tracin": (8, 9, 10), "mixed": (1, 2, 12), "olr": (6, 6.5, 7)}})
    (verdict,) = verdicts(gains(rows))
    assert (verdict.rival.method, verdict.best, verdict.standing) == ("olr", "tracin", "equal")


def test_one_seed_has_no_standing():
    rows = make_rows({("flips", 8): {"tracin": (8,), "mixed": (1,)}})
    (verdict,) = verdicts(gains(rows))
    assert verdict.standing is None
    assert render([verdict]).splitlines()[-1] == "| flips | tracin | +8.0; mixed +1.0 |"
    (axes,) = draw(gains(rows)).axes
    assert lines(axes)["tracin"][1] == pytest.approx([8])
    assert not marks(axes)


def test_the_text_has_standing_and_numbers():
    table = render(list(JUDGED.values())).splitlines()
    assert table[0] == "| corruption | method | 8 trusted | 32 trusted | 512 trusted |"
    cells = table[2].strip("|").split(" | ")
    assert cells[2] == "ahead: +9.0 [+8.0, +10.0]; trusted_only +4.0 [+1.0, +7.0]"
    assert cells[4].startswith("behind: +9.0 [+8.0, +10.0]; mixed +26.0")
    assert table[4] == "| source | mixed_tracin | ahead: +6.0 [+5.0, +7.0]; mixed +3.0 [+2.0, +4.0] |  |  |"


def test_gains_are_counted_from_grpo_on_the_same_seeds():
    with pytest.raises(
        ValueError, match="expected a row of grpo with at least 3 seeds for flips and 8 trusted prompts, found 0"
    ):
        gains([row for row in ROWS if row["method"] != "grpo"])
    with pytest.raises(ValueError, match="found 2"):
        gains([row | {"final_by_seed": SEEDS[:2]} if row["method"] == "grpo" else row for row in ROWS])
    # Seeds that only GRPO has do not count.
    more = [row | {"final_by_seed": (*SEEDS, 0.9)} if row["method"] == "grpo" else row for row in ROWS]
    own = [gain for gain in gains(more) if gain.method != "grpo"]
    assert own == [gain for gain in gains(ROWS) if gain.method != "grpo"]


def test_the_drawn_lines_have_the_numbers_of_the_results():
    panels = draw(gains(ROWS)).axes
    assert [axes.get_title().partition(":")[0] for axes in panels] == ["flips", "source"]
    for corruption, axes in zip(("flips", "source"), panels, strict=True):
        drawn = lines(axes)
        own = {trusted: {"grpo": (0, 0, 0), **of} for (kind, trusted), of in MADE.items() if kind == corruption}
        assert set(drawn) == {method for of in own.values() for method in of}
        for method, (x, y) in drawn.items():
            counts = [count for count in own if method in own[count]]
            assert y == pytest.approx([np.mean(own[count][method]) for count in counts], abs=1e-9)
            sideways = np.log(np.array(x) / counts) / np.log(SIDESTEP)
            assert sideways == pytest.approx(np.full(len(counts), sideways[0]))
            assert abs(sideways[0]) <= 3


def test_the_drawn_intervals_have_the_numbers_of_the_results():
    found = gains(ROWS)
    for corruption, axes in zip(("flips", "source"), draw(found).axes, strict=True):
        points = [gain.points for gain in found if gain.corruption == corruption]
        ends = [segment[:, 1].tolist() for bars in axes.collections for segment in bars.get_segments()]  # pyright: ignore[reportAttributeAccessIssue]
        assert sorted(ends) == sorted([each.low, each.high] for each in points)


def test_standings_are_marked_and_the_region_ahead_is_shaded():
    flips, source = draw(gains(ROWS)).axes
    red, orange = (COLORS[method] for method in TRACIN)
    assert marks(flips) == {(8, red, MARKERS["ahead"]), (32, red, MARKERS["equal"]), (512, red, MARKERS["behind"])}
    assert marks(source) == {(8, red, MARKERS["behind"]), (8, orange, MARKERS["ahead"])}
    for axes, color, ends in ((flips, red, (4, 16)), (source, orange, (4, 16))):
        (region,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert to_hex(region.get_edgecolor()) == color
        assert bool(region.get_hatch()) == (color == orange)  # both regions are seen where they overlap
        assert (region.get_x(), region.get_x() + region.get_width()) == pytest.approx(ends)


def test_the_same_results_make_the_same_file(tmp_path: Path):
    for name in ("one.svg", "two.svg"):
        plot(gains(ROWS), tmp_path / name)
    one, two = ((tmp_path / name).read_text(encoding="utf-8") for name in ("one.svg", "two.svg"))
    assert one == two
    assert all(method in one for method in ("trusted_only", "mixed_tracin", "majority"))


def test_every_corruption_and_method_can_be_drawn():
    assert len(RIVALS) <= len(OTHERS)
    assert len(set(COLORS.values())) == len(COLORS) == 11
    made = {(corruption, 8): {"tracin": (8, 9, 10)} for corruption in CORRUPTIONS}
    assert len(draw(gains(make_rows(made))).axes) == len(CORRUPTIONS)
