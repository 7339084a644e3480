"""Ctrl-C at successive moments of a run, and SIGTERM: one message, no remaining processes or memory, and in the end
nothing lost."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from attempts import SHARED_MEMORY, Attempt, attempt, press_ctrl_c, run, saved_step

from verl_ext.run.metrics_stream import STEP, read_metrics

# An attempt lasts up to four minutes.
pytestmark = [pytest.mark.release, pytest.mark.timeout(1200)]

STEPS = 3
OVERRIDES = [f"trainer.total_training_steps={STEPS}", "trainer.save_freq=1", "trainer.val_before_train=false"]


def _has_process(name: str) -> Callable[[Path, psutil.Process, int], bool]:
    """Whether the run has a process with this name."""

    def is_there(run_dir: Path, driver: psutil.Process, before: int) -> bool:
        try:
            return any(name in " ".join(child.cmdline()) for child in driver.children(recursive=True))
        except psutil.NoSuchProcess:
            return False

    return is_there


def _num_steps(run_dir: Path) -> int:
    return len(read_metrics(run_dir / "metrics.jsonl"))


# In the order of a run. `before` is the number of steps that earlier attempts have made.
MOMENTS: dict[str, Callable[[Path, psutil.Process, int], bool]] = {
    "Ray starts": _has_process("gcs_server"),
    "Ray's agents start": _has_process("ray::"),
    "the engine starts": _has_process("VLLM::"),
    "rollouts are made": lambda run_dir, driver, before: (run_dir / "engine_resources.json").exists(),
    "a checkpoint is written": lambda run_dir, driver, before: (run_dir / "checkpoints/.saving").exists(),
    "a step is over": lambda run_dir, driver, before: _num_steps(run_dir) > before < saved_step(run_dir),
}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all attempts: each continues where the previous one ended."""
    return tmp_path_factory.mktemp("interrupts") / "run"


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_leaves_nothing_behind(demo_assets: None, run_dir: Path, moment: str):
    before = _num_steps(run_dir)
    ended: Attempt = attempt(run_dir, OVERRIDES, lambda driver: MOMENTS[moment](run_dir, driver, before), press_ctrl_c)
    assert ended.code == 130, ended.printed[-3000:]
    assert "interrupted: the same command resumes from the newest checkpoint" in ended.printed
    _assert_nothing_is_left(ended, run_dir)


def test_sigterm_leaves_nothing_behind(demo_assets: None, run_dir: Path):
    """As Slurm ends a run, while rollouts are made."""
    ended = attempt(
        run_dir,
        OVERRIDES,
        lambda driver: (run_dir / "engine_resources.json").exists(),
        lambda driver: driver.terminate(),
    )
    assert ended.code == 1, ended.printed[-3000:]
    assert "ended by SIGTERM" in ended.printed
    assert "SIGTERM received" not in ended.printed  # Ray's own words, before a stack
    _assert_nothing_is_left(ended, run_dir)


def _assert_nothing_is_left(ended: Attempt, run_dir: Path) -> None:
    assert "Traceback" not in ended.printed
    assert ended.seconds < 90
    assert ended.orphans == []
    assert not [name for name in ended.segments if (SHARED_MEMORY / name).exists()]
    assert not (run_dir / "engine_resources.json").exists()


def test_the_same_command_then_ends_well(run_dir: Path):
    result = run(run_dir, *OVERRIDES)
    assert result.returncode == 0, result.stderr[-3000:]
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["global_steps"] == STEPS
    assert summary["rollouts_trained"] == STEPS * 8 * 16
    assert read_metrics(run_dir / "metrics.jsonl")[-1][STEP] == STEPS
    kept = [folder.name for folder in (run_dir / "checkpoints").iterdir() if folder.is_dir()]
    assert all(re.fullmatch(r"global_step_\d+", name) for name in kept)
