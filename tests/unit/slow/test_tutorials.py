"""The tutorial notebooks run to their end, and what they print is what their text says."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _printed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """All that a notebook prints, run by its own kernel in an empty folder."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(ROOT / "docs" / "tutorials" / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    return "".join(output["text"] for output in outputs if output.output_type == "stream")


def test_fast_dapo_needs_fewer_rollouts_by_choosing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    printed = _printed("fast_dapo", tmp_path, monkeypatch)
    reached = {
        method: [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", numbers)]
        for method, numbers in re.findall(r"^(\w[\w ]*?)\s+rollouts to \+25 points: (.+);", printed, re.MULTILINE)
    }
    assert len(reached["choose"]) == 3
    assert max(reached["choose"]) < 0.6 * min(reached["uniform"])
    assert "{'added': 16, 'live': 16}" in printed


def test_tracin_scores_are_autograds_and_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    printed = _printed("tracin", tmp_path, monkeypatch)
    assert float(re.findall(r"relative to the largest score: (\S+)", printed)[0]) < 1e-4
    assert "gradients left on the model: []" in printed
    accuracy = dict(re.findall(r"^([\w ,]+?)\s+accuracy after \d+ steps: (\S+)$", printed, re.MULTILINE))
    assert float(accuracy["positive scores"]) > float(accuracy["all rollouts"]) + 0.05


def test_golden_redaction_hides_and_learns_the_whole_solution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    printed = _printed("golden_redaction", tmp_path, monkeypatch)
    assert re.search(r"' lower' .* 16/16 .* \+1 .* <- teacher", printed)
    assert "the whole solution was hidden" in printed
    before, now = re.findall(r"pass rate with nothing given: (\S+) before, (\S+) now", printed)[0]
    assert float(now) > float(before) + 0.5
