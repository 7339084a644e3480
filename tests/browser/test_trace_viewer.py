"""The trace viewer in a browser: every view from its address, filters, hover, keyboard, and three clicks to a token."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from recipe.golden_redaction.method.movement import movement
from verl_ext.report.__main__ import main

# How a page writes numbers: a minus that is as wide as a plus, and a dash for unknown values.
MINUS, NOTHING = "\N{MINUS SIGN}", "\N{EN DASH}"


def state_query(entry: dict[str, Any], **more: Any) -> str:
    address = {"view": "state", "problem": entry["problem"], "redacted": entry["k"], "step": entry["step"], **more}
    return "?" + "&".join(f"{name}={value}" for name, value in address.items())


def pushed_up(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [action for action in entry["actions"] if action["advantage"] == 1]


def shown(number: float, digits: int = 3) -> str:
    return f"{number:.{digits}f}".replace("-", MINUS)


WORDS = {
    "intended": "✓ moved as intended",
    "overshot": "» overshot its target",
    "wrong_way": "✗ moved the wrong way",
    "still": "= did not move",
}


def way(action: dict[str, Any]) -> str:
    """How the update moved a labelled action, as measured in the trainer."""
    before, after = [action["log_prob_before"]], [action["log_prob_after_trainer"]]
    return movement(before, after, [action["target"]], [action["advantage"]]).kinds[0]


@pytest.fixture
def labelled(entries) -> dict[str, Any]:
    """A state with much for a page to show."""
    return next(entry for entry in entries if pushed_up(entry) and entry["step"] == 2 and len(entry["actions"]) > 2)


def test_three_clicks_lead_to_a_token_that_was_pushed_up_why_and_whether_it_moved(
    viewer, trace_page, entries, golden_lengths
):
    one = viewer()
    page = one.open(trace_page)
    page.locator("[data-only=up]").click()  # 1
    page.locator(".table .chip[data-advantage='1']").first.click()  # 2
    story = page.locator("#story")
    expect(story).to_be_visible()
    address = dict(pair.split("=") for pair in page.evaluate("location.href").partition("?")[2].split("&"))
    entry = next(
        entry
        for entry in entries
        if [entry["problem"], str(entry["k"]), str(entry["step"])]
        == [address[name] for name in ("problem", "redacted", "step")]
    )
    action = next(action for action in entry["actions"] if str(action["token"]) == address["action"])
    assert action["advantage"] == 1
    labels = [rollout["reward"] for rollout in action["rollouts"] if rollout["reward"] is not None]
    # Which token of which solution ...
    expect(story).to_contain_text(f"was pushed up, after token {golden_lengths[entry['problem']] - entry['k']} of the")
    expect(story).to_contain_text(f"golden solution of {entry['problem']}")
    # ... why ...
    expect(story).to_contain_text(f"{sum(labels)} of its {len(labels)} rollouts passed")
    expect(story).to_contain_text(f"confidence {shown(action['confidence'])}")
    # ... and whether it moved.
    after = action["log_prob_after_trainer"]
    expect(story).to_contain_text(f"Did it move? {WORDS[way(action)]}")
    expect(story).to_contain_text(f"(p {shown(math.exp(after), 2)}) after")
    expect(story).to_contain_text(
        f"{shown(action['log_prob_before'])} (p {shown(math.exp(action['log_prob_before']), 2)})"
    )
    page.locator(".rollout summary").first.click()  # 3
    expect(page.locator(".rollout[open] .statuses")).to_contain_text("train 0: ")
    # The program is the visible part of the solution, the action, and its continuation.
    expect(page.locator(".rollout[open] .program")).to_contain_text(action["rollouts"][0]["text"].strip()[:20])
    pushed = page.locator(".rollout[open] .program .pushed")
    assert action["rollouts"][0]["text"].startswith(pushed.text_content())
    assert page.locator(".rollout[open] .program").text_content().endswith(action["rollouts"][0]["text"])
    one.shot("trace_state")


def test_the_table_has_every_state_and_its_filters_are_in_the_address(viewer, trace_page, entries):
    one = viewer()
    page = one.open(trace_page)
    found = page.locator(".found")
    expect(found).to_contain_text(f"{len(entries)} of {len(entries)} states")
    one.shot("trace_table")
    page.locator("input[name=problem]").fill("67a3")
    same = [entry for entry in entries if entry["problem"] == "67a3c6ac"]
    expect(found).to_contain_text(f"{len(same)} of")
    expect(page).to_have_url(re.compile("problem=67a3"))
    page.locator("input[name=redacted]").fill("1-8")
    few = [entry for entry in same if entry["k"] <= 8]
    expect(found).to_contain_text(f"{len(few)} of")
    page.locator("input[name=step]").fill(str(few[-1]["step"]))
    expect(found).to_contain_text("1 of")
    # The link shows the same to anyone who opens it.
    other = viewer().open(trace_page, "?" + page.evaluate("location.href").partition("?")[2])
    expect(other.locator(".found")).to_contain_text("1 of")
    expect(other.locator("input[name=redacted]")).to_have_value("1-8")
    expect(other.locator(".table .rows .row")).to_have_count(1)


@pytest.mark.parametrize(
    ("only", "is_wanted"),
    [
        ("up", lambda entry: bool(pushed_up(entry))),
        ("unlabelled", lambda entry: all(action["advantage"] == 0 for action in entry["actions"])),
        (
            "failures",
            lambda entry: any(
                "infrastructure_error" in r["statuses"] for action in entry["actions"] for r in action["rollouts"]
            ),
        ),
    ],
)
def test_states_can_be_chosen_by_what_happened(viewer, trace_page, entries, only, is_wanted):
    page = viewer().open(trace_page, f"?only={only}")
    wanted = sum(map(is_wanted, entries))
    assert 0 < wanted < len(entries)
    expect(page.locator(".found")).to_contain_text(f"{wanted} of {len(entries)}")


def test_the_table_sorts_by_a_click_and_unknown_rewards_come_last(viewer, trace_page, entries):
    page = viewer().open(trace_page)
    page.get_by_role("columnheader", name="state reward").click()
    expect(page).to_have_url(re.compile("sort=reward"))
    lowest = min(entry["state_reward"] for entry in entries if entry["state_reward"] is not None)
    expect(page.locator(".row[data-row='0'] .cell").nth(4)).to_have_text(f"{lowest:.2f}")
    page.get_by_role("columnheader", name="state reward").click()
    highest = max(entry["state_reward"] for entry in entries if entry["state_reward"] is not None)
    expect(page.locator(".row[data-row='0'] .cell").nth(4)).to_have_text(f"{highest:.2f}")


def test_the_keyboard_goes_through_the_views(viewer, trace_page):
    page = viewer().open(trace_page)
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    expect(page.locator(".rows .row.selected")).to_have_attribute("data-row", "1")
    expect(page).to_have_url(re.compile("row=1"))
    page.keyboard.press("Enter")
    expect(page.locator("#story")).to_be_visible()
    actions = page.locator("#actions tbody tr")
    first = actions.nth(0).get_attribute("data-action")
    while page.locator("#actions tr.selected").get_attribute("data-action") != first:
        page.keyboard.press("k")
        page.wait_for_timeout(50)
    page.keyboard.press("j")
    expect(actions.nth(1)).to_have_class("selected")
    page.keyboard.press("Enter")
    expect(page.locator(".rollout[open]")).to_have_attribute("data-rollout", "0")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("next action")
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    before = page.evaluate("location.href")
    page.keyboard.press("ArrowRight")
    expect(page).not_to_have_url(before)
    page.keyboard.press("Escape")
    expect(page.locator(".table")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("jk?")
    expect(page.locator("input[name=problem]")).to_have_value("jk?")
    expect(page.locator("#help")).to_be_hidden()


def test_the_browsers_back_leads_to_what_was_seen_before(viewer, trace_page):
    page = viewer().open(trace_page, "?only=up")
    for is_patient in (True, False):
        page.locator(".table .chip").first.click()
        expect(page.locator("#story")).to_be_visible()
        if is_patient:
            expect(page.locator(".rollout").first).to_be_visible()
        page.go_back()
        expect(page.locator("[data-only=up]")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#story")).to_have_count(0)


def test_every_number_of_an_action_is_in_its_row(viewer, trace_page, labelled):
    page = viewer().open(trace_page, state_query(labelled))
    for action in labelled["actions"]:
        row = page.locator(f"#actions tr[data-action='{action['token']}']")
        cells = row.locator("td")
        expect(cells.nth(1)).to_have_text("teacher" if action["token"] == labelled["teacher"] else "sampled")
        labels = [rollout["reward"] for rollout in action["rollouts"]]
        expect(cells.nth(2)).to_have_text(f"{sum(labels)}/{len(labels)}")
        # JavaScript rounds a half up, Python to the even digit.
        expect(cells.nth(3)).to_have_text(f"{action['reward'] + 1e-9:.2f}")
        expect(cells.nth(4)).to_have_text(shown(action["confidence"]))
        names = ("target", "log_prob_before", "log_prob_after_trainer", "log_prob_after_engine", "log_prob_reference")
        for place, name in enumerate(names, 6):
            expect(cells.nth(place)).to_have_text(NOTHING if action[name] is None else shown(action[name]))


@pytest.mark.parametrize("kind", WORDS)
def test_each_way_of_moving_is_told(viewer, trace_page, entries, kind):
    entry, action = next(
        (entry, action)
        for entry in entries
        for action in entry["actions"]
        if action["advantage"] and action["log_prob_after_trainer"] is not None and way(action) == kind
    )
    page = viewer().open(trace_page, state_query(entry, action=action["token"]))
    expect(page.locator("#story")).to_contain_text(f"Did it move? {WORDS[kind]}")
    expect(page.locator("#story strong")).to_contain_text(
        "was pushed up" if action["advantage"] > 0 else "was pushed down"
    )
    expect(page.locator("#actions tr.selected td").last).to_contain_text(f"{WORDS[kind][0]} /")


def test_what_was_not_measured_is_said_and_not_invented(viewer, trace_page, entries):
    entry = next(entry for entry in entries if entry["step"] == 8 and pushed_up(entry))
    page = viewer().open(trace_page, state_query(entry, action=pushed_up(entry)[0]["token"]))
    expect(page.locator("#story")).to_contain_text("not measured")
    failing = next(
        entry
        for entry in entries
        if entry["step"] == 5 and any(action["reward"] is None for action in entry["actions"])
    )
    action = next(action for action in failing["actions"] if action["reward"] is None)
    page = viewer().open(trace_page, state_query(failing, action=action["token"]))
    expect(page.locator("#story")).to_contain_text("could be judged, so it has no label")
    expect(page.locator("#actions tr.selected .reward")).to_have_text("no label")


def test_hovering_a_token_shows_both_log_probs(viewer, trace_page, entries):
    entry = next(entry for entry in entries if "prompt_log_probs" in entry)
    one = viewer()
    page = one.open(trace_page, state_query(entry))
    place = len(entry["prompt_ids"]) - 3
    page.locator(f".tokens .token[data-place='{place}']").hover()
    policy, reference = (entry["prompt_log_probs"][name][place] for name in ("policy", "reference"))
    tip = page.locator("#tip")
    expect(tip).to_contain_text(f"policy before the update: {shown(policy)}")
    expect(tip).to_contain_text(f"reference: {shown(reference)}")
    one.shot("trace_hover")
    expect(tip).to_contain_text(re.compile(f"tuned {MINUS} reference: [+{MINUS}]"))
    token = page.locator(f".tokens .token[data-place='{place}']")
    expect(token).to_have_class(re.compile("rose" if policy >= reference else "fell"))
    expect(page.locator(".tokens .token[data-place='5']")).to_have_count(0)
    page.keyboard.press("p")
    expect(page.locator(".tokens .token[data-place='5']")).to_have_count(1)
    expect(page).to_have_url(re.compile("prompt=full"))


def test_the_golden_solution_shows_which_tokens_mattered(viewer, trace_page, entries, labelled):
    one = viewer()
    page = one.open(trace_page, f"?view=problem&problem={labelled['problem']}")
    mattered = {
        entry["k"]
        for entry in entries
        if entry["problem"] == labelled["problem"] and any(action["advantage"] for action in entry["actions"])
    }
    expect(page.locator(".tokens .mattered")).to_have_count(len(mattered))
    expect(page.locator("#timeline .main-svg").first).to_be_visible()
    # Both curves, one point per step.
    steps = sum(entry["problem"] == labelled["problem"] for entry in entries)
    expect(page.locator("#timeline .scatterlayer .trace")).to_have_count(2)
    expect(page.locator("#timeline .scatterlayer .trace").first.locator(".point")).to_have_count(steps)
    one.shot("trace_problem")
    page.locator(".tokens .mattered").first.click()
    expect(page.locator("#story")).to_contain_text("was pushed")


def test_outputs_are_drawn_beside_what_was_expected(viewer, trace_page, entries):
    entry, action, place = next(
        (entry, action, place)
        for entry in entries
        for action in entry["actions"]
        for place, rollout in enumerate(action["rollouts"])
        if "wrong_output" in rollout["statuses"] and action["advantage"]
    )
    one = viewer(color_scheme="dark")
    page = one.open(trace_page, state_query(entry, action=action["token"], rollout=place))
    pairs = page.locator(".rollout[open] .pair")
    expect(pairs).to_have_count(len(action["rollouts"][place]["statuses"]))
    expect(pairs.locator(".grid.wrong")).to_have_count(1)
    expect(pairs.locator(".grid.wrong")).to_contain_text("1 wrong")
    one.shot("trace_rollout_dark")


def test_an_address_of_nothing_says_so(viewer, trace_page):
    page = viewer().open(trace_page, "?view=state&problem=none&redacted=1&step=1")
    expect(page.locator("#main")).to_contain_text("there is no state of problem none")


def test_without_a_tokenizer_tokens_are_ids(viewer, run_folder: Path, tmp_path: Path, labelled):
    entries = tmp_path / "golden_entries.jsonl"
    entries.write_bytes((run_folder / "golden_entries.jsonl").read_bytes())
    assert main(["trace", str(entries), "--output", str(tmp_path)]) == 0
    page = viewer().open(tmp_path / "trace.html", state_query(labelled))
    expect(page.locator("#story")).to_contain_text(re.compile(r"token \d+ was pushed"))
