"""Jobs of the GPU kit that are commands: composed correctly, interrupted in time, and continued by the next call."""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

sys.path += [str(Path(__file__).resolve().parents[1] / "gpu/kit")]

import command_steps
import commands
import job_faults
import job_training
from commands import run_command
from jobs import JOBS
from sessions import Setting, call
from training_commands import METHODS, ONE_GPU, training_command


def setting_of(folder: Path, seconds: float = math.inf, is_toy: bool = False) -> Setting:
    return Setting(folder, folder, "cpu", is_toy, time.monotonic() + seconds)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of these tests are small."""
    monkeypatch.setattr(command_steps, "LEAST_SECONDS", 0.1)
    monkeypatch.setattr(command_steps, "GRACE_S", 5.0)


def test_a_command_that_ends_in_time(tmp_path: Path):
    words = [sys.executable, "-c", "import os; print('word', os.environ['MINE']); raise SystemExit(7)"]
    (tmp_path / "log").write_text("earlier\n")
    ended = run_command(words, tmp_path, tmp_path / "log", 60, 1, variables={"MINE": "yes"})
    assert (ended.code, ended.in_time, ended.tail) == (7, True, "word yes\n")
    assert (tmp_path / "log").read_text() == "earlier\nword yes\n"


def when(monkeypatch: pytest.MonkeyPatch, is_ready: Callable[[], bool]) -> None:
    """An hour passes at once for `run_command` when something is ready: no test waits for, or races, a clock."""
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (3600.0 if is_ready() else 0.0))
    monkeypatch.setattr(commands, "time", clock)


def test_a_command_that_does_not_is_interrupted_as_by_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = (
        "import time\ntry:\n  print('begun', flush=True); time.sleep(600)\n"
        "except KeyboardInterrupt:\n  print('saved'); raise SystemExit(130)"
    )
    log = tmp_path / "log"
    when(monkeypatch, lambda: log.exists() and "begun" in log.read_text())
    ended = run_command([sys.executable, "-c", script], tmp_path, log, 3700, 100)
    assert (ended.code, ended.in_time, ended.tail) == (130, False, "begun\nsaved\n")


def test_a_command_that_ignores_it_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    log = tmp_path / "log"
    when(monkeypatch, lambda: log.exists() and "\n" in log.read_text())
    ended = run_command([sys.executable, "-c", script], tmp_path, log, 3600.5, 0.5)
    assert (ended.code, ended.in_time) == (-9, False)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(ended.tail)).wait(timeout=60)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_a_gpu_has_the_gpus_settings_and_one_on_a_cpu_the_backends(method: str, tmp_path: Path):
    run_dir, own = tmp_path / "run", METHODS[method]
    words = {device: training_command(device, tmp_path, run_dir, own) for device in ("cuda", "cpu")}
    assert "+backend=cpu" in words["cpu"]
    assert not set(ONE_GPU) & set(words["cpu"])
    assert set(ONE_GPU) < set(words["cuda"])
    assert "+backend=cpu" not in words["cuda"]
    for found in words.values():
        assert found[:2] == ["-m", "recipe.fast_dapo.main"]
        assert f"data.train_files={tmp_path}/outputs/data/svamp/svamp.parquet" in found
        keys = [word.split("=")[0].lstrip("+") for word in found[2:]]
        assert len(keys) == len(set(keys))


# A run of four steps that saves after each, and resumes. If it blocks, step 2 of its first start never ends.
FAKE = """
import json, pathlib, sys, time
run = pathlib.Path(sys.argv[1]); (run / "checkpoints").mkdir(parents=True, exist_ok=True)
tracker = run / "checkpoints/latest_checkpointed_iteration.txt"
first = int(tracker.read_text()) + 1 if tracker.exists() else 1
for step in range(first, 5):
    if sys.argv[2] == "blocks" and (first, step) == (1, 2):
        time.sleep(600)
    record = {"training/global_step": step, "timing_s/step": float(step), "perf/max_memory_allocated_gb": 1.0 / step}
    if step in (2, 4):
        record["val-core/svamp/acc/mean@1"] = step / 10
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\\n")
    (run / "new").write_text(str(step))
    (run / "new").rename(tracker)
(run / "summary.json").write_text(json.dumps({"global_steps": 4}))
"""


def fake_runs(monkeypatch: pytest.MonkeyPatch, module: object, *, blocks: bool) -> None:
    def command(device: str, root: Path, run_dir: Path, overrides: object) -> list[str]:
        return ["-c", FAKE, str(run_dir), "blocks" if blocks else "runs"]

    monkeypatch.setattr(module, "training_command", command)


def test_a_run_that_outlasts_its_call_is_continued_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_runs(monkeypatch, job_training, blocks=True)
    with monkeypatch.context() as patched:
        when(patched, lambda: command_steps.saved_step(tmp_path / "runs/fast_dapo") == 1)
        setting = setting_of(tmp_path, 3600)
        job = job_training.make(setting)
        assert not call(job, setting)
    assert job.left() == f"{len(METHODS)} of {len(METHODS)} steps, the next is fast_dapo"
    assert len((tmp_path / "fast_dapo.metrics.jsonl").read_text().splitlines()) == 1
    fake_runs(monkeypatch, job_training, blocks=False)
    job = job_training.make(setting_of(tmp_path))
    assert call(job, setting_of(tmp_path))
    for name in METHODS:
        record = job.records[name]
        assert record["validations"] == [
            {"training/global_step": step, "val-core/svamp/acc/mean@1": step / 10} for step in (2, 4)
        ]
        assert record["median"] == {"timing_s/step": 3.0}
        assert record["peak"] == {"perf/max_memory_allocated_gb": 0.5}
        assert record["summary"] == {"global_steps": 4}


def test_a_run_that_fails_is_recorded_with_what_it_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_training, "training_command", lambda *_: ["-c", "raise SystemExit('error: no device')"])
    job = job_training.make(setting_of(tmp_path))
    assert call(job, setting_of(tmp_path))
    assert job.records["fast_dapo"] == {"failed": 1, "printed": "error: no device\n"}


def test_too_little_time_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command_steps, "LEAST_SECONDS", 150.0)
    fake_runs(monkeypatch, job_training, blocks=False)
    setting = setting_of(tmp_path, 100)
    assert not call(job_training.make(setting), setting)
    assert not (tmp_path / "runs").exists()


def test_a_killed_run_resumes_with_every_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_runs(monkeypatch, job_faults, blocks=True)
    job = job_faults.make(setting_of(tmp_path))
    job.keep_only([name for name in job.names_left() if name.startswith("run")])
    assert call(job, setting_of(tmp_path))
    killed, resumed = job.records["run killed"], job.records["run killed: resumed"]
    assert (killed["code"], killed["was_done"]) == (-9, True)
    assert killed["saved_step"] == 1
    assert resumed["is_whole"]
    assert resumed["steps"] == [1, 2, 3, 4]


def test_the_engine_is_found_by_its_name_and_nothing_else_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = (
        "import subprocess, sys\n"
        "(engine, other) = [subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', name])\n"
        "                   for name in ('VLLM::EngineCore', 'ray::Worker')]\n"
        "print(engine.wait(), other.poll()); other.kill()"
    )
    done: list[bool] = []
    words = [sys.executable, "-c", script]
    watch = lambda process: done.append(True not in done and job_faults.kill_engine(process))  # noqa: E731
    ended = run_command(words, tmp_path, tmp_path / "log", 600, 1, watch=watch)
    assert True in done
    assert ended.tail == "-9 None\n"


def test_every_job_says_what_it_needs_and_its_module_is_there():
    folder = Path(__file__).resolve().parents[1] / "gpu/kit"
    assert list(JOBS)[:4] == ["training", "leaderboard", "influence", "golden"]
    for entry in JOBS.values():
        module, name = entry.factory.split(":")
        assert f"\ndef {name}(" in (folder / f"{module}.py").read_text()
        assert entry.part in ("plain", "engine")
    assert json.dumps(sorted({entry.part for entry in JOBS.values()})) == '["engine", "plain"]'
