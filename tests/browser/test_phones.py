"""Every page on a phone and on a wide screen: nothing scrolls sideways, and what matters is in sight."""

import time
from pathlib import Path
from urllib.parse import quote

import pytest
from made_run import HOSTILE, MadeRun, write_influence
from playwright.sync_api import expect

from recipe.fast_dapo.run_files import PROMPT_TEXTS, PROMPTS
from recipe.tracin.run_files import INFLUENCE
from verl_ext.core.json_lines import JsonLines
from verl_ext.report.__main__ import main
from verl_ext.run.rollout_texts import ROLLOUTS

LONG_NAME = "prompt-" + "n" * 300
# A model that repeats a letter until its last token: the longest text, without a place to break it.
LONG_TEXT = "x" * 28_000
LONG_KEY = "key-long"


def _page(command: list[str], output: Path) -> Path:
    assert main([*command, "--output", str(output)]) == 0
    return output


@pytest.fixture(scope="session")
def failed_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose error has a word as long as a path or a list of tensors' names may be."""
    folder = tmp_path_factory.mktemp("failed") / "run"
    folder.mkdir()
    run = MadeRun(folder).train(12)
    run.status.change(state="failed", error=f"cannot read {'x' * 300} of rank 0", finished=time.time() - 60)
    return _page(["run", str(folder)], folder / "report.html")


@pytest.fixture(scope="session")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one prompt whose name, source, texts and answers are as long as they may be, and of one word each."""
    folder = tmp_path_factory.mktemp("long") / "run"
    folder.mkdir()
    MadeRun(folder).train(12)
    asked = {"index": LONG_NAME, "prompt": LONG_TEXT, "ground_truth": "4" * 300, "data_source": "s" * 200}
    JsonLines(folder / PROMPT_TEXTS).append([asked])
    kept = asked | {"step": 12, "response": LONG_TEXT, "reward": 1.0, "tokens": 28_000}
    JsonLines(folder / ROLLOUTS).append([kept | {"group": {"rollouts": 16, "mean_reward": 0.5}}])
    screened = {"event": "screening", "index": LONG_NAME, "samples": 4, "passes": 2}
    JsonLines(folder / PROMPTS).append([{"step": 12, **screened}, {"step": 12, "event": "trained", "index": LONG_NAME}])
    write_influence(folder, steps=2, size=20)
    scored = {"step": 2, "index": LONG_NAME, "key": LONG_KEY, "reward": 1.0, "advantage": 0.5, "score": 9.0}
    JsonLines(folder / INFLUENCE).append([scored | {"weight": 1.0, "prompt": LONG_TEXT, "response": LONG_TEXT}])
    return _page(["run", str(folder)], folder / "report.html")


@pytest.fixture(scope="session")
def long_names_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose names and settings are long: two seeds of one configuration, and another one."""
    base = tmp_path_factory.mktemp("names")
    names = ["n" * 120, "-".join(["lr1e-4"] * 17 + ["x"]), "other"]
    assert [len(name) for name in names] == [120, 120, 5]
    for place, name in enumerate(names):
        (base / name).mkdir()
        run = MadeRun(base / name, seed=place)
        run.write_settings(data={"train_files": "/" + "fg"[place // 2] * 200})
        run.train(12 + place)
    return _page(["compare", *(str(base / name) for name in names)], base / "names.html")


# Addresses of each page, and what is visible once that view is drawn.
PAGES = {
    "report_page": {
        "?view=overview": "#phases .main-svg",
        "?view=curves": "figure .main-svg",
        "?view=configuration": "[data-row='0']",
        "?view=samples": ".sample",
        "?view=curriculum": "#flow .main-svg",
        f"?view=curriculum&prompt={quote(HOSTILE)}": "#prompt-text",
        "?view=influence": "#bands .main-svg",
        "?view=influence&sample={highest}": "#sample #response",
    },
    "long_page": {
        "?view=samples": ".sample",
        f"?view=samples&prompt={LONG_NAME}": ".sample .of-prompt",
        f"?view=curriculum&prompt={LONG_NAME}": "#prompt-text",
        f"?view=influence&sample={LONG_KEY}": "#sample #response",
    },
    "seeds_page": {
        "?view=curves": "figure .main-svg",
        "?view=numbers": "#groups",
        "?view=configuration": "#configuration",
    },
    "long_names_page": {
        "?view=curves": "figure .main-svg",
        "?view=numbers": "#groups",
        "?view=configuration": "#configuration",
    },
    "trace_page": {
        "?view=table": "[data-row='0'] .chip",
        "?view=problem&problem=67a3c6ac": "#timeline .main-svg",
    },
    "golden_page": {
        "": ".rows .row",
        **{f"?task={task}": ".pair canvas" for task in ("67a3c6ac", "74dd1130", "6150a2bd", "a416b8f3")},
    },
    "failed_page": {"?view=overview": "#state", "?view=configuration": "main"},
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_scrolls_sideways(viewer, request, name, theme, width):
    one = viewer(color_scheme=theme)
    file = request.getfixturevalue(name)
    page = one.page
    page.set_viewport_size({"width": width, "height": 844})
    shots = f"{'phone' if width == 390 else 'wide'}-{{}}-{theme}"

    def check_width(view: str) -> None:
        # Charts and the table's columns settle after they have been drawn.
        page.wait_for_timeout(200)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, view

    for address, drawn in PAGES[name].items():
        one.open(file, address.format(highest=_highest(file)) if "{" in address else address)
        expect(page.locator(drawn).first).to_be_visible(timeout=20_000)
        check_width(address)
        one.shot(shots.format(_shot_name(name, address)))
        page.evaluate("() => document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        check_width(f"{address}, all details open")
    if name == "trace_page":
        one.open(file)
        page.locator("[data-row='0'] .chip").first.click()
        expect(page.locator(".rollout summary").first).to_be_visible()
        check_width("state")
        one.shot(shots.format("trace-state"))
        page.locator(".rollout summary").first.click()
        expect(page.locator(".rollout[open] .program")).to_be_visible()
        check_width("rollout")
    if name == "failed_page":
        one.open(file)
        expect(page.locator("#state")).to_contain_text("x" * 300)


def _highest(page: Path) -> str:
    """The key of the run's highest influence score."""
    return max(JsonLines(page.parent / INFLUENCE).read(), key=lambda record: record["score"])["key"]


def _shot_name(name: str, address: str) -> str:
    values = [part.partition("=")[2] for part in address[1:].split("&")]
    page = name.removesuffix("_page").replace("_", "-")
    return "-".join([page, values[0] or "list", *("one" for _ in values[1:])])


def test_on_a_phone_the_first_chart_and_the_actions_are_in_sight(viewer, report_page, trace_page):
    one = viewer()
    one.page.set_viewport_size({"width": 390, "height": 844})
    page = one.open(report_page, "?view=curves")
    expect(page.locator("figure .chart").first).to_be_in_viewport()
    expect(page.locator("input[name=metric]").first).to_be_hidden()
    page = one.open(trace_page)
    expect(page.locator("[data-row='0'] .chip").first).to_be_in_viewport()


def test_long_names_leave_keys_and_numbers_readable(viewer, seeds_page, long_names_page, long_page):
    one = viewer()
    page = one.page

    def box(selector: str) -> dict[str, float]:
        found = page.locator(selector).first.bounding_box()
        assert found is not None
        return found

    page.set_viewport_size({"width": 390, "height": 844})
    one.open(seeds_page, "?view=configuration")
    assert box("#configuration tbody tr")["height"] < 60  # up to two lines, not one per letter
    one.open(long_names_page, "?view=numbers")
    for table in ("#levels", "#common"):
        number = box(f"{table} tbody td.number")
        assert number["x"] + number["width"] <= 390, table
    page.set_viewport_size({"width": 1440, "height": 844})
    one.open(long_page, f"?view=influence&sample={LONG_KEY}")
    expect(page.locator("#highest button.response")).to_be_visible()
    for cell in ("a", "button.response"):
        own, table = box(f"#highest tbody tr {cell}"), box(".scroll:has(#highest)")
        assert own["x"] + own["width"] <= table["x"] + table["width"], cell
