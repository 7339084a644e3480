"""Every page on a phone: nothing scrolls sideways, and what matters is in sight."""

import time
from pathlib import Path

import pytest
from made_run import MadeRun
from playwright.sync_api import expect

from verl_ext.report.__main__ import main


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


PAGES = {
    "report_page": ("overview", "curves", "configuration", "samples", "curriculum", "influence"),
    "seeds_page": ("curves", "numbers", "configuration"),
    "trace_page": ("table",),
    "golden_page": (),
    "failed_page": ("overview", "configuration"),
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_scrolls_sideways(viewer, request, name, theme, width):
    one = viewer(color_scheme=theme)
    file = request.getfixturevalue(name)
    one.page.set_viewport_size({"width": width, "height": 844})

    def check_width(view: str | None) -> None:
        page.wait_for_timeout(400)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, view

    for view in PAGES[name] or (None,):
        page = one.open(file, f"?view={view}" if view else "")
        check_width(view)
        if width == 390 and view in ("overview", "curriculum", "table"):
            one.shot(f"phone-{view}-{theme}")
    if name == "trace_page":
        page.locator("[data-row='0'] .chip").first.click()
        expect(page.locator(".story, #actions").first).to_be_visible()
        check_width("state")
        page = one.open(file)
        page.locator("[data-row='0'] .problem").first.click()
        expect(page.locator(".tokens .token").first).to_be_visible()
        check_width("problem")
    if name == "golden_page":
        for task in request.getfixturevalue("tasks"):
            page = one.open(file, f"?task={task}")
            expect(page.locator("body")).to_contain_text(task)
            expect(page.locator("canvas").first).to_be_visible()
            check_width(task)
        if width == 390:
            one.shot(f"phone-golden-task-{theme}")
    if name == "failed_page":
        page = one.open(file)
        expect(page.locator("#state")).to_contain_text("x" * 300)
        check_width("error")
        if width == 390:
            one.shot(f"phone-failed-{theme}")


def test_on_a_phone_the_first_chart_and_the_actions_are_in_sight(viewer, report_page, trace_page):
    one = viewer()
    one.page.set_viewport_size({"width": 390, "height": 844})
    page = one.open(report_page, "?view=curves")
    expect(page.locator("figure .chart").first).to_be_in_viewport()
    expect(page.locator("input[name=metric]").first).to_be_hidden()
    page = one.open(trace_page)
    expect(page.locator("[data-row='0'] .chip").first).to_be_in_viewport()
