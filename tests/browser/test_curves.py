"""Curves and the names of metrics: NaN is seen, and a name says what it means, whoever logs the metric."""

from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from verl_ext.report.__main__ import main
from verl_ext.run.metrics_stream import STEP, MetricsStream


def _page(command: list[str], output: Path) -> Path:
    assert main([*command, "--output", str(output)]) == 0
    return output


def _expect_tip(page: Any, element: Any, *lines: str) -> None:
    page.mouse.move(0, 0)
    element.hover()
    expect(page.locator("#tip > div")).to_have_text(list(lines))


def test_nan_is_marked_on_the_curve_which_keeps_the_range_of_the_run(viewer, tmp_path: Path):
    stream = MetricsStream(tmp_path / "run" / "metrics.jsonl")
    for step in range(1, 21):
        value = float("nan") if step >= 13 else 1 / step
        stream.append({STEP: step, "actor/grad_norm": value, "actor/pg_loss": value, "critic/score/mean": 0.5})
    one = viewer()
    page = one.open(_page(["run", str(tmp_path / "run")], tmp_path / "report.html"))
    expect(page.locator(".warning")).to_have_count(1)
    expect(page.locator(".warning")).to_contain_text("NaN or Inf from step 13 on")
    norm = "norm of the gradient before clipping, mean over the step's updates [norm]"
    _expect_tip(page, page.locator(".warning a", has_text="show the curve"), "actor/grad_norm", norm)
    chart = page.locator("figure[data-metric='actor/grad_norm'] .chart")
    expect(chart).to_have_attribute("data-nulls", "8")
    shapes, reach = chart.evaluate("chart => [chart.layout.shapes.map((one) => one.x0), chart.layout.xaxis.range]")
    assert shapes == list(range(13, 21))
    assert reach[1] >= 20
    expect(page.locator("figure[data-metric='critic/score/mean'] .chart")).to_have_attribute("data-nulls", "0")


def test_nan_of_several_runs_is_marked_in_the_colours_of_the_runs(viewer, tmp_path: Path):
    nans = {"a": {13, 14, 15}, "b": set(), "c": {14, 19}, "always": set(range(1, 21))}
    for name, steps in nans.items():
        stream = MetricsStream(tmp_path / name / "metrics.jsonl")
        for step in range(1, 21):
            loss = float("nan") if step in steps else 1 / step
            stream.append({STEP: step, "training/total/rollouts_generated": 64 * step, "actor/pg_loss": loss})
    file = _page(["compare", *(str(tmp_path / name) for name in nans)], tmp_path / "c.html")
    page = viewer().open(file, "?metrics=actor/pg_loss,training/total/rollouts_generated&x=rollouts")
    chart = page.locator("figure[data-metric='actor/pg_loss'] .chart")
    expect(chart).to_have_attribute("data-nulls", "25")
    marks, curves = chart.evaluate(
        "chart => [chart.layout.shapes.map((one) => [one.line.color, one.x0, one.y0, one.y1]),"
        " Object.fromEntries(chart.data.map((one) => [one.name, one.line.color]))]"
    )
    swatches = page.locator("#runs .swatch").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(swatches)) == 4
    found = {color: {x / 64 for own, x, _, _ in marks if own == color} for color, *_ in marks}
    # A run without any number has no curve.
    always = next(color for color in found if color not in curves.values())
    assert found == {curves["a"]: nans["a"], curves["c"]: nans["c"], always: nans["always"]}
    # None hides another.
    rows = {color: {(low, high) for own, _, low, high in marks if own == color} for color in found}
    (lowest, middle, highest) = sorted(row for own in rows.values() for row in own)
    assert lowest[1] <= middle[0] < middle[1] <= highest[0]
    other = page.locator("figure[data-metric='training/total/rollouts_generated'] .chart")
    expect(other).to_have_attribute("data-nulls", "0")


def test_four_validation_sets_are_one_chart(viewer, tmp_path: Path):
    stream = MetricsStream(tmp_path / "run" / "metrics.jsonl")
    sets = ("aime24", "amc23", "openai/gsm8k", "openai/mmlu/algebra")
    for step in (1, 2, 3):
        accuracy = {f"val-core/{name}/acc/{kind}": step / 9 for name in sets for kind in ("mean@32", "best@32/mean")}
        stream.append({STEP: step, "critic/score/mean": 0.5, "actor/entropy": 1 / step, **accuracy})
    page = viewer().open(_page(["run", str(tmp_path / "run")], tmp_path / "report.html"))
    chart = page.locator("figure[data-metric=accuracies] .chart")
    expect(chart.locator(".main-svg").first).to_be_visible()
    assert chart.evaluate("chart => chart.data.map(({name}) => name)") == list(sets)
    expect(page.locator("figure[data-metric]")).to_have_count(3)


def test_metrics_say_what_they_mean(viewer, report_page):
    page = viewer().open(report_page)
    figure = page.locator("figure[data-metric='curriculum/qualified_share']")
    expect(figure.locator(".meaning")).to_contain_text("qualified / screened")
    figure.locator("figcaption a").hover()
    expect(page.locator("#tip")).to_contain_text("qualified / screened")
    page.goto(f"{page.url}?view=curves")
    page.locator("aside label", has_text="entropy").first.hover()
    expect(page.locator("#tip")).to_contain_text("entropy of the policy")


UNKNOWN = "no glossary describes it"


def test_a_metric_without_a_glossary_is_not_called_verls(viewer, tmp_path: Path):
    stream = MetricsStream(tmp_path / "run" / "metrics.jsonl")
    for step in range(1, 21):
        odd = float("nan") if step == 13 else 0.5
        own = {"uncut/cut_share": odd, "critic/novel": 0.5, "constructor": 0.5}
        stream.append({STEP: step, "actor/pg_loss": odd, "critic/vf_loss": float("nan"), **own})
    page = viewer().open(_page(["run", str(tmp_path / "run")], tmp_path / "report.html"))
    loss = "policy gradient loss; its size is not informative, NaN is [loss]"
    # A metric that was never a number has no curve.
    vf_loss = "the critic's loss: half its squared error, after clipping [score²]"
    warning = page.locator(".warning")
    _expect_tip(page, warning.locator("code", has_text="critic/vf_loss"), "critic/vf_loss", vf_loss)
    _expect_tip(page, warning.locator("code", has_text="actor/pg_loss"), "actor/pg_loss", loss)
    _expect_tip(page, warning.locator("code", has_text="uncut/cut_share"), "uncut/cut_share", UNKNOWN)
    expect(warning.locator("a")).to_have_count(0)
    metrics = "uncut/cut_share,critic/novel,constructor"
    page.goto(f"{page.url}?view=curves&metrics={metrics}")
    for name, meaning in zip(metrics.split(","), (UNKNOWN, "one of verl's own metrics", UNKNOWN), strict=True):
        _expect_tip(page, page.locator(f"figure[data-metric='{name}'] figcaption code"), name, meaning)
        _expect_tip(page, page.locator("aside label", has=page.locator(f"input[value='{name}']")), name, meaning)
    expect(page.locator("figure[data-metric=constructor] .meaning")).to_have_text("")


def test_the_numbers_of_compared_runs_say_what_they_mean(viewer, seeds_page, tmp_path: Path):
    page = viewer().open(seeds_page, "?view=numbers")
    for table, text, meaning in (
        ("common", "rollouts generated", "generated since the start of the run"),
        ("numbers", "seconds", "training steps since the start of the run, validation excluded"),
        ("groups", "val accuracy after at step 30", "mean over the validation sets, at the last validation"),
    ):
        name = page.locator(f"#{table} td:first-child span").get_by_text(text, exact=True)
        _expect_tip(page, name, meaning)
    for name in ("a", "b"):
        MetricsStream(tmp_path / name / "metrics.jsonl").append({STEP: 1, "actor/entropy": 0.5})
        (tmp_path / name / "summary.json").write_text('{"global_steps": 1, "novel": 3}')
    page = viewer().open(
        _page(["compare", str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "c.html"), "?view=numbers"
    )
    _expect_tip(page, page.locator("#numbers span", has_text="novel"), "of summary.json; no glossary describes it")
