"""`python -m recipe.fast_dapo.main` as a user runs it: one fault after another, resumed each time, to the end.

Every attempt is the same command in the same folder. What is to hold at the end, holds over all of them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from lab import ROOT, TINY

from verl_ext.metrics_stream import STEP, read_metrics

# All attempts are in a fixture, so in the first test's time.
pytestmark = pytest.mark.timeout(2400)

SHARED_MEMORY = Path("/dev/shm")
STEPS = 12


def _command(run_dir: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "recipe.fast_dapo.main", *TINY, f"run_dir={run_dir}", *overrides]


# A user sets nothing: `+backend=cpu` must be enough.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}


def _run(run_dir: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(run_dir, *overrides),
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def _engine_segments(run_dir: Path) -> set[str]:
    ledger = json.loads((run_dir / "engine_resources.json").read_text())
    return {name for entry in ledger for name in entry["segments"]}


@dataclass(frozen=True)
class Attempt:
    """How an attempt ended that something was done to.

    Args:
        code: Exit status of the command.
        printed: Its output and errors.
        seconds: From the fault to the end.
        saved: Step of the newest checkpoint afterwards.
        orphans: Processes of it that still ran half a minute later.
        segments: Names in shared memory of its engines.
    """

    code: int
    printed: str
    seconds: float
    saved: int
    orphans: list[str]
    segments: set[str]


def _saved_step(run_dir: Path) -> int:
    tracker = run_dir / "checkpoints/latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.exists() else 0


def _attempt(run_dir: Path, overrides: list[str], fault: Callable[[psutil.Process], None]) -> Attempt:
    """Start the command, let it save a checkpoint more than it found, then do `fault` to its process."""
    wanted = _saved_step(run_dir) + 1
    process = subprocess.Popen(
        _command(run_dir, *overrides),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # A thread reads, or a full pipe would stop the run.
    printed: list[str] = []
    reader = threading.Thread(target=lambda: printed.extend(process.stdout), daemon=True)
    reader.start()
    try:
        deadline = time.monotonic() + 800
        while _saved_step(run_dir) < wanted:
            assert process.poll() is None, f"the run ended before step {wanted}: {''.join(printed)[-3000:]}"
            assert time.monotonic() < deadline, f"step {wanted} was not reached"
            time.sleep(0.05)
        segments, tree = _engine_segments(run_dir), psutil.Process(process.pid).children(recursive=True)
        began = time.monotonic()
        fault(psutil.Process(process.pid))
        code = process.wait(timeout=180)
        seconds = time.monotonic() - began
    finally:
        process.kill()
    # Ray's processes end by themselves when their driver is killed; they need a moment.
    _, alive = psutil.wait_procs(tree, timeout=30)
    reader.join(timeout=30)
    orphans = [_describe(orphan) for orphan in alive]
    return Attempt(code, "".join(printed), seconds, _saved_step(run_dir), orphans, segments)


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())[:100] or process.name()
    return ""


FAULTS = {
    "driver": psutil.Process.kill,
    "Ctrl-C": lambda driver: driver.send_signal(signal.SIGINT),
}
OVERRIDES = [
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=1",
    f"trainer.test_freq={STEPS}",
    # Prompts that were fetched and not yet screened wait across the faults, too.
    "curriculum.schedule=streaming",
]


@pytest.fixture(scope="module")
def attempts(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Attempt]]:
    """The run's folder and its faults, in their order."""
    run_dir = tmp_path_factory.mktemp("faults") / "run"
    return run_dir, {name: _attempt(run_dir, OVERRIDES, fault) for name, fault in FAULTS.items()}


def test_ctrl_c_ends_the_run_with_a_word_and_nothing_is_left(attempts: tuple[Path, dict[str, Attempt]]):
    attempt = attempts[1]["Ctrl-C"]
    assert attempt.code == 130, attempt.printed[-3000:]
    assert "interrupted: the same command resumes from the newest checkpoint" in attempt.printed
    assert "Traceback" not in attempt.printed
    assert attempt.seconds < 90
    assert attempt.orphans == []
    assert attempt.segments, "the engine made no shared memory: the ledger looks in the wrong place"
    assert not [name for name in attempt.segments if (SHARED_MEMORY / name).exists()]


@pytest.fixture(scope="module")
def resumed_run(attempts: tuple[Path, dict[str, Attempt]]) -> tuple[Path, dict[str, Attempt], str]:
    """The same command to the end, after its newest checkpoint was cut short."""
    run_dir, faults = attempts
    newest = run_dir / f"checkpoints/global_step_{faults['Ctrl-C'].saved}"
    (shard,) = (newest / "actor").glob("optim_world_size_*.pt")
    os.truncate(shard, shard.stat().st_size // 2)
    result = _run(run_dir, *OVERRIDES)
    assert result.returncode == 0, result.stderr[-3000:]
    return run_dir, faults, result.stderr


def test_a_checkpoint_that_was_cut_short_falls_back_to_the_one_before(resumed_run):
    run_dir, faults, printed = resumed_run
    damaged = f"global_step_{faults['Ctrl-C'].saved}"
    assert f"warning: {damaged} is damaged (actor/optim_world_size_1_rank_0.pt has" in printed
    assert f"warning: resuming from global_step_{faults['Ctrl-C'].saved - 1}" in printed
    assert (run_dir / f"checkpoints/{damaged}.damaged").is_dir()


def test_the_run_ends_with_a_summary(resumed_run):
    summary = json.loads((resumed_run[0] / "summary.json").read_text())
    assert summary["global_steps"] == STEPS
    assert summary["rollouts_trained"] == STEPS * 8 * 16
    assert summary["rollouts_generated"] > summary["rollouts_trained"]
    assert summary["seconds"] > 0


def test_training_raises_the_validation_accuracy(resumed_run):
    summary = json.loads((resumed_run[0] / "summary.json").read_text())
    assert summary["val_accuracy_after"] > summary["val_accuracy_before"] + 0.03


def test_steps_go_on_where_the_checkpoint_ended(resumed_run):
    run_dir, faults, _ = resumed_run
    saved = [attempt.saved for attempt in faults.values()]
    assert saved == sorted(set(saved))
    assert saved[-1] < STEPS
    steps = [record[STEP] for record in read_metrics(run_dir / "metrics.jsonl")]
    # A fault between a step's checkpoint and its record loses that one record, never a step.
    assert steps == sorted(set(steps))
    assert set(range(1, STEPS + 1)) - set(steps) <= set(saved)


def test_cumulative_counts_never_go_back(resumed_run):
    records = read_metrics(resumed_run[0] / "metrics.jsonl")
    for name in ("seconds", "rollouts_generated", "rollouts_trained", "tokens_trained"):
        values = [record[f"training/total/{name}"] for record in records]
        assert values == sorted(values)
    assert [record["training/total/rollouts_trained"] for record in records] == [
        record[STEP] * 128 for record in records
    ]


def test_no_prompt_is_lost_or_trained_on_twice(resumed_run):
    """Over all faults: what was screened is trained on, dropped or still waiting, and each prompt once an epoch."""
    run_dir = resumed_run[0]
    records = [json.loads(line) for line in (run_dir / "prompts.jsonl").read_text().splitlines()]
    screened = Counter(r["index"] for r in records if r["event"] == "screening")
    continued = Counter(r["index"] for r in records if r["event"] == "continuation")
    trained = Counter(r["index"] for r in records if r["event"] == "trained")
    qualified = Counter(r["index"] for r in records if r["event"] == "screening" and 0 < r["passes"] < 4)
    assert sum(trained.values()) == STEPS * 8
    assert all(trained[index] <= continued[index] <= qualified[index] for index in trained)
    # The order of an epoch is a permutation: nothing comes twice before everything else had its turn.
    assert max(screened.values()) - min(screened.values(), default=0) <= 1
    state_file = run_dir / f"checkpoints/global_step_{STEPS}/signal.json"
    controller = json.loads(state_file.read_text())["controller"]
    waiting = len(controller["second"]) + len(controller["training"])
    expired = controller["counts"]["windows"]["total"]["expired"]
    assert sum(qualified.values()) == sum(trained.values()) + waiting + expired


def test_nothing_of_the_run_stays_in_shared_memory(resumed_run):
    run_dir, faults, _ = resumed_run
    segments = {name for attempt in faults.values() for name in attempt.segments}
    assert not [name for name in segments if (SHARED_MEMORY / name).exists()]
    assert not (run_dir / "engine_resources.json").exists()


def test_a_finished_run_says_so_and_keeps_its_results(resumed_run):
    run_dir = resumed_run[0]
    before = (run_dir / "summary.json").read_text()
    result = _run(run_dir, f"trainer.total_training_steps={STEPS}", "trainer.save_freq=1")
    assert result.returncode == 0
    assert "This run is complete" in result.stdout
    assert (run_dir / "summary.json").read_text() == before
