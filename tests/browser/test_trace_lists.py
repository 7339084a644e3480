"""What the trace viewer counts, sorts and groups, compared with the entries of the trace."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from transformers import PreTrainedTokenizerFast

from recipe.golden_redaction.records.records import TrainingRecords
from recipe.golden_redaction.run_files import ENTRIES
from verl_ext.report.__main__ import main

PROBLEM, K, STEP = 0, 2, 3  # columns of the table


def num_rollouts(entries: list[dict[str, Any]]) -> int:
    return sum(len(action["rollouts"]) for entry in entries for action in entry["actions"])


def after(action: dict[str, Any]) -> float | None:
    """An action's log-prob after the update: the trainer's, otherwise the engine's."""
    trainer = action["log_prob_after_trainer"]
    return action["log_prob_after_engine"] if trainer is None else trainer


def measured(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The labelled actions that were measured after the update."""
    return [action for action in entry["actions"] if action["advantage"] and after(action) is not None]


def moved(entry: dict[str, Any]) -> float | None:
    return max((abs(after(action) - action["log_prob_before"]) for action in measured(entry)), default=None)


def gap(entry: dict[str, Any]) -> float | None:
    return max((abs(action["target"] - after(action)) for action in measured(entry)), default=None)


def test_filtered_rollouts_are_counted_beside_all_of_them(viewer, trace_page, entries):
    page = viewer().open(trace_page, "?problem=67a3")
    same = [entry for entry in entries if entry["problem"] == "67a3c6ac"]
    assert 0 < num_rollouts(same) < num_rollouts(entries)
    expect(page.locator(".found")).to_have_text(
        f"{len(same)} of {len(entries)} states, {num_rollouts(same):,} of {num_rollouts(entries):,} rollouts"
    )


@pytest.mark.parametrize("sort", ["moved", "-moved", "gap", "-gap"])
def test_states_are_sorted_by_how_far_a_token_moved_and_how_far_its_target_is(viewer, trace_page, entries, sort):
    size, column = {"moved": (moved, 5), "gap": (gap, 6)}[sort.removeprefix("-")]
    known = [entry for entry in entries if size(entry) is not None]
    assert 1 < len(known) < len(entries)
    first = (max if sort.startswith("-") else min)(known, key=size)
    page = viewer().open(trace_page, f"?sort={sort}")
    cells = page.locator("[data-row='0'] .cell")
    expect(cells.nth(PROBLEM)).to_have_text(first["problem"])
    expect(cells.nth(K)).to_have_text(str(first["k"]))
    expect(cells.nth(STEP)).to_have_text(str(first["step"]))
    assert float(cells.nth(column).inner_text()) == pytest.approx(size(first), abs=0.006)
    # States without a number come last, whichever way.
    page.keyboard.press("End")
    expect(page.locator(f"[data-row='{len(entries) - 1}'] .cell").nth(column)).to_have_text("\N{EN DASH}")


def test_a_bar_counts_a_steps_moves_and_a_click_shows_that_step_only(viewer, trace_page, entries):
    page = viewer().open(trace_page)
    bars = page.locator("#moves .column")
    expect(bars).to_have_count(len({entry["step"] for entry in entries}))
    second = [entry for entry in entries if entry["step"] == 2]
    bar = page.locator("#moves [data-step='2']")
    bar.hover()
    labelled = sum(len(measured(entry)) for entry in second)
    expect(page.locator("#tip")).to_contain_text(f"step 2: {labelled} labelled tokens measured")
    bar.click()
    expect(page).to_have_url(re.compile(r"[?&]step=2(&|$)"))
    expect(page.locator(".rows .row")).to_have_count(len(second))
    steps = page.locator(f".rows .row .cell:nth-child({STEP + 1})").all_inner_texts()
    assert steps == ["2"] * len(second)
    page.locator("#moves [data-step='2']").click()
    expect(page.locator(".found")).to_contain_text(f"{len(entries)} of {len(entries)} states")


def test_equal_rollouts_are_shown_once_with_their_number_and_the_program_before_them(
    viewer, entries, model, golden_lengths, tmp_path: Path
):
    entry = copy.deepcopy(next(one for one in entries if golden_lengths[one["problem"]] - one["k"] > 8))
    action = entry["actions"][0]
    one = action["rollouts"][0]
    # Text, label and statuses of the fourth are its own.
    other = one | {"text": f"{one['text']}\n# another one", "reward": 0, "statuses": ["wrong_output"]}
    action["rollouts"] = [one, copy.deepcopy(one), copy.deepcopy(one), other]
    action["reward"] = 0.75 * one["reward"]
    TrainingRecords(tmp_path / "run" / ENTRIES).append([entry])
    (tmp_path / "run" / "hydra").mkdir()
    config = {"actor_rollout_ref": {"model": {"path": str(model)}}}
    (tmp_path / "run" / "hydra" / "config.yaml").write_text(json.dumps(config))
    assert main(["trace", str(tmp_path / "run"), "--output", str(tmp_path / "page.html")]) == 0
    address = {"view": "state", "problem": entry["problem"], "redacted": entry["k"], "step": entry["step"]}
    query = "&".join(f"{name}={value}" for name, value in (address | {"action": action["token"]}).items())
    page = viewer().open(tmp_path / "page.html", f"?{query}")
    expect(page.locator(".rollouts h2")).to_contain_text("4 rollouts (2 different) after ")
    rollouts = page.locator(".rollout")
    expect(rollouts).to_have_count(2)
    expect(rollouts.nth(0).locator(".times")).to_have_text("3\N{MULTIPLICATION SIGN}")
    expect(rollouts.nth(1).locator(".times")).to_have_count(0)
    # The number is its place among all four.
    expect(rollouts.nth(1).locator("summary")).to_contain_text("rollout 4 ")
    rollouts.nth(0).locator("summary").first.click()
    behind = rollouts.nth(0).locator("details", has_text="after this state")
    behind.locator("summary").click()
    shown = entry["prompt_ids"][entry["k"] - golden_lengths[entry["problem"]] :]
    visible = PreTrainedTokenizerFast.from_pretrained(model).decode(shown)
    assert visible.strip()
    assert behind.locator("pre").text_content() == visible
