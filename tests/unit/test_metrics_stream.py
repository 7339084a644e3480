"""The metrics stream appends on resume, survives a torn line, and is read while it is written."""

import json
from pathlib import Path

import numpy as np
import pytest

from verl_ext.core.json_lines import JsonLines
from verl_ext.run.metrics_stream import STEP, MetricsStream, MetricsTail, read_metrics
from verl_ext.run.run_totals import RunTotals
from verl_ext.run.trainer_metrics import validation_accuracy


@pytest.fixture
def stream(tmp_path: Path) -> MetricsStream:
    return MetricsStream(tmp_path / "run" / "metrics.jsonl")


def _write(stream: MetricsStream, *steps: int) -> None:
    for step in steps:
        stream.append({STEP: step, "loss": step / 2})


def test_a_record_holds_the_scalars_and_leaves_the_rest_out(stream: MetricsStream):
    stream.append({STEP: 1, "a": np.float64(0.5), "b": np.array([2.0]), "c": float("nan"), "d": [1, 2], "e": "text"})
    assert read_metrics(stream.path) == [{STEP: 1, "a": 0.5, "b": 2.0, "c": None, "e": "text"}]


def test_a_resume_keeps_what_the_checkpoint_knows_and_archives_the_rest(stream: MetricsStream):
    _write(stream, 1, 2, 3, 4)
    stream.resume_after(2)
    _write(stream, 3)
    assert [record[STEP] for record in read_metrics(stream.path)] == [1, 2, 3]
    archived = stream.path.with_suffix(".superseded.jsonl").read_text().splitlines()
    assert [json.loads(line)[STEP] for line in archived] == [3, 4]


def test_a_torn_last_line_does_not_spoil_the_next_record(stream: MetricsStream):
    _write(stream, 1)
    with stream.path.open("a") as file:
        file.write('{"training/glo')
    assert [record[STEP] for record in read_metrics(stream.path)] == [1]
    stream.resume_after(1)
    _write(stream, 2)
    assert [record[STEP] for record in read_metrics(stream.path)] == [1, 2]


def test_resuming_without_a_stream_is_a_fresh_start(stream: MetricsStream):
    stream.resume_after(7)
    assert read_metrics(stream.path) == []


def test_a_tail_sees_each_record_once_and_starts_over_after_a_cut(stream: MetricsStream):
    tail = MetricsTail(stream.path)
    assert tail.new_records() == []
    _write(stream, 1, 2)
    assert [record[STEP] for record in tail.new_records()] == [1, 2]
    assert tail.new_records() == []
    stream.resume_after(1)
    assert [record[STEP] for record in tail.new_records()] == [1]


def test_json_lines_cut_back_to_a_checkpoint_keep_every_record_once(tmp_path: Path):
    lines = JsonLines(tmp_path / "prompts.jsonl")
    lines.append([{"index": 1}, {"index": 2}])
    checkpoint = lines.num_bytes
    lines.append([{"index": 3}])
    lines.cut_back_to(checkpoint)
    lines.append([{"index": 4}])
    assert [record["index"] for record in lines.read()] == [1, 2, 4]


def test_json_lines_that_were_removed_are_not_padded(tmp_path: Path):
    lines = JsonLines(tmp_path / "prompts.jsonl")
    lines.cut_back_to(100)
    assert lines.num_bytes == 0


def test_totals_survive_a_checkpoint_and_go_on():
    totals = RunTotals(rollouts_generated=10)
    totals.add_step({"gen": 2.0, "step": 3.0})
    totals = RunTotals.from_state(json.loads(json.dumps(totals.state_dict())))
    totals.add_step({"gen": 1.0, "step": 1.5})
    assert totals.seconds == 4.5
    assert totals.seconds_by_phase["gen"] == 3.0
    assert totals.metrics()["training/total/rollouts_generated"] == 10


def test_validation_accuracy_is_the_mean_over_the_sets():
    metrics = {"val-core/a/acc/mean@1": 0.5, "val-core/b/acc/mean@1": 0.7, "val-aux/a/reward/mean@1": 9.0}
    assert validation_accuracy(metrics) == pytest.approx(0.6)
    assert validation_accuracy({"actor/loss": 1.0}) is None
