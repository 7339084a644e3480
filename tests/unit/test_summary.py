"""The table at the end of a run says what was gained, what it cost, and where the time went."""

from pathlib import Path

import pytest

from verl_ext.run.run_folder import RunFolder
from verl_ext.run.summary import format_summary, print_summary, seconds_by_phase

SUMMARY = {
    "val_accuracy_before": 0.30,
    "val_accuracy_after": 0.45,
    "rollouts_generated": 1000,
    "rollouts_trained": 400,
    "rollouts_avoided": 600,
    "global_steps": 5,
    "total_training_steps": 5,
    "seconds": 100.0,
    "seconds_by_phase": {"gen": 50.0, "old_log_prob": 10.0, "update_actor": 20.0, "update_weights": 5.0, "step": 100.0},
}


def test_phases_and_rest_add_up_to_the_whole():
    phases = seconds_by_phase(SUMMARY)
    assert phases["generation"] == 50.0
    assert phases["rest"] == pytest.approx(15.0)
    assert sum(phases.values()) == pytest.approx(SUMMARY["seconds"])


def test_the_table_names_gain_cost_and_place(tmp_path: Path):
    text = format_summary(SUMMARY, RunFolder(tmp_path))
    for words in ("0.300 -> 0.450  (+15.0 points)", "1,000", "400", "600", "generation 50 %", str(tmp_path)):
        assert words in text


def test_without_validation_or_curriculum_their_lines_are_left_out(tmp_path: Path):
    plain = {**SUMMARY, "val_accuracy_after": None}
    del plain["rollouts_avoided"]
    text = format_summary(plain, RunFolder(tmp_path))
    assert "validation accuracy" not in text
    assert "rollouts avoided" not in text


def test_a_run_without_a_summary_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    print_summary(RunFolder(tmp_path), "Fast DAPO")
    assert capsys.readouterr().out == ""


def test_a_summary_is_written_at_once_and_read_back(tmp_path: Path):
    folder = RunFolder(tmp_path)
    assert folder.read_summary() is None
    folder.write_summary(SUMMARY)
    assert folder.read_summary() == SUMMARY
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
