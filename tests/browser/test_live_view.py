"""The live view: what a run appends appears in the browser, and no other site can read it."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from recipe.golden_redaction.pages.trace import TraceSource
from recipe.golden_redaction.pages.trace_data import TraceBook
from recipe.golden_redaction.records.records import TrainingRecords
from verl_ext.report.page import render
from verl_ext.report.server import make_server


@pytest.fixture
def records(tmp_path: Path) -> TrainingRecords:
    """Records of a run that has not written anything yet."""
    return TrainingRecords(tmp_path / "golden_entries.jsonl")


@pytest.fixture
def address(records, tmp_path: Path) -> Iterator[str]:
    """Address of a server that follows the run."""
    server = make_server(TraceSource(tmp_path / "golden_entries.jsonl", TraceBook()))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_appended_before_the_page_first_asks_comes_up_too(viewer, records, address, entries):
    page = viewer().page
    # The page is open, and its first request waits until the run has written more.
    waiting = []
    page.route("**/version", lambda route: waiting.append(route) if not waiting else route.continue_())
    page.goto(address)
    expect(page.locator(".found")).to_contain_text("0 of 0 states")
    records.append(entries[:5])
    while not waiting:
        page.wait_for_timeout(50)
    waiting[0].continue_()
    expect(page.locator(".found")).to_contain_text("5 of 5 states", timeout=15_000)


def test_new_records_come_up_by_themselves(viewer, records, address, entries):
    page = viewer().page
    page.goto(address)
    found = page.locator(".found")
    expect(found).to_contain_text("0 of 0 states")
    records.append(entries[:5])
    expect(found).to_contain_text("5 of 5 states", timeout=15_000)
    kept = records.num_bytes
    page.locator("[data-row='3']").click()
    expect(page.locator(".rollout").first).to_be_visible()
    page.go_back()
    page.locator("input[name=problem]").fill(entries[5]["problem"])
    records.append(entries[5:9])
    expect(found).to_contain_text("of 9 states", timeout=15_000)
    # The reader's filter stays unchanged.
    expect(page.locator("input[name=problem]")).to_have_value(entries[5]["problem"])
    # The run is killed, and resumed from a checkpoint; it then writes more than there was.
    records.cut_back_to(kept)
    records.append(entries[10:16])
    expect(found).to_contain_text("of 11 states", timeout=15_000)


def test_the_served_page_is_small_and_the_same(records, address, entries, tmp_path: Path):
    records.append(entries[:2])
    with urllib.request.urlopen(address) as answer:
        page = answer.read().decode()
    assert "data-block" not in page.partition("<script>")[0]
    source = TraceSource(tmp_path / "golden_entries.jsonl", TraceBook())
    source.refresh()
    with urllib.request.urlopen(f"{address}/block/index") as answer:
        assert answer.read().decode() == source.page().blocks["index"]
    assert len(page) < len(render(source.page()))


def test_a_file_that_is_no_trace_is_said_and_the_server_goes_on(records, address, entries, tmp_path: Path):
    path = tmp_path / "golden_entries.jsonl"
    path.write_text("no JSON\n")
    with pytest.raises(urllib.error.HTTPError, match="500") as raised:
        urllib.request.urlopen(f"{address}/version")
    assert "line 1: not a line of JSON" in raised.value.read().decode()
    path.unlink()
    records.append(entries[:1])
    with urllib.request.urlopen(f"{address}/version") as answer:
        assert answer.status == 200


def test_a_page_of_the_web_cannot_read_it_through_another_name(address):
    request = urllib.request.Request(f"{address}/block/index", headers={"Host": "evil.example:80"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/block/../../etc/passwd")
