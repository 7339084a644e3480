"""tests/benchmarks/whole_runs.py: runs are started, resumed or skipped, and the first failure ends all."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from finished_runs import end

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import whole_runs
from whole_runs import RunError, WholeRun, finish, missing_files

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Run(WholeRun):
    program: ClassVar[str] = "own_run"

    place: Path
    steps: int = 8

    @property
    def folder(self):
        return self.place

    def overrides(self):
        return [f"run_dir={self.folder}", "a.b=1"]


def test_what_is_finished_is_skipped_and_what_is_not_is_run(tmp_path):
    runs = [Run(tmp_path / name) for name in "abcd"]
    end(runs[0], 8)
    end(runs[1], 4)  # of a shorter call: continued
    end(runs[2], 12)  # of a longer one
    started = []

    def train(run):
        started.append(run)
        end(run, run.steps)
        return 0

    finish(runs, train)
    assert started == [runs[1], runs[3]]
    finish(runs, train)
    assert len(started) == 2


@pytest.mark.parametrize("status", [0, 1])
def test_a_run_that_does_not_come_to_its_end_stops_the_others(tmp_path, status):
    started = []

    def train(run):
        started.append(run)
        return status

    with pytest.raises(RunError, match=rf"a ended with status {status}: .*a\.log says why"):
        finish([Run(tmp_path / "a"), Run(tmp_path / "b")], train)
    assert len(started) == 1


def test_the_command_gets_the_overrides_and_its_output_is_kept(tmp_path, monkeypatch):
    (tmp_path / "own_run.py").write_text("import sys\nprint(*sys.argv[1:], sep='\\n')\nsys.exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = Run(tmp_path / "runs/a")
    for calls in (1, 2):
        assert whole_runs.train(run) == 3
        assert run.log.read_text().splitlines() == run.overrides() * calls


def test_ctrl_c_is_left_to_the_command(tmp_path):
    """It ends its engines; killing it after a moment would leave them running."""
    (tmp_path / "slow_run.py").write_text(
        "import sys, time\n"
        "print('started', flush=True)\n"
        "try:\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1)\n    print('ended', flush=True)\n    sys.exit(5)\n"
    )
    log = tmp_path / "slow.log"
    code = (
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(ROOT / 'tests/benchmarks')!r})\n"
        "from whole_runs import execute\n"
        f"sys.exit(execute(['python', '-m', 'slow_run'], pathlib.Path({str(log)!r})))\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        start_new_session=True,
        # A shell's background jobs ignore SIGINT, and so would this process if the tests run in one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (log.exists() and "started" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 5
    assert log.read_text().split() == ["started", "ended"]


def test_a_run_is_described_by_its_command(tmp_path):
    run = Run(tmp_path / "a")
    assert run.describe() == f"# a: to do\npython -m own_run run_dir={tmp_path}/a a.b=1"
    end(run, 8)
    assert run.describe().startswith("# a: finished\n")


def test_what_is_missing_is_named_with_its_script(tmp_path):
    needed = {"outputs/a": "make_a", "outputs/b": "make_b"}
    assert missing_files(tmp_path, needed, "README") == (
        "outputs/a, outputs/b missing: run data_preprocess.make_a, data_preprocess.make_b, as README shows"
    )
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs/a").touch()
    assert "outputs/a" not in missing_files(tmp_path, needed, "README")
    (tmp_path / "outputs/b").touch()
    assert missing_files(tmp_path, needed, "README") is None
