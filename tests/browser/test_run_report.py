"""The report of a run and the comparison of runs: every view has its own address, and shows what was measured."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from made_run import COMMAND, HOSTILE, MadeRun, write_influence
from playwright.sync_api import expect

from verl_ext.report.__main__ import main
from verl_ext.report.curves import columns, smooth
from verl_ext.report.run import RunSource
from verl_ext.report.run_records import read_run
from verl_ext.report.run_samples import NUM_STEPS, NUM_TEXTS
from verl_ext.report.server import make_server
from verl_ext.report.warning_rules import LOGS

ACCURACY = "val-core/arithmetic/acc/mean@1"
LOGS_FOLDER = "/tmp/ray/session_2026/logs"


def _page(command: list[str], output: Path) -> Path:
    assert main([*command, "--output", str(output)]) == 0
    return output


@pytest.fixture(scope="session")
def fast_dapo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a curriculum, influence scores, hostile texts and one problem."""
    folder = tmp_path_factory.mktemp("runs") / "fast_dapo"
    folder.mkdir()
    run = MadeRun(folder)
    run.write_settings()
    run.train(40).train(40, **{"curriculum/unaccounted_rollouts": 3.0}).finish()
    run.status.change(logs=LOGS_FOLDER)
    write_influence(folder, steps=12, size=60, with_text=True)
    return folder


@pytest.fixture(scope="session")
def run_page(fast_dapo_run: Path) -> Path:
    """The run's page."""
    return _page(["run", str(fast_dapo_run)], fast_dapo_run / "run.html")


@pytest.fixture(scope="session")
def compare_page(fast_dapo_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That run next to a slower, unfinished one without a curriculum."""
    folder = tmp_path_factory.mktemp("runs") / "slower"
    folder.mkdir()
    run = MadeRun(folder, seed=3, slow=1.7)
    run.write_settings(curriculum={"enable": False})
    run.train(50)
    return _page(["compare", str(fast_dapo_run), str(folder)], folder / "compare.html")


def _drawn(page, metric: str):
    """The curve's numbers in plotly: [x, y] of each run's trace that has hover labels."""
    chart = page.locator(f"figure[data-metric='{metric}'] .chart")
    expect(chart.locator(".main-svg").first).to_be_visible(timeout=20_000)
    return chart.evaluate("chart => chart.data.filter((trace) => trace.hoverinfo !== 'skip').map(({x, y}) => [x, y])")


def _hover(page, chart, share: float = 0.5, height: float = 0.5) -> str:
    """Text of the hover label at these fractions of the chart's width and height."""
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + share * box["width"], box["y"] + height * box["height"])
    page.mouse.move(box["x"] + share * box["width"] + 1, box["y"] + height * box["height"])
    label = chart.locator(".hoverlayer .hovertext").first
    expect(label).to_be_visible()
    return label.text_content()


def _wait(page, is_so: Callable[[], bool], seconds: int = 15) -> None:
    """Wait for a condition; Playwright's own waiting evaluates strings, which the page's security policy forbids."""
    for _ in range(10 * seconds):
        if is_so():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not come")


def test_the_overview_says_what_is_wrong_and_where_time_and_rollouts_went(viewer, run_page):
    one = viewer()
    page = one.open(run_page)
    expect(page.locator(".state")).to_have_text("finished")
    expect(page.locator("#facts")).to_contain_text(
        "12.0 % → 80.0 % (+68.0 points), ± 3.5 points at most (95 %, 512 prompts)"
    )
    expect(page.locator("#facts tr").filter(has_text=LOGS)).to_contain_text(LOGS_FOLDER)
    expect(page.locator(".warning.problem")).to_contain_text("unaccounted rollouts")
    expect(page.locator(".warning.problem")).to_contain_text("at steps 80")
    rows = [row.split("\t") for row in page.locator("#conservation tbody").inner_text().splitlines()]
    counts = {row[0]: int(row[1].replace(",", "")) for row in rows}
    generated = counts.pop("generated")
    assert counts["trained"] > 0
    assert counts["unaccounted"] == 0
    assert sum(counts.values()) == generated
    # The whole hour between start and end is accounted for.
    seconds = page.locator("#phases").evaluate(
        "chart => Object.fromEntries(chart.data[0].y.map((y, i) => [y, chart.data[0].x[i]]))"
    )
    assert sum(seconds.values()) == pytest.approx(3600, rel=1e-3)
    drawn, inner = (page.locator(f"#phases{part}").bounding_box()["height"] for part in ("", " .main-svg >> nth=0"))
    assert drawn <= inner + 2, "a gap below the bars"
    assert seconds["start-up"] == pytest.approx(60, rel=1e-3)
    assert seconds["validation"] == pytest.approx(8 * 2.5 + 3, rel=1e-3)
    assert _hover(page, page.locator("#phases"), 0.3, height=0.07).startswith("outside of steps: ")
    page.mouse.move(0, 0)
    one.shot("run-overview")
    page.locator(".warning a").click()
    expect(page).to_have_url(re.compile("metrics=curriculum%2Funaccounted_rollouts"))
    assert _drawn(page, "curriculum/unaccounted_rollouts")[0][1][-1] == 3


def test_the_address_restores_the_curves_and_their_smoothing_is_the_modules(viewer, run_page, fast_dapo_run):
    one = viewer()
    page = one.open(run_page, "?view=curves&metrics=actor/entropy,critic/score/mean&smooth=0.9&x=rollouts")
    table = columns(read_run(fast_dapo_run).metrics)
    for metric in ("actor/entropy", "critic/score/mean"):
        ((x, y),) = _drawn(page, metric)
        # The record before training has only accuracies.
        assert x == table["training/total/rollouts_generated"][1:]
        assert y == pytest.approx(smooth(table[metric], 0.9)[1:], rel=1e-4)
    assert page.locator("figure[data-metric]").count() == 2
    expect(page.locator("output")).to_have_text("0.90")
    expect(page.locator("[data-axis=rollouts]")).to_have_attribute("aria-pressed", "true")
    hovered = _hover(page, page.locator("figure .chart").first)
    assert "rollouts" in hovered
    assert "measured" in hovered
    one.shot("run-curves")


def test_metrics_are_searched_and_chosen_and_the_address_has_it(viewer, run_page):
    page = viewer().open(run_page, "?view=curves")
    page.keyboard.press("/")
    page.keyboard.type("entr")
    expect(page.locator(".found")).to_contain_text("1 of ")
    page.keyboard.press("Escape")
    box = page.locator("input[name=metric]")
    expect(box).to_have_count(1)
    expect(box).to_be_checked()
    box.uncheck()
    expect(page.locator("figure[data-metric='actor/entropy']")).to_have_count(0)
    page.locator("input[name=search]").fill("curriculum total trained rollouts")
    page.locator("input[name=metric]").check()
    expect(page.locator("figure[data-metric='curriculum/total/trained_rollouts'] .main-svg").first).to_be_visible()
    expect(page).to_have_url(re.compile("curriculum%2Ftotal%2Ftrained_rollouts"))
    expect(page).not_to_have_url(re.compile("entropy"))
    other = viewer().open(run_page, page.evaluate("location.href").partition("run.html")[2])
    expect(other.locator("input[name=search]")).to_have_value("curriculum total trained rollouts")
    expect(other.locator("figure[data-metric]")).to_have_count(page.locator("figure[data-metric]").count())


def test_the_keyboard_reaches_every_view_and_the_smoothing(viewer, run_page):
    page = viewer().open(run_page)
    for key, name in zip(
        "123456", ("overview", "curves", "configuration", "samples", "curriculum", "influence"), strict=True
    ):
        page.keyboard.press(key)
        expect(page.locator("a.tab[aria-current=page]")).to_have_text(name)
    page.keyboard.press("2")
    for key in ("]", "]", "]", "["):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("smooth=0.6"))
    page.keyboard.press("x")
    expect(page).to_have_url(re.compile("x=seconds"))
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("smooth"))
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("next horizontal axis")
    page.keyboard.press("?")
    page.go_back()
    expect(page.locator("a.tab[aria-current=page]")).to_have_text("influence")


def test_the_configuration_shows_what_was_typed_first_and_is_filtered(viewer, run_page):
    page = viewer().open(run_page, "?view=configuration")
    expect(page.locator("#command")).to_contain_text(COMMAND)
    page.locator("#copy").click()
    expect(page.locator("#copy")).to_have_text(re.compile("copied|selected"))
    expect(page.locator("#versions")).to_contain_text("hydra 1.3.2")
    expect(page.locator("[data-row='0']")).to_contain_text("actor_rollout_ref.actor.optim.lr")
    expect(page.locator("[data-row='0']")).to_contain_text("command line")
    page.locator("#only-chosen").click()
    page.locator("input[name=search]").fill("probs_diff")
    expect(page.locator(".found")).to_have_text("1 of 6 keys")
    expect(page).to_have_url(re.compile("only=chosen"))
    expect(page.locator("[data-row='0']")).to_contain_text("backend")


def test_the_curriculum_shows_a_prompts_history(viewer, run_page, fast_dapo_run):
    one = viewer()
    page = one.open(run_page, "?view=curriculum&prompt=17")
    expect(page.locator("[data-row].selected code")).to_have_text("17")
    page.locator("#prompt summary").click()
    events = [json.loads(line) for line in (fast_dapo_run / "prompts.jsonl").read_text().splitlines()]
    own = [event for event in events if event["index"] == 17]
    expect(page.locator("#history tbody tr")).to_have_count(len(own))
    shares = page.locator("#histograms").evaluate("chart => chart.data.map(({y}) => y)")
    assert len(shares) == 5
    assert [sum(column) for column in zip(*shares, strict=True)] == pytest.approx([1.0] * len(shares[0]))
    points = page.locator("#accuracy").evaluate("chart => [chart.data[0].x, chart.data[0].y]")
    assert points[0][0] == 0
    assert points[1][0] == 0.12
    assert "passed" in _hover(page, page.locator("#histograms"))
    page.mouse.move(0, 0)
    one.shot("run-curriculum")
    page.keyboard.press("/")
    page.keyboard.type("script")
    expect(page.locator(".found")).to_have_text("1 of 60 prompts")
    page.locator("[data-row='0']").click()
    expect(page.locator("#prompt h2")).to_have_text(f"Prompt {HOSTILE}")
    expect(page.locator("#prompt-text")).to_have_text(f"You are a careful calculator. {HOSTILE} End with the number.")
    expect(page).to_have_url(re.compile("prompt=%3C%2Fscript"))


def test_the_influence_view_shows_both_ends_of_the_run_and_of_a_step(viewer, run_page):
    one = viewer()
    page = one.open(run_page, "?view=influence")
    scores = [float(text) for text in page.locator("#highest tbody td:first-child").all_inner_texts()]
    assert len(scores) == 100
    assert scores == sorted(scores, reverse=True)
    counts = page.locator("#scores").evaluate("chart => chart.data.map(({y}) => y)")
    assert sum(map(sum, counts)) == 12 * 60
    assert "samples, reward" in _hover(page, page.locator("#scores"))
    page.keyboard.press("j")
    expect(page.locator("#all-steps")).to_contain_text("step 1 ")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("step=2"))
    expect(page.locator("#lowest tbody tr")).to_have_count(10)
    assert set(page.locator("#lowest tbody td:nth-child(5)").all_inner_texts()) == {"2"}
    page.mouse.move(0, 0)
    one.shot("run-influence")


def test_hostile_names_and_texts_are_shown_as_text(viewer, run_page):
    for query in ("?view=configuration&search=script", "?view=curriculum&search=script", "?view=influence"):
        page = viewer().open(run_page, query)
        expect(page.locator("#main")).to_contain_text("</script><img")
        assert page.evaluate("() => 'hacked' in window || document.querySelector('img, main script') !== null") is False
    page = viewer().open(run_page, "?view=%3Cimg%20src=x%20onerror=window.hacked=1%3E")
    expect(page.locator("#main")).to_contain_text("this run has no view <img")
    page.locator("a.tab", has_text="overview").click()
    expect(page.locator("#facts")).to_be_visible()


def test_runs_are_compared_over_what_the_address_says(viewer, compare_page, fast_dapo_run):
    one = viewer(color_scheme="dark")
    page = one.open(compare_page, f"?metrics={ACCURACY},actor/entropy&x=seconds&smooth=0.6")
    expect(page.locator("#runs")).to_have_text("fast_daposlower")
    fast, slow = _drawn(page, ACCURACY)
    assert (len(fast[0]), len(slow[0])) == (9, 6)
    assert (fast[0][0], fast[1][0]) == (0, 0.12)
    table = columns(read_run(fast_dapo_run).metrics)
    assert fast[0][-1] == pytest.approx(table["training/total/seconds"][-1], rel=1e-4)
    hovered = _hover(page, page.locator("figure .chart").first, 0.4)
    assert "seconds" in hovered
    page.mouse.move(0, 0)
    one.shot("run-compare")
    page.keyboard.press("2")
    expect(page.locator("#numbers")).to_contain_text("training, step 50 of 200")
    steps = page.locator("#numbers tr", has_text="global steps").locator("td")
    expect(steps).to_have_text(["global steps", "80", "50"])
    # Differences compare both runs at the same step.
    after = page.locator("#common tr", has_text="val accuracy after").locator("td")
    expect(after.nth(2)).to_have_text(re.compile(r"^34.9 % \(.20.0 points\)$"))
    expect(page.locator("#common tr", has_text="global steps").locator("td")).to_have_text(["global steps", "50", "50"])
    costs = page.locator("#levels tbody tr").first.locator("td")
    expect(costs.nth(0)).to_have_text("20 %")
    expect(costs.nth(2)).to_have_text(re.compile("rollouts \N{MULTIPLICATION SIGN}" r"\d\.\d\d, "))
    expect(page.locator("#levels tbody tr").last.locator("td").nth(2)).to_have_text("not reached")
    page.keyboard.press("3")
    expect(page.locator("#configuration tbody tr")).to_have_count(2)
    expect(page.locator("#configuration tbody tr").first).to_contain_text("curriculum.enable")
    page.locator("input[name=search]").fill("schedule")
    expect(page.locator("#configuration tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile("search=schedule"))


def test_a_run_of_another_recipe_says_what_it_lacks(viewer, run_folder, tmp_path: Path):
    page = viewer().open(_page(["run", str(run_folder)], tmp_path / "golden.html"), "?view=samples")
    expect(page.locator(".sample").first).to_contain_text("step ")
    expect(page.locator(".sample .times").first).to_contain_text("\N{MULTIPLICATION SIGN}")
    page.locator("#oldest").click()
    expect(page.locator(".sample").first).to_contain_text("step 1")
    expect(page.locator("a.tab")).to_have_text(["overview", "curves", "configuration", "samples"])
    page.keyboard.press("1")
    expect(page.locator("#main")).to_contain_text("No step is recorded yet")
    MadeRun(tmp_path / "textless").train(3)
    (tmp_path / "textless" / "rollouts.jsonl").unlink()
    page = viewer().open(_page(["run", str(tmp_path / "textless")], tmp_path / "textless.html"), "?view=samples")
    expect(page.locator("#no-samples")).to_contain_text("No rollouts were saved")
    expect(page.locator("#no-samples")).to_contain_text(f"up to {NUM_TEXTS} of a step, from up to {NUM_STEPS} steps")


def test_a_run_without_timers_shows_no_empty_chart(viewer, tmp_path: Path):
    run = MadeRun(tmp_path / "untimed")
    run.train(3)
    run.folder.status.unlink()
    lines = [json.loads(line) for line in run.folder.metrics.read_text().splitlines()]
    untimed = [{name: value for name, value in line.items() if not name.startswith("timing_s/")} for line in lines]
    run.folder.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in untimed))
    page = viewer().open(_page(["run", str(tmp_path / "untimed")], tmp_path / "untimed.html"))
    expect(page.locator("#main")).to_contain_text("The steps have no timers.")
    expect(page.locator("#phases")).to_have_count(0)


def test_a_run_without_golden_states_names_no_trace(viewer, run_page):
    page = viewer().open(run_page)
    expect(page.locator("#facts")).to_be_visible()
    expect(page.locator(".own-page")).to_have_count(0)


def test_a_live_page_follows_the_run(viewer, tmp_path: Path):
    run = MadeRun(tmp_path / "live")
    run.train(3)
    server = make_server(RunSource(tmp_path / "live"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page = viewer().page
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/?metrics=actor/entropy&smooth=0.6")
        assert len(_drawn(page, "actor/entropy")[0][0]) == 3
        run.train(2)
        _wait(page, lambda: len(_drawn(page, "actor/entropy")[0][0]) == 5)
        page.keyboard.press("1")
        expect(page.locator(".state")).to_have_text("training")
        run.finish()
        expect(page.locator(".state")).to_have_text("finished", timeout=15_000)
        page.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_dark_and_light_are_both_readable(viewer, run_page):
    one = viewer(color_scheme="light")
    page = one.open(run_page, "?view=curves&theme=dark")
    colour = "chart => getComputedStyle(chart.querySelector('.xtick text')).fill"
    chart = page.locator("figure .chart").first
    expect(chart.locator(".main-svg").first).to_be_visible()
    dark = chart.evaluate(colour)
    one.shot("run-curves-dark")
    page.keyboard.press("t")
    _wait(page, lambda: chart.evaluate(colour) != dark)
    expect(page).to_have_url(re.compile("theme=light"))
