"""A run that has ended writes its page, and says where it is; if that fails, the run has still ended."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from verl_ext.launch import run_page
from verl_ext.run.run_folder import RunFolder

RECORD = {"training/global_step": 1, "actor/entropy": 1.0}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(RECORD) + "\n")
    folder = RunFolder(tmp_path)
    folder.write_summary({"global_steps": 1})
    return folder


def test_the_last_line_is_the_absolute_path_of_the_page(folder: RunFolder, capsys: pytest.CaptureFixture[str]):
    run_page.write_page(folder)
    page = folder.path.resolve() / "report.html"
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{page}  (")
    assert page.read_text(encoding="utf-8").startswith("<!")


def test_a_page_that_fails_does_no_harm(folder: RunFolder, capsys: pytest.CaptureFixture[str]):
    (folder.path / "report.html").mkdir()
    run_page.write_page(folder)
    assert capsys.readouterr().out == ""


def test_without_plotly_there_is_a_command_instead_of_a_page(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(run_page, "find_spec", lambda name: None)
    run_page.write_page(folder)
    said = capsys.readouterr().out
    assert "pip install 'verl-signal[report]', then python -m verl_ext.report run" in said
    assert not (folder.path / "report.html").exists()
    subprocess.run([sys.executable, *shlex.split(said.partition("then python")[2])], check=True, capture_output=True)
    assert (folder.path / "report.html").exists()


def test_without_a_summary_there_is_no_page(folder: RunFolder, capsys: pytest.CaptureFixture[str]):
    folder.summary.unlink()
    run_page.write_page(folder)
    assert capsys.readouterr().out == ""
    assert not (folder.path / "report.html").exists()
