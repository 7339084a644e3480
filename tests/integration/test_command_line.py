"""`python -m recipe.fast_dapo.main` as a user runs it: killed, resumed, to the end, and once more."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from lab import ROOT, TINY

from verl_ext.metrics_stream import STEP, read_metrics

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


def _wait_for_step(run_dir: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 500
    while time.monotonic() < deadline:
        records = read_metrics(run_dir / "metrics.jsonl")
        if records and records[-1][STEP] >= step:
            return
        assert process.poll() is None, f"the run ended before step {step}: {process.communicate()[0][-3000:]}"
        time.sleep(0.1)
    pytest.fail(f"step {step} was not reached")


def _engine_segments(run_dir: Path) -> set[str]:
    ledger = json.loads((run_dir / "engine_resources.json").read_text())
    return {name for entry in ledger for name in entry["segments"]}


@pytest.fixture(scope="module")
def resumed_run(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, set[str]]:
    """A run that was killed with SIGKILL after a step, and the same command again, to the end."""
    run_dir = tmp_path_factory.mktemp("resumed")
    overrides = [
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=1",
        f"trainer.test_freq={STEPS}",
        # Prompts that were fetched and not yet screened wait across the kill, too.
        "curriculum.schedule=streaming",
    ]
    process = subprocess.Popen(
        _command(run_dir, *overrides),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    _wait_for_step(run_dir, 3, process)
    segments = _engine_segments(run_dir)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed_after = int((run_dir / "checkpoints/latest_checkpointed_iteration.txt").read_text())
    result = _run(run_dir, *overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    return run_dir, killed_after, segments


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
    run_dir, killed_after, _ = resumed_run
    assert 3 <= killed_after < STEPS
    steps = [record[STEP] for record in read_metrics(run_dir / "metrics.jsonl")]
    # A kill between a step's checkpoint and its record loses that one record, never a step.
    assert steps in (list(range(1, STEPS + 1)), [step for step in range(1, STEPS + 1) if step != killed_after])


def test_cumulative_counts_never_go_back(resumed_run):
    records = read_metrics(resumed_run[0] / "metrics.jsonl")
    for name in ("seconds", "rollouts_generated", "rollouts_trained", "tokens_trained"):
        values = [record[f"training/total/{name}"] for record in records]
        assert values == sorted(values)
    assert [record["training/total/rollouts_trained"] for record in records] == [
        record[STEP] * 128 for record in records
    ]


def test_no_prompt_is_lost_or_trained_on_twice(resumed_run):
    """Over the kill: what was screened is trained on, dropped or still waiting, and each prompt once an epoch."""
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
    run_dir, _, segments = resumed_run
    assert segments, "the engine made no shared memory: the ledger looks in the wrong place"
    assert not [name for name in segments if (SHARED_MEMORY / name).exists()]
    assert not (run_dir / "engine_resources.json").exists()


def test_a_finished_run_says_so_and_keeps_its_results(resumed_run):
    run_dir = resumed_run[0]
    before = (run_dir / "summary.json").read_text()
    result = _run(run_dir, f"trainer.total_training_steps={STEPS}", "trainer.save_freq=1")
    assert result.returncode == 0
    assert "This run is complete" in result.stdout
    assert (run_dir / "summary.json").read_text() == before
