"""What a run's folder says about it: running, finished, or dead without notice; over all commands that ran there."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from verl_ext.report.run_state import is_dead, run_state, status_stamp
from verl_ext.run import status as run_status
from verl_ext.run.metrics_stream import STEP
from verl_ext.run.pace import seconds_left, wall_clock
from verl_ext.run.status import INTERVAL_S, StatusFile, kept_status

RECORDS = [{STEP: step, "timing_s/step": 4.0, "timing_s/testing": 2.0 * (step % 2)} for step in range(1, 13)]


@pytest.fixture
def file(tmp_path: Path) -> StatusFile:
    return StatusFile(tmp_path / "status.json")


def _explain(error: BaseException) -> tuple[str, str]:
    return ("interrupted", "Ctrl-C") if isinstance(error, KeyboardInterrupt) else ("failed", str(error))


def test_a_run_is_at_work_and_then_finished(file: StatusFile):
    assert run_state({}, None, [])["kind"] == "unknown"
    with kept_status(file.path, _explain):
        assert run_state(file.read(), None, [])["kind"] == "starting"
        file.at_work("training", step=12, of=200)
        state = run_state(file.read(), None, RECORDS)
        assert (state["kind"], state["step"], state["of"], state["finished"]) == ("training", 12, 200, False)
        assert state["seconds_left"] == (200 - 12) * 5.0
        assert Path(sys.executable).name in file.read()["command"]
    state = run_state(file.read(), {"total_training_steps": 200}, [*RECORDS, {STEP: 200}])
    assert (state["kind"], state["step"], state["finished"], state["seconds_left"]) == ("finished", 200, True, None)
    assert [path.name for path in sorted(file.path.parent.iterdir())] == [".status.lock", "status.json"]


def test_prompts_are_counted_while_a_batch_is_collected(file: StatusFile, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_status, "COUNT_INTERVAL_S", 0.005)
    done, wrote = 0, threading.Event()
    change = StatusFile.change

    def changed(status: StatusFile, **fields: object) -> None:
        change(status, **fields)
        wrote.set()

    monkeypatch.setattr(StatusFile, "change", changed)
    file.begin()
    file.at_work("training", step=1, of=2, doing="generating")
    began = file.read()["doing_since"]
    with file.counting(lambda: (done, 4) if done else None):
        assert not wrote.wait(0.05)  # nothing is known yet
        for done in (1, 3):
            wrote.clear()
            assert wrote.wait(5)
            assert file.read()["prompts"] == [done, 4]
        wrote.clear()
        assert not wrote.wait(0.05)  # the same again is not written
    assert file.read()["doing_since"] == began
    file.doing("updating the actor")
    assert file.read()["prompts"] is None


def _train_until(file: StatusFile, error: BaseException) -> None:
    with kept_status(file.path, _explain):
        file.at_work("training", step=12, of=200)
        raise error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("the worker died"), "failed", "the worker died"),
        (KeyboardInterrupt(), "interrupted", "Ctrl-C"),
    ],
)
def test_what_ended_a_run_is_kept(file: StatusFile, error: BaseException, kind: str, text: str):
    with pytest.raises(type(error)):
        _train_until(file, error)
    state = run_state(file.read(), None, RECORDS, now=file.read()["finished"] + 3600)
    assert (state["kind"], state["error"], state["step"]) == (kind, text, 12)
    assert state["read_at"] - state["ended"] == pytest.approx(3600)
    assert not state["finished"]


PROGRAM = """
import sys, time
from pathlib import Path
from verl_ext.run.status import StatusFile, kept_status
with kept_status(Path(sys.argv[1]), lambda error: ("failed", "")):
    StatusFile(Path(sys.argv[1])).at_work("training", step=3, of=9)
    print("training", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_is_known_to_be_gone(file: StatusFile):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(file.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "training\n"
    before = status_stamp(file.read())
    assert run_state(file.read(), None, [])["kind"] == "training"
    process.send_signal(signal.SIGKILL)
    process.wait()
    state = run_state(file.read(), None, [])
    assert (state["kind"], state["step"], state["of"]) == ("dead", 3, 9)
    assert state["ended"] == file.read()["last_seen"]
    assert status_stamp(file.read()) != before


def test_of_another_machine_only_the_last_sign_of_life_tells(file: StatusFile):
    file.begin()
    now = time.time()
    elsewhere = file.read() | {"host": "another", "pid": 2**22 + 1}
    assert not is_dead(elsewhere, now)
    assert is_dead(elsewhere, now + 30 * INTERVAL_S)
    assert is_dead(elsewhere | {"host": file.read()["host"]}, now)
    # A process id that was given to another process since.
    assert is_dead(file.read() | {"pid": os.getppid(), "last_seen": 1.0e9}, 1.0e9)


def test_signs_of_life_come_by_themselves_and_are_no_news(file: StatusFile, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_status, "INTERVAL_S", 0.01)
    with kept_status(file.path, _explain):
        first, stamp = file.read()["last_seen"], status_stamp(file.read())
        for _ in range(500):
            if file.read()["last_seen"] > first:
                break
            time.sleep(0.01)
        assert file.read()["last_seen"] > first
        assert status_stamp(file.read()) == stamp
        file.at_work("validating")
        assert status_stamp(file.read()) != stamp


def test_writers_do_not_lose_each_others_fields(file: StatusFile):
    file.begin()

    def write(name: str) -> None:
        for number in range(100):
            StatusFile(file.path).change(**{name: number})

    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (file.read()["a"], file.read()["b"]) == (99, 99)


def test_the_wall_clock_is_that_of_all_commands(file: StatusFile):
    assert wall_clock({}) is None
    file.path.write_text(
        json.dumps({"started": 100.0, "ready": 130.0, "last_seen": 200.0, "earlier": [[0.0, None, 5.0]]})
    )
    assert wall_clock(file.read()) == (105.0, 35.0)
    file.begin()
    assert file.read()["earlier"] == [[0.0, None, 5.0], [100.0, 130.0, 200.0]]
    file.change(started=300.0, ready=310.0, finished=400.0)
    assert wall_clock(file.read()) == (205.0, 45.0)


def test_a_damaged_file_or_a_folder_that_is_gone_stops_nothing(tmp_path: Path):
    file = StatusFile(tmp_path / "gone" / "status.json")
    with kept_status(file.path, _explain):
        file.at_work("training", step=1)
    assert file.read() == {}
    (tmp_path / "status.json").write_text("[1")
    assert StatusFile(tmp_path / "status.json").read() == {}


def test_time_left_is_not_guessed_before_the_first_step():
    assert seconds_left([], 10) is None
    assert seconds_left(RECORDS, None) is None
    assert seconds_left(RECORDS, 12) == 0


def test_a_run_without_a_status_is_as_its_summary_says():
    state = run_state({}, {"global_steps": 2, "total_training_steps": 3}, [{STEP: 2}])
    assert (state["kind"], state["finished"], state["step"], state["of"]) == ("finished", True, 2, 3)
    state = run_state({}, None, [{STEP: 2}])
    assert (state["kind"], state["finished"], state["step"], state["of"]) == ("unknown", False, 2, None)
