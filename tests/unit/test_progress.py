"""What a terminal and a log file show of a run, from the files that a run writes."""

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verl_ext.run import progress
from verl_ext.run.metrics_stream import MetricsStream
from verl_ext.run.progress import clock, pace, phase, show_progress
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile

STAMP = re.compile(r"^\d\d:\d\d:\d\d  ", re.MULTILINE)


class Screen(io.StringIO):
    """A standard error that says whether it is a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def waits_for(self, text: str) -> bool:
        """Whether the text appears within a few seconds."""
        end = time.monotonic() + 5
        while text not in self.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        return text in self.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(progress, "INTERVAL_S", 0.02)
    found = RunFolder(tmp_path)
    StatusFile(found.status).begin()
    return found


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, "starting"),
        ({"state": "starting", "doing": "starting Ray"}, "starting Ray"),
        ({"state": "validating", "step": 3, "of": 20, "doing": None}, "validating"),
        ({"state": "training", "step": 3, "of": 20, "doing": "generating"}, "step 3 of 20: generating"),
        (
            {"state": "training", "step": 3, "of": 20, "doing": "generating", "prompts": [24, 32]},
            "step 3 of 20: generating, 24 of 32 prompts",
        ),
        ({"state": "training", "step": 3, "of": None, "doing": None}, "step 3"),
    ],
)
def test_a_phase_in_words(status: dict[str, object], text: str):
    assert phase(status) == text


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0:00"), (7.9, "0:07"), (754, "12:34"), (3723, "1:02:03")])
def test_a_clock(seconds: float, text: str):
    assert clock(seconds) == text


def test_the_pace_is_of_steps_and_validations_alone():
    assert pace([], 20) == ""
    records = [{"training/global_step": step, "timing_s/step": 4.0, "timing_s/testing": 1.0} for step in (1, 2)]
    assert pace(records, 14) == "4.0 s, 1:00 left"
    assert pace(records, None) == pace(records, 2) == "4.0 s"


def _live(folder: RunFolder, screen: Screen, *expected: str) -> None:
    """A run of two steps, which continues when the screen shows what is expected."""
    status, metrics = StatusFile(folder.status), MetricsStream(folder.metrics)
    status.doing("starting Ray")
    assert screen.waits_for(expected[0])
    status.doing("starting workers and engines")
    assert screen.waits_for(expected[1])
    status.at_work("training", step=1, of=2, doing="generating")
    assert screen.waits_for(expected[2]) or not screen.is_terminal
    for step in (1, 2):
        metrics.append({"training/global_step": step, "timing_s/step": 4.0, "critic/score/mean": step / 10})
        assert screen.waits_for(expected[2 + step])


def test_a_terminal_shows_a_clock_that_moves(folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    screen = Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    with show_progress(folder, None):
        began = ("starting Ray 0:00", "starting workers and engines 0:00", "step 1 of 2: generating 0:00")
        _live(folder, screen, *began, "1/2, 4.0 s, 0:04 left, reward 0.10", "2/2, 4.0 s, reward 0.20")
        StatusFile(folder.status).change(doing_since=time.time() - 65)
        assert screen.waits_for("step 1 of 2: generating 1:05")
    assert "done" in screen.getvalue()


def test_a_log_file_has_a_line_per_phase_and_per_step(folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    screen = Screen(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    with show_progress(folder, 2):
        _live(folder, screen, "starting Ray", "workers and engines", "", "step 1 of 2", "step 2 of 2")
    lines = screen.getvalue().splitlines()
    assert all(STAMP.match(line) for line in lines)
    assert [STAMP.sub("", line) for line in lines if not line.endswith("starting")] == [
        "starting Ray",
        "starting workers and engines",
        "step 1 of 2: 4.0 s, 0:04 left, reward 0.10",
        "step 2 of 2: 4.0 s, reward 0.20",
    ]


def test_the_last_step_is_shown_and_an_error_is_passed_on(folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    screen = Screen(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)

    def is_interrupted() -> None:
        with show_progress(folder, 2):
            assert screen.waits_for("starting")
            monkeypatch.setattr(progress, "INTERVAL_S", 60.0)
            MetricsStream(folder.metrics).append({"training/global_step": 2, "timing_s/step": 4.0})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        is_interrupted()
    assert "step 2 of 2: 4.0 s" in screen.getvalue()


def test_after_a_resume_only_steps_that_are_made_again_are_told(folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    screen, metrics = Screen(is_terminal=False), MetricsStream(folder.metrics)
    for step in (1, 2, 3):
        metrics.append({"training/global_step": step, "timing_s/step": 4.0})
    monkeypatch.setattr(sys, "stderr", screen)
    with show_progress(folder, 4):
        assert screen.waits_for("starting")
        metrics.resume_after(2)
        time.sleep(10 * progress.INTERVAL_S)  # as between the start of training and the end of its first step
        for step in (3, 4):
            metrics.append({"training/global_step": step, "timing_s/step": 6.0})
            assert screen.waits_for(f"step {step} of 4: ")
    told = [STAMP.sub("", line) for line in screen.getvalue().splitlines() if "step " in line]
    assert told == ["step 3 of 4: 6.0 s, 0:04 left", "step 4 of 4: 6.0 s"]


def test_a_terminal_without_a_size_gets_lines(folder: RunFolder):
    code = f"""
from pathlib import Path
import time
from verl_ext.run import progress
from verl_ext.run.run_folder import RunFolder
progress.INTERVAL_S = 0.02
with progress.show_progress(RunFolder(Path({str(folder.path)!r})), 2):
    time.sleep(0.3)
"""
    ours, theirs = os.openpty()  # 0 rows of 0 columns
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, timeout=60)
    os.close(theirs)
    assert STAMP.sub("", os.read(ours, 1000).decode()).strip() == "starting"
