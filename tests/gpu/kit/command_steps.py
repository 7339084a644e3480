"""Steps of a job that are commands of the real stack."""

import json
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

from commands import Ended, run_command
from sessions import Setting
from training_commands import training_command

from verl_ext.run.metrics_stream import STEP, read_metrics

# A step that starts Ray and an engine needs at least this long to be worthwhile.
LEAST_SECONDS = 150.0
# There is no network, and FlashInfer, with which vLLM samples by default, is not packed.
VARIABLES = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
# An interrupted run ends its workers and engines within this time.
GRACE_S = 60.0


def python(
    setting: Setting,
    words: Sequence[str],
    log: str,
    watch: Callable[[Popen], None] | None = None,
    most_seconds: float | None = None,
) -> Ended | None:
    """Run the words after `python`, with output in the state's `LOG.log`; None if too little time is left for it."""
    seconds = min(setting.seconds_left(), most_seconds or float("inf"))
    if seconds < LEAST_SECONDS:
        return None
    path = setting.state / f"{log}.log"
    return run_command([sys.executable, *words], setting.root, path, seconds, GRACE_S, VARIABLES, watch)


def dry_run(setting: Setting, name: str, overrides: Sequence[str]) -> Any:
    """The checks of a run before Ray starts, as a record."""
    words = training_command(setting.device, setting.root, setting.state / name, [*overrides, "dry_run=true"])
    ended = python(setting, words, name)
    if ended is None or not ended.in_time:
        return None
    return {"code": ended.code, "nothing_was_started": "nothing was started" in ended.tail}


def saved_step(run_dir: Path) -> int:
    """Step of the newest checkpoint; 0 without one."""
    tracker = run_dir / "checkpoints/latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.exists() else 0


def steps_of(run_dir: Path) -> list[int]:
    """Numbers of the steps in the run's metrics, in order."""
    path = run_dir / "metrics.jsonl"
    return [record[STEP] for record in read_metrics(path)] if path.exists() else []


def keep_metrics(setting: Setting, run_dir: Path, name: str) -> None:
    """Copy the run's metrics into the state folder, which is copied back."""
    if (run_dir / "metrics.jsonl").exists():
        shutil.copyfile(run_dir / "metrics.jsonl", setting.state / f"{name}.metrics.jsonl")


def figures_of(run_dir: Path) -> dict[str, Any]:
    """Figures from a run's metrics: validations by step, median times, peak memory, and its summary."""
    records = read_metrics(run_dir / "metrics.jsonl")
    names = sorted({name for record in records for name in record})
    # The first step compiles and warms up.
    values = {name: [record[name] for record in records[1:] if name in record] for name in names}
    summary = run_dir / "summary.json"
    return {
        "validations": [
            {name: value for name, value in record.items() if name == STEP or name.startswith("val-core/")}
            for record in records
            if any(name.startswith("val-core/") for name in record)
        ],
        "median": {name: statistics.median(found) for name, found in values.items() if found and "timing_s/" in name},
        "peak": {name: max(found) for name, found in values.items() if found and "memory" in name},
        "summary": json.loads(summary.read_text()) if summary.exists() else None,
    }
