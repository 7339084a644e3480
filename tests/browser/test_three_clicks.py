"""Common questions about a run are answered in at most three clicks, whatever its state."""

import json
import os
import re
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from made_run import MadeRun
from playwright.sync_api import expect

from verl_ext.report.__main__ import main
from verl_ext.report.compare_data import accuracy_points, level_rows
from verl_ext.report.curves import columns
from verl_ext.report.run_records import read_run
from verl_ext.run.run_folder import RunFolder


def _page(command: list[str], output: Path) -> Path:
    assert main([*command, "--output", str(output)]) == 0
    return output


class Clicks:
    """Counts the clicks of a person who has opened a page."""

    def __init__(self, page: Any) -> None:
        self.page, self.number = page, 0

    def on(self, locator: Any) -> None:
        self.number += 1
        assert self.number <= 3, "more than three clicks"
        locator.click()

    def tab(self, name: str) -> None:
        self.on(self.page.locator("a.tab", has_text=name))


# ------------------------------ the questions ------------------------------


def test_is_the_run_healthy_and_where_did_time_go(viewer, report_page):
    page = viewer().open(report_page)
    expect(page.locator("#state")).to_contain_text("finished after 40 steps")
    expect(page.locator("#main")).to_contain_text("No warnings.")
    expect(page.locator("#main")).to_contain_text("Time by phase: 1 h 0 min in all")
    expect(page.locator("#phases .main-svg").first).to_be_visible()
    # The legend of the areas over time: above them, each phase in the colour of its bar.
    over_time = page.locator("#phases-over-time")
    entries = over_time.locator(".legend .traces")
    expect(entries.first).to_be_visible()
    legend = entries.evaluate_all(
        "all => all.map((one) => [one.querySelector('.legendtext').textContent,"
        " getComputedStyle(one.querySelector('.legendlines path')).stroke])"
    )
    bars = page.locator("#phases").evaluate(
        "chart => chart.data[0].y.map((y, i) => [y, chart.data[0].marker.color[i]])"
    )
    shown = {name: f"rgb({', '.join(str(int(hex[i : i + 2], 16)) for i in (1, 3, 5))})" for name, hex in bars}
    assert sorted(name for name, _ in legend) == ["generation", "log-probs", "rest", "update", "validation"]
    assert dict(legend) == {name: shown[name] for name, _ in legend}
    box, areas = (over_time.locator(part).first.bounding_box() for part in (".legend", ".nsewdrag"))
    assert box["y"] + box["height"] <= areas["y"]


def _counts(page: Any) -> list[tuple[int, int]]:
    """(mixed, trained) of the prompts in sight."""
    expect(page.locator(".head [role=columnheader]").nth(3)).to_have_text("mixed")
    columns = (page.locator(f"[data-row] .cell:nth-child({place})").all_inner_texts() for place in (4, 5))
    return [(int(mixed), int(trained)) for mixed, trained in zip(*columns, strict=True)]


def test_hopeless_prompts_come_after_those_that_teach(viewer, tmp_path: Path):
    MadeRun(tmp_path, num_prompts=18, slow=9, is_default=True).train(4)
    events = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    # Nothing else is continued, and every screened prompt is trained on.
    mixed, trained = (
        Counter(str(event["index"]) for event in events if event["event"] == kind)
        for kind in ("continuation", "trained")
    )
    page = viewer().open(_page(["run", str(tmp_path)], tmp_path / "report.html"), "?view=curriculum")
    expect(page.locator("section h2").first).to_have_text("Which prompts teach? Most often mixed first")
    names = page.locator("[data-row] .cell:nth-child(2)").all_inner_texts()
    counts = _counts(page)
    assert counts == [(mixed[name], trained[name]) for name in names]
    assert counts == sorted(counts, reverse=True)
    states = page.locator("[data-row] .lot").all_inner_texts()
    first = states.index("hopeless")
    assert first > 0
    assert all(mixed for mixed, _ in counts[:first])
    # Counted only by training, a hopeless prompt would come before some of those that teach.
    assert counts[first][1] > min(trained for mixed, trained in counts if mixed)
    page.locator(".head [role=columnheader]", has_text="mixed").hover()
    expect(page.locator("#tip")).to_have_text("times its rollouts differed, so that it taught")


def test_which_prompts_teach(viewer, report_page, run_dir):
    one = viewer()
    clicks = Clicks(one.open(report_page))
    clicks.tab("curriculum")
    page = clicks.page
    counts = _counts(page)
    assert counts == sorted(counts, reverse=True)
    assert counts[0][0] > 1
    # In two phases nothing else is trained on.
    assert all(mixed == trained for mixed, trained in counts)
    clicks.on(page.locator("[data-state=learning]"))
    assert set(page.locator("[data-row] .lot").all_inner_texts()) == {"learning"}
    counts = [int(re.sub(r"\D", "", text)) for text in page.locator("[data-state]").all_inner_texts()]
    assert counts[0] == sum(counts[1:]) == 60
    row = page.locator("[data-row='1']")
    asked = row.locator(".cell").first.inner_text()
    clicks.on(row)
    expect(page.locator("#prompt-text")).to_contain_text(asked)
    expect(page.locator("#truth")).to_have_text(re.compile(r"^\d+$"))
    expect(page.locator("#prompt-chart .main-svg").first).to_be_visible()
    one.shot("run-prompt")
    # By data source: every prompt is in one of them.
    page.locator("[data-state='']").click()
    sources = page.locator("#sources tbody tr")
    assert sum(int(row.locator("td").nth(1).inner_text()) for row in sources.all()) == 60
    page.locator("#sources [data-source=words]").click()
    expect(page.locator(".found")).to_have_text("20 of 60 prompts")
    expect(page).to_have_url(re.compile("source=words"))


def test_what_does_the_policy_write_now(viewer, report_page):
    one = viewer()
    clicks = Clicks(one.open(report_page))
    clicks.tab("samples")
    page = clicks.page
    newest = page.locator(".sample").first
    expect(newest).to_contain_text("step 40")
    expect(newest).to_contain_text("Two times 5 is 10.")
    # Two equal rollouts are shown as one, with their number.
    expect(newest.locator(".times")).to_have_text("2\N{MULTIPLICATION SIGN}")
    one.shot("run-samples")
    clicks.on(page.locator("[data-reward='0']"))
    expect(page.locator(".found")).to_have_text("40 of 80 rollouts")
    assert set(page.locator(".reward-of").all_inner_texts()) == {"reward 0"}
    page.locator("input[name=step]").fill("3-5")
    expect(page.locator(".sample")).to_have_count(3)
    page.locator("input[name=search]").fill("step 4.")
    expect(page.locator(".sample")).to_have_count(1)
    expect(page).to_have_url(re.compile("reward=0"))
    expect(page).to_have_url(re.compile("step=3-5"))
    # A character that reverses the direction of the text after it is shown as its code.
    expect(page.locator(".sample pre").last).to_have_text("I do not know at step 4. ⟨U+202E⟩evil")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator(".found")).to_have_text("80 of 80 rollouts")
    page.locator(".of-prompt").first.click()
    expect(page.locator("#prompt h2")).to_have_text("Prompt 5")
    expect(page.locator("#recorded")).to_have_text(re.compile(r"^its recorded rollouts \([1-9]\d*\)$"))
    page.locator("#recorded").click()
    expect(page.locator(".found")).to_have_text(re.compile(r"^[1-9]\d* of 80 rollouts$"))


def test_a_long_text_is_clamped_and_can_be_opened(viewer, report_page):
    page = viewer().open(report_page, "?view=samples&step=40&reward=0")
    long = page.locator("pre.clamped").last
    height = long.bounding_box()["height"]
    assert height < 320
    page.locator("button.more").last.click()
    assert long.bounding_box()["height"] > height
    expect(page.locator("button.more").last).to_have_text("less")


def test_which_rollouts_had_the_highest_influence_and_what_do_they_say(viewer, report_page):
    one = viewer()
    clicks = Clicks(one.open(report_page))
    clicks.tab("influence")
    page = clicks.page
    clicks.on(page.locator("[data-only=failed_high]"))
    rows = page.locator("#failed_high tbody tr")
    assert set(page.locator("#failed_high td:nth-child(2)").all_inner_texts()) == {"0"}
    scores = [float(text) for text in page.locator("#failed_high td:first-child").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0
    said = rows.first.locator("button.response").inner_text()
    # Characters that reverse the direction of the text after them are shown as their codes.
    assert re.match(r"It is \d+\. ⟨U\+202E⟩⟨U\+2067⟩evil ", said)
    clicks.on(rows.first.locator("button.response"))
    expect(page.locator("#response")).to_have_text(said)
    expect(page.locator("#sample")).to_contain_text("What is 1 + 1?")
    page.mouse.move(0, 0)
    one.shot("run-influence-response")
    page.locator("#sample a").click()
    expect(page.locator("#prompt h2")).to_contain_text("Prompt ")


def test_which_token_was_pushed_up_why_and_did_it_move(viewer, trace_page):
    clicks = Clicks(viewer().open(trace_page))
    page = clicks.page
    clicks.on(page.locator("[data-only=up]"))
    clicks.on(page.locator("[data-row='0'] .chip[data-advantage='1']").first)
    expect(page.locator(".story")).to_contain_text("was pushed up")
    expect(page.locator(".story")).to_contain_text("rollouts passed")
    expect(page.locator(".story")).to_contain_text("Did it move?")


def test_which_of_these_runs_is_better_and_by_how_much(viewer, seeds_page):
    one = viewer()
    clicks = Clicks(one.open(seeds_page))
    clicks.tab("numbers")
    page = clicks.page
    tables = [columns(read_run(path).metrics) for path in sorted(seeds_page.parent.iterdir()) if path.is_dir()]
    level, costs = next(
        row for row in reversed(level_rows([accuracy_points(table) for table in tables])) if all(row[1])
    )
    *fast, other = (rollouts for rollouts, _ in costs)
    ratio = f"{other / mean(fast):.2f}"
    accuracies = [[value for value in table["val-core/arithmetic/acc/mean@1"] if value][-1] for table in tables]
    points = 100 * (mean(accuracies[:3]) - accuracies[3])
    assert points > 1
    expect(page.locator("#verdicts li")).to_have_text(
        f"other needs {ratio} times the rollouts of fast (3 runs) to reach {level:.0%}; other is a single run. "
        f"At step 30 its accuracy is {points:.1f} points lower; other is a single run.".replace("%", " %")
    )
    row = page.locator("#groups tr", has_text=f"rollouts to {level:.0%}".replace("%", " %")).locator("td")
    expect(row.nth(2).locator("strong")).to_have_text(f"\N{MULTIPLICATION SIGN}{ratio}")
    expect(row.nth(1).locator("strong")).to_have_count(0)
    after = page.locator("#groups tr", has_text="val accuracy after at step 30").locator("td")
    expect(after.nth(2)).to_contain_text(f"(\N{MINUS SIGN}{points:.1f} points)")


# ------------------------------ runs that are unfinished or failed ------------------------------


def _ended(folder: Path, **status: Any) -> Path:
    folder.mkdir()
    run = MadeRun(folder)
    run.train(12)
    ago = {"started", "finished", "last_seen"}
    run.status.change(**{name: time.time() - value if name in ago else value for name, value in status.items()})
    return _page(["run", str(folder)], folder / "report.html")


ERROR = "the worker WorkerDict died: <b>out of memory</b>"


@pytest.mark.parametrize(
    ("status", "badge", "words"),
    [
        ({}, "training", r"^training step 12 of 200, about 1\d min left As of "),
        ({"state": "validating"}, "validating", r"^validating at step 12 of 200, about 1\d min left"),
        (
            {"state": "failed", "error": ERROR, "finished": 3 * 3600},
            "failed",
            rf"^failed at step 12 of 200, 3 h ago: {re.escape(ERROR)}$",
        ),
        (
            {"state": "interrupted", "error": "Ctrl-C", "finished": 600},
            "interrupted",
            r"^interrupted at step 12 of 200, 10 min ago: Ctrl-C; the same command resumes",
        ),
        (
            {"state": "failed", "step": 0, "error": "no room"},
            "failed",
            "^failed before the first step, .* ago: no room$",
        ),
        ({"pid": 2**22 + 7}, "died", r"^ended without an error message at step 12 of 200, last seen .* ago on "),
        ({"host": "another", "last_seen": 7200}, "died", r"last seen 2 h ago on another"),
        ({"state": "starting", "step": None, "started": 190}, "starting", r"^starting for 3 min"),
    ],
)
def test_what_a_run_is_doing_is_said(viewer, tmp_path: Path, status, badge, words):
    page = viewer().open(_ended(tmp_path / "run", **status))
    expect(page.locator(".state")).to_have_text(badge)
    expect(page.locator("#state")).to_have_text(re.compile(words))


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Asia/Kathmandu", "2026-01-15 17:45:00 (UTC+05:45)"),
        ("America/St_Johns", "2026-01-15 08:30:00 (UTC\N{MINUS SIGN}03:30)"),
        ("UTC", "2026-01-15 12:00:00 (UTC+00:00)"),
    ],
)
def test_times_are_those_of_the_reader_with_their_zone(viewer, tmp_path: Path, zone, shown):
    began = datetime(2026, 1, 15, 12, tzinfo=UTC).timestamp()
    page = viewer(timezone_id=zone).open(_ended(tmp_path / "run", host="h", started=time.time() - began))
    expect(page.locator("#facts tr").filter(has_text="started")).to_have_text(f"started{shown} on h")


def test_a_run_that_has_written_nothing_yet_is_shown(viewer, tmp_path: Path):
    (tmp_path / "run").mkdir()
    RunFolder(tmp_path / "run").status.write_text(
        json.dumps({"state": "starting", "started": time.time(), "last_seen": time.time(), "pid": os.getpid()})
    )
    page = viewer().open(_page(["run", str(tmp_path / "run")], tmp_path / "report.html"))
    expect(page.locator(".state")).to_have_text("starting")
    expect(page.locator("#main")).to_contain_text("No step is recorded yet")


# ------------------------------ addresses ------------------------------


def test_an_address_that_names_nothing_says_so_and_leads_back(viewer, report_page, trace_page):
    page = viewer().open(report_page, "?metrics=no/such,actor/entropy")
    expect(page.locator(".note.error")).to_have_text("This run has no metric no/such.")
    expect(page.locator("figure[data-metric='actor/entropy']")).to_be_visible()
    page = viewer().open(trace_page, "?view=nope")
    expect(page.locator("#main")).to_contain_text("there is no view nope; there are table")
    page.locator("header a", has_text="Trace of").click()
    expect(page.locator("[data-row='0']")).to_be_visible()
