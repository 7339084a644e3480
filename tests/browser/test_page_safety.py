"""Model output stays text wherever it is shown, and a page makes no network requests (see `viewer` in conftest)."""

import copy
import re
from pathlib import Path

import pytest
from made_trace import HOSTILE
from playwright.sync_api import expect

from recipe.golden_redaction.records.records import TrainingRecords
from verl_ext.report.__main__ import main

HOSTILE_NAME = "\"><img src=x onerror=\"window.hacked='name'\"><script>window.hacked='name'</script>"


def is_hacked(page) -> bool:
    return page.evaluate(
        "() => 'hacked' in window || document.querySelector('img, main script, .table script') !== null"
    )


@pytest.fixture
def hostile_page(entries, tmp_path: Path) -> Path:
    """A trace in which every text is hostile, in a folder with a hostile name."""
    folder = tmp_path / "run<img src=x onerror=window.hacked=1>"
    entry = copy.deepcopy(next(entry for entry in entries if any(a["advantage"] for a in entry["actions"])))
    entry["problem"] = HOSTILE_NAME
    for action in entry["actions"]:
        for rollout in action["rollouts"]:
            rollout["text"] = HOSTILE
            rollout["statuses"] = [HOSTILE_NAME] * len(rollout["statuses"])
    TrainingRecords(folder / "golden_entries.jsonl").append([entry])
    assert main(["trace", str(folder), "--output", str(tmp_path / "page.html")]) == 0
    return tmp_path / "page.html"


def test_hostile_text_is_shown_as_it_is_and_does_nothing(viewer, hostile_page):
    page = viewer().open(hostile_page)
    expect(page.locator("a.problem")).to_have_text(HOSTILE_NAME)
    page.locator(".table .chip").first.click()
    page.locator(".rollout summary").first.click()
    shown = page.locator(".rollout[open] .program").inner_text()
    # Every character of it; a browser may show the line separator in its own way.
    assert HOSTILE.rstrip("\u2028") in shown
    expect(page.locator(".rollout[open] .statuses")).to_contain_text(HOSTILE_NAME)
    page.locator("#actions tbody tr").first.hover()
    assert not is_hacked(page)
    page.locator("header a").nth(1).click()
    expect(page.locator("#timeline .main-svg").first).to_be_visible()
    expect(page.locator("header strong")).to_have_text(HOSTILE_NAME)
    assert not is_hacked(page)


def test_a_hostile_address_does_nothing(viewer, hostile_page):
    page = viewer().open(
        hostile_page, "?problem=%3Cimg%20src=x%20onerror=window.hacked=1%3E&view=%3Cscript%3E&theme=%22%3E"
    )
    expect(page.locator("#main")).to_contain_text("there is no view <script>")
    assert not is_hacked(page)


def test_the_content_security_policy_runs_no_script_but_ours(viewer, trace_page, tmp_path: Path):
    """The second barrier: even HTML that got into the page runs no script and makes no request."""
    injected = "<script>window.hacked=1</script><img src='https://example.com/x' onerror='window.hacked=1'></body>"
    path = tmp_path / "injected.html"
    path.write_text(trace_page.read_text().replace("</body>", injected))
    one = viewer()
    page = one.open(path)
    page.wait_for_timeout(300)
    assert page.evaluate("() => 'hacked' in window") is False
    # The browser reports up to three violations: the script, the image, and the image's handler.
    assert len(one.errors) >= 2
    assert all("Content Security Policy" in error for error in one.errors)
    one.errors.clear()
    one.requests[:] = [url for url in one.requests if "example.com" not in url]


def test_dark_and_light_follow_the_machine_and_the_switch(viewer, trace_page):
    def brightness(page) -> int:
        colour = page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor")
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))

    for scheme, is_light in (("light", True), ("dark", False)):
        page = viewer(color_scheme=scheme).open(trace_page)
        assert (brightness(page) > 380) == is_light
        page.keyboard.press("t")
        other = "dark" if is_light else "light"
        expect(page.locator("html")).to_have_attribute("data-theme", other)
        assert (brightness(page) > 380) != is_light
        expect(page).to_have_url(re.compile(f"theme={other}"))
        # The theme stays the same across views, as it is in the address.
        page.locator(".table .chip").first.click()
        expect(page.locator("#story")).to_be_visible()
        expect(page).to_have_url(re.compile(f"theme={other}"))
