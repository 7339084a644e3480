"""The influence view of a run that kept the texts of some samples: which rows have one, and which say so."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from made_run import MadeRun, write_influence
from playwright.sync_api import expect

from recipe.tracin.pages.influence_data import NUM_EXTREMES, NUM_STEP_EXTREMES
from recipe.tracin.run_files import INFLUENCE
from recipe.tracin.settings import TracInSettings
from verl_ext.core.json_lines import JsonLines
from verl_ext.report.__main__ import main

STEPS, SIZE = 12, 60
TEXTS = TracInSettings.model_fields["record_texts"].default


@pytest.fixture(scope="module")
def sparse_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with texts of the default number of samples at each end of a step's scores, as TracIn keeps them."""
    folder = tmp_path_factory.mktemp("sparse") / "run"
    folder.mkdir()
    MadeRun(folder).train(STEPS)
    write_influence(folder, steps=STEPS, size=SIZE, with_text=True)
    lines = JsonLines(folder / INFLUENCE)
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in lines.read():
        steps[record["step"]].append(record)
    lines.cut_back_to(0)
    for records in steps.values():
        for record in sorted(records, key=lambda one: one["score"])[TEXTS:-TEXTS]:
            del record["prompt"], record["response"]
        lines.append(records)
    assert main(["run", str(folder)]) == 0
    return folder


def _has_text(records: list[dict[str, Any]]) -> list[bool]:
    return ["response" in record for record in records]


@pytest.mark.parametrize("step", [None, 3])
def test_a_row_without_a_text_says_that_it_was_not_recorded(viewer, sparse_run, step):
    records = [one for one in JsonLines(sparse_run / INFLUENCE).read() if step in (None, one["step"])]
    ordered = sorted(records, key=lambda one: one["score"])
    number = NUM_EXTREMES if step is None else NUM_STEP_EXTREMES
    page = viewer().open(sparse_run / "report.html", f"?view=influence{'' if step is None else f'&step={step}'}")
    for name, ends in (("lowest", ordered[:number]), ("highest", ordered[::-1][:number])):
        expected = _has_text(ends)
        assert 0 < sum(expected) < number
        cells = page.locator(f"#{name} tbody td:last-child")
        expect(cells).to_have_count(number)
        texts = cells.all_inner_texts()
        assert [text != "not recorded" for text in texts] == expected
        assert cells.locator("button.response").count() == sum(expected)
    # A text that was kept is one click away.
    first = page.locator("#highest button.response").first
    first.click()
    sentence, *_ = ordered[-1]["response"].partition(" \u202e")
    expect(page.locator("#sample #response")).to_contain_text(sentence)
