"""Curves as pictures: the chosen ones, without a browser, and an error says what cannot be drawn."""

import re
from argparse import Namespace
from pathlib import Path

import pytest

from verl_ext.report.__main__ import main
from verl_ext.report.compare import default_output
from verl_ext.run.metrics_stream import STEP, MetricsStream
from verl_ext.run.run_folder import RunFolder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs; the metric of one is missing in the other, and their names mean something to matplotlib."""
    folders = [tmp_path / "_a $x_1$", tmp_path / "b"]
    for place, folder in enumerate(folders):
        stream = MetricsStream(folder / "metrics.jsonl")
        for step in range(1, 6):
            own = {"only/b": step} if place else {"actor/entropy": None if step == 2 else 1 / step}
            stream.append({STEP: step, "training/total/seconds": 2.0 * step, "critic/score/mean": step / 9} | own)
    return folders


def _pictures(folder: Path) -> dict[str, int]:
    return {path.name: path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in folder.iterdir()}


def test_the_curves_that_open_the_page_are_drawn(runs, tmp_path: Path):
    png = tmp_path / "png"
    assert main(["run", str(runs[0]), "--output", str(tmp_path / "r.html"), "--png", str(png)]) == 0
    assert _pictures(png) == {"critic--score--mean.png": True, "actor--entropy.png": True}
    assert (tmp_path / "r.html").is_file()


def test_chosen_curves_of_several_runs_are_drawn_over_seconds(runs, tmp_path: Path):
    options = ["--metrics", "critic/score/mean,only/b", "--smooth", "0.5", "--x", "seconds"]
    for png in (tmp_path / "one", tmp_path / "two"):
        command = ["compare", *map(str, runs), "--output", str(tmp_path / "c.html"), "--png", str(png), *options]
        assert main(command) == 0
    assert _pictures(tmp_path / "one") == {"critic--score--mean.png": True, "only--b.png": True}
    # The same run gives the same picture, so that a paper's repository does not change without reason.
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metrics", "score/mean"], "critic/score/mean"),
        (["--smooth", "1"], "below 1, got 1: try 0.6"),
    ],
)
def test_what_cannot_be_drawn_is_said(runs, tmp_path: Path, capsys, options, words):
    command = ["run", str(runs[0]), "--output", str(tmp_path / "r.html"), "--png", str(tmp_path / "p"), *options]
    assert main(command) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_a_folder_that_is_no_run_is_said(tmp_path: Path, capsys):
    assert main(["run", str(tmp_path), "--output", str(tmp_path / "r.html")]) == 2
    assert main(["compare", str(tmp_path / "none"), "--output", str(tmp_path / "r.html")]) == 2
    assert capsys.readouterr().err.count("neither metrics.jsonl nor hydra/ is there") == 2


def test_the_accuracy_before_training_is_in_the_picture(tmp_path: Path):
    stream, pictures = MetricsStream(tmp_path / "run" / "metrics.jsonl"), []
    for step in (1, 2):
        stream.append({STEP: step, "val-core/x/acc/mean@1": 0.3 * step})
    for png in ("without", "with"):
        command = ["run", str(tmp_path / "run"), "--png", str(tmp_path / png), "--metrics", "val-core/x/acc/mean@1"]
        assert main(command) == 0
        pictures.append((tmp_path / png / "val-core--x--acc--mean-1.png").read_bytes())
        RunFolder(tmp_path / "run").write_first_validation({"val-core/x/acc/mean@1": 0.1}, seconds=1, num_prompts=9)
    assert pictures[0] != pictures[1]


def test_every_run_has_a_page_of_its_own(runs, capsys):
    for run in (*runs, runs[0]):
        assert main(["run", str(run)]) == 0
    assert all((run / "report.html").is_file() for run in runs)
    assert main(["compare", *map(str, runs)]) == 0
    (page,) = runs[0].parent.glob("*.html")
    assert page.name == f"compare-{runs[0].name}-{runs[1].name}.html"


def test_every_comparison_has_a_page_of_its_own(tmp_path: Path):
    def page(*runs: str) -> str:
        found = default_output(Namespace(paths=[tmp_path / run for run in runs])).relative_to(tmp_path)
        assert len(found.name.encode()) < 150
        return str(found)

    assert page("a/run", "b/run") == "a/compare-a-run-b-run.html"
    assert page("a/run", "c/run") == "a/compare-a-run-c-run.html"
    assert page("a/x", "a/y") == "a/compare-x-y.html"
    assert page("a", "a/seed/y") == "compare-a-a-seed-y.html"
    long = "x" * 60
    comparisons = [
        # The shortest names that differ are the same in both comparisons.
        ("a/x", "b/y"), ("a/x", "c/y"),
        (f"{long}1", f"{long}2"), (f"{long}1", f"{long}3"), (f"{long}2", f"{long}1"),
        # Of three bytes each, and too long for a file name.
        ("随" * 80, "b"), ("随" * 80, "c"),
    ]  # fmt: skip
    assert len({page(*runs) for runs in comparisons}) == len(comparisons)
    cut = page(*comparisons[2])
    assert re.fullmatch(rf"compare-{long}1-x+-[0-9a-f]{{6}}\.html", cut)
    assert page(*comparisons[2]) == cut
