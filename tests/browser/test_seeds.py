"""Runs of one configuration with several seeds: their numbers, curves, and differences from another configuration."""

import re
from pathlib import Path

import pytest
from made_run import MadeRun
from playwright.sync_api import expect

from verl_ext.report.__main__ import main
from verl_ext.run.metrics_stream import STEP, MetricsStream


def _page(command: list[str], output: Path) -> Path:
    assert main([*command, "--output", str(output)]) == 0
    return output


def test_seeds_of_a_configuration_are_summed_up(viewer, seeds_page):
    one = viewer()
    page = one.open(seeds_page, "?view=numbers")
    expect(page.locator("#groups thead th")).to_have_text(["", "fast (3 runs)", "other"])
    cell = page.locator("#groups tr", has_text="val accuracy after at step 30").locator("td").nth(1)
    expect(cell).to_have_text(re.compile(r"^\d+\.\d % \(\d+\.\d % to \d+\.\d %\)$"))
    one.shot("run-compare-numbers")
    curves = viewer().open(seeds_page, "?metrics=val-core/arithmetic/acc/mean@1,actor/entropy&x=rollouts")
    expect(curves.locator("figure .chart .main-svg").first).to_be_visible()
    expect(curves.locator("figure .chart[data-ready='4']")).to_have_count(2)
    colours = page.locator("#common thead i").evaluate_all("all => all.map((one) => one.style.background)")
    assert len(set(colours)) == 2
    assert colours[0] == colours[1] == colours[2]


def test_two_groups_of_seeds_say_whether_their_ranges_overlap_and_claim_nothing_without_all_runs(
    viewer, tmp_path: Path
):
    for place in range(2):
        for name, slow, steps in (
            ("fast", 1.0, 40),
            ("far", 3.0, 40),
            ("near", 1.0 + place / 5 - 0.1, 40),
            ("short", 1.0, 10 + 30 * place),
        ):
            folder = tmp_path / f"{name}-seed{place}"
            folder.mkdir()
            MadeRun(folder, seed=place, slow=slow + place / 20).train(steps)
    names = ("fast", "far", "near", "short")
    runs = [str(tmp_path / f"{name}-seed{place}") for name in names for place in range(2)]
    page = viewer().open(_page(["compare", *runs], tmp_path / "page.html"), "?view=numbers")
    far, near, short = page.locator("#verdicts li").all_inner_texts()
    assert far.count("their ranges do not overlap") == 2
    assert near.count("their ranges overlap") == 2
    # One of its runs ended before the accuracies, so only the common step can be compared.
    assert "times the rollouts" not in short
    assert short.startswith("short (2 runs): At step 10 its accuracy is ")


def test_seeds_have_a_thick_mean_where_all_of_them_have_values(viewer, tmp_path: Path):
    # y = x and y = 3 x at other steps, on 1..9 and on 2..12: their mean is 2 x on 2..9.
    for name, factor, steps in (("a-seed0", 1, (1, 4, 9)), ("a-seed1", 3, (2, 5, 7, 12)), ("b", 1, (1, 2))):
        stream = MetricsStream(tmp_path / name / "metrics.jsonl")
        for step in steps:
            stream.append({STEP: step, "critic/score/mean": float(factor * step)})
    one = viewer()
    runs = [str(tmp_path / name) for name in ("a-seed0", "a-seed1", "b")]
    page = one.open(_page(["compare", *runs], tmp_path / "page.html"), "?metrics=critic/score/mean")
    chart = page.locator("figure[data-metric='critic/score/mean'] .chart")
    expect(chart.locator(".main-svg").first).to_be_visible()
    drawn = chart.evaluate("chart => chart.data.map(({name, x, y, line}) => [name, x, y, line.width, line.color])")
    assert [name for name, *_ in drawn] == ["a-seed0", "a-seed1", "b", "mean of a (2 runs)"]
    _, x, y, width, colour = drawn[-1]
    assert x == [2, 4, 5, 7, 9]
    assert y == pytest.approx([2 * step for step in x])
    assert width > drawn[2][3] > drawn[0][3] == drawn[1][3]
    assert colour == drawn[0][4] == drawn[1][4] != drawn[2][4]
    expect(page.locator("#runs")).to_contain_text("thick: the mean of the runs of a configuration")
