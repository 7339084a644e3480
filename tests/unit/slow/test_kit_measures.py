"""The GPU kit's measurements on random weights, on the CPU at toy size, and what every job does with its time."""

import dataclasses
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path += [str(Path(__file__).resolve().parents[2] / folder) for folder in ("gpu/kit", "benchmarks")]

import job_golden
import job_influence
import run as kit_run
from pieces import PieceError
from saved_state import load_bytes, save_bytes
from sessions import Setting, Table, call


def setting_of(folder: Path) -> Setting:
    return Setting(folder, kit_run.ROOT, "cpu", True, math.inf)


def finish(make: Any, folder: Path, steps_per_call: int) -> Table:
    """Finish the job in calls of `steps_per_call` steps, every call with a new object."""
    while not call(make(setting_of(folder)), setting_of(folder), most_steps=steps_per_call):
        pass
    return make(setting_of(folder))


def test_influence_scores_are_exact_and_every_figure_is_measured_once(tmp_path: Path):
    job = finish(job_influence.make, tmp_path, 10)
    (case,) = job.figures().values()
    assert 0 < case["error"]["scoring"] < 1e-5
    relative = case["relative_to_plain"]
    assert relative["seconds of plain"] == relative["peak of plain at 8"] == 1.0
    assert relative["peak of scoring at 32"] == pytest.approx(relative["peak of scoring at 8"], rel=0.02)
    assert {key for key in relative if key.startswith("seconds")} == {
        f"seconds of {name}" for name in job_influence.METHODS
    }


def test_golden_redactions_update_agrees_and_its_pace_is_that_of_its_seconds(tmp_path: Path):
    job = finish(job_golden.make, tmp_path, 1)
    shared = job.records["toy, 64 tokens, one forward"]
    assert len(shared["seconds"]) == 2
    assert shared["states_per_hour"] == pytest.approx(3600 / (sum(shared["seconds"]) / 2))
    assert shared["parameters"] > 50_000
    assert 0 < job.records["toy, 32 tokens, difference"]["nats"] < 1e-4


def test_what_does_not_fit_is_recorded_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def peak_bytes(bench: Any, method: str, samples: int) -> int:
        if method == "buffered":
            raise torch.cuda.OutOfMemoryError
        return 1

    monkeypatch.setattr(job_influence.Bench, "peak_bytes", peak_bytes)
    (case,) = job_influence.TOY
    cases = (case, dataclasses.replace(case, checkpointing=False, samples=(8,)))
    job = job_influence.Influence(setting_of(tmp_path), cases)
    job._steps = {name: step for name, step in job._steps.items() if "peak" in name}
    assert call(job, setting_of(tmp_path))
    assert list(job.figures()) == [str(case) for case in cases]
    for figures in job.figures().values():
        assert figures["measured"]["peak of buffered at 8"] == job_influence.OUT_OF_MEMORY
        assert "peak of buffered at 8" not in figures["relative_to_plain"]
        assert figures["relative_to_plain"]["peak of one_pass at 8"] == 1.0


def counted(folder: Path, taken: list[str]) -> Table:
    """Three steps that note their names."""
    return Table(folder, {name: lambda name=name: taken.append(name) or len(taken) for name in "abc"})


def test_a_call_takes_no_step_that_may_outlast_it(tmp_path: Path):
    taken: list[str] = []

    def slow() -> int:
        time.sleep(0.2)
        taken.append("slow")
        return 1

    job = Table(tmp_path, dict.fromkeys(("a", "b", "c", "d"), slow))
    began = time.monotonic()
    assert not call(job, Setting(tmp_path, tmp_path, "cpu", True, began + 0.7))
    assert 1 <= len(taken) <= 3
    assert job.left().startswith(f"{4 - len(taken)} of 4 steps")


def test_a_table_goes_on_where_its_records_end(tmp_path: Path):
    taken: list[str] = []
    assert not call(counted(tmp_path, taken), setting_of(tmp_path), most_steps=2)
    assert call(counted(tmp_path, taken), setting_of(tmp_path))
    assert taken == ["a", "b", "c"]
    assert counted(tmp_path, []).records == {"a": 1, "b": 2, "c": 3}


def test_a_call_may_take_only_some_steps_and_names_the_ones_there_are(tmp_path: Path, capsys: pytest.CaptureFixture):
    words = ["golden", "--state", str(tmp_path), "--device", "cpu", "--toy", "--only"]
    assert kit_run.main([*words, "toy, 32 tokens, one forward"]) == 0
    assert list(json.loads((tmp_path / "records.json").read_text())) == ["toy, 32 tokens, one forward"]
    assert kit_run.main([*words, "toy"]) == 1
    assert capsys.readouterr().err.startswith("error: no step toy. The steps: toy, 64 tokens, one forward, ")


def test_a_step_without_time_is_taken_again(tmp_path: Path):
    answers = iter([None, "done"])
    steps = {"a": lambda: next(answers)}
    assert not call(Table(tmp_path, steps), setting_of(tmp_path))
    assert call(Table(tmp_path, steps), setting_of(tmp_path))


def test_the_command_says_what_is_left_and_writes_where_it_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture):
    words = ["golden", "--state", str(tmp_path), "--device", "cpu", "--toy"]
    assert kit_run.main([*words, "--steps", "1"]) == kit_run.UNFINISHED
    assert "left: 3 of 4 steps, the next is toy, 32 tokens, one forward" in capsys.readouterr().out
    assert kit_run.main(words) == 0
    assert "complete" in capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["device"], results["is_toy"], results["is_complete"]) == ("cpu", True, True)
    assert results["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert len(results["figures"]) == 4


def test_a_state_is_cut_into_files_and_a_missing_or_changed_one_is_named(tmp_path: Path):
    assert load_bytes(tmp_path, "run") is None
    save_bytes(tmp_path, "run", b"an earlier and longer state", max_bytes=4)
    save_bytes(tmp_path, "run", b"0123456789", max_bytes=4)
    parts = sorted(tmp_path.glob("run.*.part"))
    assert [path.stat().st_size for path in parts] == [4, 4, 2]
    assert load_bytes(tmp_path, "run") == b"0123456789"
    parts[1].write_bytes(b"4x67")
    with pytest.raises(PieceError, match="not as written"):
        load_bytes(tmp_path, "run")
    parts[1].unlink()
    with pytest.raises(PieceError, match=parts[1].name):
        load_bytes(tmp_path, "run")
