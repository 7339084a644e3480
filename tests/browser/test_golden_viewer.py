"""The golden viewer in a browser."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from recipe.golden_redaction.pages.golden import GoldenSource
from verl_ext.arc.solutions import read_pairs, read_solution
from verl_ext.report.__main__ import main
from verl_ext.report.page import render
from verl_ext.sandbox.policy import SandboxPolicy


def colours(page, canvas: str, rows: int, columns: int) -> list[list[str]]:
    """The colour of each cell of the first grid, away from its centre, where a number may be."""
    return page.evaluate(
        """([selector, rows, columns]) => {
            const canvas = document.querySelector(selector);
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const at = (place, count, size) => Math.floor((place + 0.2) * size / count);
            const colour = (row, column) => {
                const start = 4 * (at(row, rows, canvas.height) * canvas.width + at(column, columns, canvas.width));
                return [...data.slice(start, start + 3)].map((part) => part.toString(16).padStart(2, "0")).join("");
            };
            return Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) => colour(r, c)));
        }""",
        [canvas, rows, columns],
    )


def test_a_task_from_its_address_has_grids_solution_and_output(viewer, golden_page, tasks, golden_lengths):
    one = viewer()
    page = one.open(golden_page, "?task=a416b8f3")
    task = tasks["a416b8f3"]
    pairs = [*task.train, *task.test]
    expect(page.locator(".pair")).to_have_count(len(pairs))
    expect(page.locator(".pair .said .status.ok")).to_have_count(len(pairs))
    expect(page.locator(".pair").first.locator("canvas")).to_have_count(3)
    assert page.locator("pre.code").text_content() == read_solution("a416b8f3")
    expect(page.locator("pre.code .k").first).to_have_text("def")
    expect(page.locator(".facts")).to_contain_text(f"{golden_lengths['a416b8f3']} golden tokens")
    one.shot("golden_task")


def test_grids_have_arcs_colours_and_numbers_on_hover_and_by_a_switch(viewer, golden_page, tasks):
    one = viewer()
    page = one.open(golden_page, "?task=74dd1130")
    grid = tasks["74dd1130"].train[0].input
    arc = ["000000", "0074d9", "ff4136", "2ecc40", "ffdc00", "aaaaaa", "f012be", "ff851b", "7fdbff", "870c25"]
    assert colours(page, ".pair canvas", 3, 3) == [[arc[cell] for cell in row] for row in grid]
    page.locator(".pair canvas").first.hover(position={"x": 3, "y": 3})
    expect(page.locator("#tip")).to_contain_text(f"row 1, column 1: {grid[0][0]}")
    page.keyboard.press("n")
    expect(page.locator("#numbers")).to_have_attribute("aria-pressed", "true")
    expect(page).to_have_url(re.compile("numbers=1"))
    one.shot("golden_numbers")


def test_the_list_filters_and_the_keyboard_goes_through_it(viewer, golden_page, tasks):
    one = viewer(color_scheme="dark")
    page = one.open(golden_page)
    expect(page.locator(".rows .row")).to_have_count(len(tasks))
    one.shot("golden_list_dark")
    page.keyboard.press("/")
    page.keyboard.type("6")
    expect(page.locator(".found")).to_contain_text(f"{sum('6' in name for name in tasks)} of {len(tasks)}")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("pre.code")).to_be_visible()
    expect(page).to_have_url(re.compile("filter=6"))
    first = page.evaluate("location.href")
    page.keyboard.press("k")
    expect(page).not_to_have_url(first)
    page.keyboard.press("Escape")
    expect(page.locator(".found")).to_contain_text(f"{sum('6' in name for name in tasks)} of {len(tasks)}")


@pytest.fixture
def wrong_page(tmp_path: Path, task_file: Path) -> Path:
    """A solution with a wrong cell, one that always fails, and a comment that tries to escape from its element."""
    folder = tmp_path / "golden"
    folder.mkdir()
    source = read_solution("67a3c6ac").replace(
        "return result", "result[0][0] = (result[0][0] + 1) % 10\n    return result"
    )
    (folder / "67a3c6ac.py").write_text(f"# </script><img src=x onerror=window.hacked=1>\n{source}")
    (folder / "74dd1130.py").write_text("def solve(input_grid):\n    return input_grid[9]\n")
    golden = GoldenSource(read_pairs([task_file]), folder, policy=SandboxPolicy(), with_unsolved=True)
    golden.refresh()
    page = tmp_path / "golden.html"
    page.write_text(render(golden.page()))
    return page


def test_differences_and_failures_are_marked(viewer, wrong_page, tasks):
    one = viewer()
    page = one.open(wrong_page, "?task=67a3c6ac")
    expect(page.locator(".grid.wrong")).to_have_count(4)
    expect(page.locator(".grid.wrong").first).to_contain_text("1 wrong")
    expect(page.locator(".said .status.bad").first).to_have_text("wrong_output")
    expect(page.locator("pre.code")).to_contain_text("</script><img src=x onerror=window.hacked=1>")
    assert page.evaluate("() => 'hacked' in window") is False
    one.shot("golden_wrong")
    page = viewer().open(wrong_page, "?task=74dd1130")
    expect(page.locator(".said").first).to_contain_text("IndexError")
    expect(page.locator(".pair").first.locator("canvas")).to_have_count(2)


def test_tasks_without_a_solution_are_shown_on_request(viewer, wrong_page, tasks):
    page = viewer().open(wrong_page)
    expect(page.locator(".found")).to_contain_text(f"{len(tasks)} of {len(tasks)} tasks")
    expect(page.get_by_text("no solution")).to_have_count(len(tasks) - 2)
    page = viewer().open(wrong_page, "?task=a416b8f3")
    expect(page.locator("#main")).to_contain_text("This task has no golden solution.")
    expect(page.locator(".pair canvas")).to_have_count(8)


def test_the_largest_grids_and_a_long_message_fit_on_a_phone(viewer, tmp_path: Path):
    grid = [[(row + column) % 10 for column in range(30)] for row in range(30)]
    pairs = {part: [{"input": grid, "output": grid}] for part in ("train", "test")}
    (tmp_path / "tasks.json").write_text(json.dumps({"67a3c6ac": pairs, "74dd1130": pairs}))
    folder = tmp_path / "golden"
    folder.mkdir()
    (folder / "67a3c6ac.py").write_text("def solve(input_grid):\n    return [row[::-1] for row in input_grid]\n")
    (folder / "74dd1130.py").write_text(f"def solve(input_grid):\n    raise ValueError('{'x' * 300}')\n")
    golden = GoldenSource(read_pairs([tmp_path / "tasks.json"]), folder, policy=SandboxPolicy(), with_unsolved=True)
    golden.refresh()
    (tmp_path / "golden.html").write_text(render(golden.page()))
    one = viewer()
    one.page.set_viewport_size({"width": 390, "height": 844})
    for task, canvases in (("67a3c6ac", 3), ("74dd1130", 2)):
        for numbers in ("", "&numbers=1"):
            page = one.open(tmp_path / "golden.html", f"?task={task}{numbers}")
            expect(page.locator(".pair").first.locator("canvas")).to_have_count(canvases)
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 390, (task, numbers)
    expect(page.locator(".said").first).to_contain_text("x" * 100)
    one.shot("phone-golden-task-large")


def _run_page(folder: Path) -> Path:
    assert main(["run", str(folder)]) == 0
    return folder / "report.html"


def test_the_page_of_a_golden_run_leads_to_its_trace(viewer, run_folder, task_file, tmp_path: Path):
    folder = tmp_path / "golden run"
    shutil.copytree(run_folder, folder, ignore=shutil.ignore_patterns("*.html"))
    page = viewer().open(_run_page(folder))
    command = page.locator(".own-page code").inner_text()
    assert command == f"python -m verl_ext.report trace '{folder}' --tasks ARC_FILE"
    arguments = [str(task_file) if word == "ARC_FILE" else word for word in shlex.split(command)[3:]]
    assert main(arguments) == 0
    one = viewer()
    page = one.open(_run_page(folder))
    one.opened.add((folder / "trace.html").as_uri())
    expect(page.locator(".own-page code")).to_have_count(0)
    page.locator(".own-page a", has_text="trace.html").click()
    expect(page.locator("header")).to_contain_text("Trace of golden run")
