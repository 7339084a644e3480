"""The published leaderboard: its rows, its tables, and that README and docs show the figures of its JSON file."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from leaderboard_play import make_job, play, rising
from leaderboard_protocol import Settings
from leaderboard_report import PRICES
from leaderboard_summary import (
    PAGES,
    POOL_TITLES,
    PUBLISHED,
    Estimate,
    fill,
    full_table,
    headline_table,
    merge,
    read,
    short_table,
    summarize,
    thousands,
    times,
    write,
)

ROOT = Path(__file__).resolve().parents[2]
OWN_SETTINGS = json.loads((ROOT / "tests/benchmarks/leaderboard_settings.json").read_text(encoding="utf-8"))
SPEEDS = {"choose": 0.2, "choose_flat": 0.15, "dps": 0.1, "uniform_rloo": 0.05, "uniform_grpo": 0.04}


def make_results(pool: str = "B", methods=tuple(SPEEDS)) -> list[dict]:
    return [
        play(make_job(method, seed, pool=pool), rising(SPEEDS[method] + 0.01 * seed))
        for method in methods
        for seed in range(2)
    ]


# ------------------------------ rows ------------------------------


def test_the_best_method_is_first_and_ratios_are_to_the_better_uniform_method():
    rows = summarize(make_results())
    assert [row.method for row in rows] == ["choose", "choose_flat", "dps", "uniform_rloo", "uniform_grpo"]
    assert [row.is_baseline for row in rows] == [False, False, False, True, False]
    choose, baseline = rows[0], rows[3]
    assert choose.ratio is not None
    assert choose.ratio.value == pytest.approx(baseline.rollouts["+25"].value / choose.rollouts["+25"].value)
    assert (choose.seeds, choose.reached, len(choose.costs)) == (2, 2, len(PRICES))


def test_a_target_that_a_seed_never_reached_is_a_bound():
    slow = [play(make_job("greso", seed), rising(0.1 if seed else 0.001)) for seed in range(2)]
    (row,) = summarize(slow)
    assert row.rollouts["+25"].sign == ">"
    assert row.ratio is None
    assert thousands(row.rollouts["+25"]).startswith("> ")


def test_rows_survive_the_file(tmp_path: Path):
    rows = summarize(make_results())
    write(tmp_path / "rows.json", rows)
    assert read(tmp_path / "rows.json") == rows


def test_a_pool_is_replaced_as_a_whole():
    old, other = summarize(make_results()), summarize(make_results("E", ("choose", "uniform_rloo")))
    new = summarize(make_results(methods=("choose", "choose_flat", "dps", "uniform_rloo", "uniform_grpo")))
    assert merge([*other, *old], new) == [*new, *other]
    with pytest.raises(ValueError, match="choose_flat, dps"):
        merge(old, summarize(make_results(methods=("choose", "uniform_rloo", "uniform_grpo"))))


# ------------------------------ tables ------------------------------


def test_numbers_are_written_with_their_intervals_and_signs():
    assert thousands(Estimate(value=1234, low=1100, high=1360)) == "1.2 [1.1, 1.4]"
    assert thousands(Estimate(value=23_312, sign=">"), with_interval=False) == "> 23.3"
    assert times(Estimate(value=4.52, low=3.91, high=5.2, sign="<")) == "< 4.5 [3.9, 5.2]"


def test_a_table_has_every_method_once():
    rows = summarize(make_results())
    table = full_table(rows).splitlines()
    assert len(table) == 2 + len(rows)
    assert table[2].startswith("| choose (ours) | 64 x 2, 3e-4, 1 | ")
    assert "| 1 |" in table[5]


def test_the_headline_names_the_best_other_method():
    line = headline_table(summarize(make_results()), ["B"]).splitlines()[2]
    assert "(DPS)" in line
    without = [row for row in summarize(make_results()) if row.method != "dps"]
    assert "not run" in headline_table(without, ["B"])


def test_the_headline_says_which_other_method_is_ours():
    methods = ("choose", "choose_flat", "two_phase", "uniform_rloo", "uniform_grpo")
    results = [play(make_job(method, 0), rising({**SPEEDS, "two_phase": 0.08}[method])) for method in methods]
    assert "(two phases, also ours)" in headline_table(summarize(results), ["B"])


def test_the_short_table_has_choose_and_the_better_uniform_method():
    rows = {row.method: row for row in summarize(make_results())}
    head, _, line = short_table(list(rows.values()), ["B"]).splitlines()
    assert head.count("|") == 5
    cells = [cell.strip("* ") for cell in line.strip("|").split("|")]
    needed = [thousands(rows[name].rollouts["+25"], with_interval=False) for name in ("choose", "uniform_rloo")]
    assert cells == [POOL_TITLES["B"], *needed, times(rows["choose"].ratio)]


def test_only_what_is_between_the_marks_is_drawn_again():
    rows = summarize(make_results())
    page = "before\n\n<!-- leaderboard: pool B -->\nold\n<!-- end -->\n\nafter\n"
    filled = fill(page, rows)
    assert filled == page.replace("old", full_table(rows))
    assert fill(filled, rows) == filled
    with pytest.raises(ValueError, match="'pool X'"):
        fill(page.replace("pool B", "pool X"), rows)


# ------------------------------ what is published ------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_pages_show_the_published_figures(page: Path):
    text = page.read_text(encoding="utf-8")
    assert "<!-- leaderboard: " in text
    assert fill(text, read(PUBLISHED)) == text, "run `python tests/benchmarks/leaderboard_summary.py`"


def test_published_rows_are_those_of_the_published_settings():
    for row in read(PUBLISHED):
        own = Settings(row.learning_rate, row.batch, row.group, row.updates)
        assert own == Settings(**OWN_SETTINGS[row.pool][row.method]), (row.pool, row.method)
        assert row.seeds == 8
