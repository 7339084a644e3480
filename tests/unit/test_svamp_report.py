"""Figures of tests/benchmarks/svamp_report.py and run_looks.py, from made-up runs."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from run_looks import Look, first_reached
from svamp_report import ACCURACY, Evaluation, Outcome, difference, halfway, read_outcome, render, summarize

UNTRAINED = Evaluation((0.0, 0.125, 0.0), (0.0, 1.0, 0.0))


def outcome(accuracies: list[float], trained: list[float]) -> Outcome:
    """A look per 100 rollouts and 10 seconds, the first before training."""
    looks = [Look(n, 100.0 * n, 10.0 * n, (value,)) for n, value in enumerate(accuracies)]
    return Outcome(tuple(looks), UNTRAINED, Evaluation(tuple(trained), tuple(map(float, map(bool, trained)))), 640)


def test_a_level_is_reached_between_two_looks():
    assert first_reached([0.0, 0.1, 0.3], [0, 100, 200], 0.2) == pytest.approx(150)
    assert first_reached([0.0, 0.1, 0.0, 0.3], [0, 100, 200, 300], 0.1) == 100  # the first time counts
    assert first_reached([0.2, 0.1], [0, 100], 0.2) == 0
    assert first_reached([0.0, 0.1], [0, 100], 0.2) is None


def test_the_level_is_halfway_to_the_lowest_end():
    runs = {"a": outcome([0.04, 0.2], [0.2] * 3), "b": outcome([0.04, 0.3, 0.12], [0.1] * 3)}
    assert halfway(runs) == pytest.approx(0.08)
    rows = summarize(runs, 0.08)
    assert rows[0]["rollouts_to_level"] == pytest.approx(25)
    assert rows[1]["seconds_to_level"] == pytest.approx(10 * 0.04 / 0.26)


def test_differences_are_between_answers_to_the_same_problems():
    better, worse = outcome([0.0, 0.5], [0.1, 0.5, 0.9]), outcome([0.0, 0.4], [0.0, 0.4, 0.8])
    found = difference(worse, better)
    assert found.value == pytest.approx(-10)
    assert found.low == pytest.approx(-10)  # the same on every problem
    assert found.high == pytest.approx(-10)


def test_the_table_has_a_row_per_arm():
    runs = {"two_phase": outcome([0.04, 0.2], [0.25, 0.5, 0.0]), "uniform_8": outcome([0.04, 0.1], [0.125, 0.0, 0.0])}
    text = render(summarize(runs, 0.15), UNTRAINED, 0.15)
    assert text.startswith("Untrained: avg@8 0.042 [0.000, 0.125], pass@8 0.333.")
    first, second = text.splitlines()[-2:]
    assert first.startswith("| two_phase | 1 | 100 | 640 | 10 | 0.250 [0.000, 0.500] |  | 0.667 | 69 | 7 |")
    assert "| 0.042 [0.000, 0.125] | -20.8 [-50.0, +0.0] | 0.333 | not reached | not reached |" in second


def write_evaluation(folder: Path, shares: dict[str, float]) -> Path:
    """A result of `recipe.fast_dapo.evaluate`."""
    folder.mkdir()
    prompts = [{"index": index, "avg@8": share, "pass@8": float(share > 0)} for index, share in shares.items()]
    (folder / "result.json").write_text(json.dumps({"data_sets": [{"prompts": prompts}]}))
    return folder


def test_a_run_is_read_from_its_files(tmp_path: Path):
    before = write_evaluation(tmp_path / "before", {"svamp/1": 0.0, "svamp/0": 0.25})
    after = write_evaluation(tmp_path / "after", {"svamp/0": 0.5, "svamp/1": 0.125})
    records = [
        {"training/global_step": 1, "timing_s/save_checkpoint": 3.0},
        {"training/global_step": 2, ACCURACY: 0.3, "training/total/seconds": 23.0},
    ]
    records[1]["training/total/rollouts_generated"] = 128
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    with pytest.raises(ValueError, match="expected a summary and a validation after step 2"):
        read_outcome(tmp_path, after, before, 2)
    (tmp_path / "summary.json").write_text(json.dumps({"global_steps": 2, "rollouts_trained": 64}))
    found = read_outcome(tmp_path, after, before, 2)
    assert found.looks == (Look(0, 0, 0.0, (0.125,)), Look(2, 128, 20.0, (0.3,)))
    assert found.untrained.average_P == (0.25, 0.0)  # problems in the same order
    assert found.trained.average_P == (0.5, 0.125)
    assert found.rollouts_trained == 64
    with pytest.raises(ValueError, match="after step 4"):
        read_outcome(tmp_path, after, before, 4)
