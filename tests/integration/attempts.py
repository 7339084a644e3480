"""Command-line runs into which a fault is injected, and what remains of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from lab import ROOT, TINY

from verl_ext.run.metrics_stream import STEP, read_metrics

SHARED_MEMORY = Path("/dev/shm")

# A user sets nothing: `+backend=cpu` must be enough.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}

# Variables of a command in which `plain_engine.py` serves under vLLM's name.
PLAIN_AS_VLLM = {
    "PLAIN_ENGINE_NAME": "vllm",
    # In this order, as the plugin registers the CPU backend's vLLM.
    "VERL_USE_EXTERNAL_MODULES": "verl_ext.plugin,plain_engine",
    "PYTHONPATH": str(Path(__file__).parent),
}

OWN = ("recipe.fast_dapo.main",)
VERLS = ("verl.trainer.main_ppo", "+recipe=fast_dapo")


def command(run_dir: Path, *overrides: str, program: Sequence[str] = OWN) -> list[str]:
    """A tiny run of Fast DAPO, by its own command or by verl's."""
    return [sys.executable, "-m", *program, *TINY, f"run_dir={run_dir}", *overrides]


def run(run_dir: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        command(run_dir, *overrides),
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@dataclass(frozen=True)
class Attempt:
    """How an attempt with an injected fault ended.

    Args:
        code: Exit status of the command.
        printed: Its output and errors.
        seconds: Time from the fault to the end.
        saved: Step of the newest checkpoint afterwards.
        orphans: Its processes that were still running half a minute later.
        segments: Shared-memory names of its engines, as recorded in its ledger at the time of the fault.
        processes: Titles of its processes at that time.
        jobs: What its engines' processes then had as the job in the name of their socket for new weights.
    """

    code: int
    printed: str
    seconds: float
    saved: int
    orphans: list[str]
    segments: set[str]
    processes: list[str]
    jobs: set[str]


def saved_step(run_dir: Path) -> int:
    """Step of the newest checkpoint; 0 without one."""
    tracker = run_dir / "checkpoints/latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.exists() else 0


def last_step(records: Path) -> int:
    """Step of the last complete record of a file of JSON lines; 0 without one."""
    found = read_metrics(records)
    return found[-1].get(STEP, found[-1].get("step")) if found else 0


def attempt(
    run_dir: Path,
    overrides: list[str],
    is_time: Callable[[psutil.Process], bool],
    fault: Callable[[psutil.Process], None],
    timeout_s: float = 180,
    program: Sequence[str] = OWN,
    variables: Mapping[str, str] | None = None,
) -> Attempt:
    """Start the command in its own session; when `is_time`, apply `fault` to it, and wait for it to end."""
    # verl's own command chooses its platform before it knows about the backend.
    added = dict(variables or {}) if program is OWN else {**(variables or {}), "VERL_PLATFORM": "cpu"}
    process = subprocess.Popen(
        command(run_dir, *overrides, program=program),
        cwd=ROOT,
        env=ENVIRONMENT | added,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Tests that a shell runs in the background ignore SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # A thread reads the output, or a full pipe would block the run.
    printed: list[str] = []
    reader = threading.Thread(target=lambda: printed.extend(process.stdout), daemon=True)
    reader.start()
    driver = psutil.Process(process.pid)
    try:
        deadline = time.monotonic() + 800
        while not is_time(driver):
            assert process.poll() is None, f"the run ended too early: {''.join(printed)[-3000:]}"
            assert time.monotonic() < deadline, f"the moment never came: {''.join(printed)[-3000:]}"
            time.sleep(0.05)
        segments, tree = _engine_segments(run_dir), driver.children(recursive=True)
        processes, jobs = [_describe(process) for process in tree], _jobs(tree)
        began = time.monotonic()
        fault(driver)
        code = process.wait(timeout=timeout_s)
        seconds = time.monotonic() - began
    finally:
        process.kill()
    # Ray's processes end by themselves when their driver is killed; they need a moment.
    _, alive = psutil.wait_procs(tree, timeout=30)
    reader.join(timeout=30)
    orphans = [_describe(orphan) for orphan in alive]
    return Attempt(code, "".join(printed), seconds, saved_step(run_dir), orphans, segments, processes, jobs)


def _jobs(processes: Sequence[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found.add(process.environ().get("VERL_RAY_JOB_ID"))
    return found - {None}


def kill_after_a_step_past_the_checkpoint(
    run_dir: Path, overrides: list[str], records: Sequence[str], variables: Mapping[str, str] | None = None
) -> Attempt:
    """Start the command and kill it (SIGKILL) when a step after its newest checkpoint has ended: a resume must take
    that step back.

    Args:
        run_dir: folder of the run.
        overrides: of the command; `trainer.save_freq` must be above 1, or every step has its checkpoint.
        records: names of the run's files of JSON lines, which then have records of that step.
        variables: added to the command's environment.
    """
    killed = attempt(
        run_dir,
        overrides,
        lambda _: 0 < saved_step(run_dir) < last_step(run_dir / "metrics.jsonl"),
        psutil.Process.kill,
        variables=variables,
    )
    assert killed.code == -signal.SIGKILL
    reached = {name: last_step(run_dir / name) for name in ("metrics.jsonl", *records)}
    assert min(reached.values()) > killed.saved > 0, f"no step to take back after step {killed.saved}: {reached}"
    return killed


def resume_to_the_end(
    run_dir: Path, overrides: list[str], killed: Attempt, variables: Mapping[str, str] | None = None
) -> None:
    """Run the command of a killed attempt again, to its end."""
    resumed = attempt(
        run_dir,
        overrides,
        lambda _: saved_step(run_dir) > killed.saved,
        lambda _: None,
        timeout_s=800,
        variables=variables,
    )
    assert resumed.code == 0, resumed.printed[-3000:]
    assert resumed.orphans == []


def assert_one_step_was_taken_back(run_dir: Path, saved: int, steps: int) -> None:
    """Every step up to `steps` has one record, and those of the steps after checkpoint `saved` were made again."""
    made = [record[STEP] for record in read_metrics(run_dir / "metrics.jsonl")]
    assert made == list(range(1, steps + 1))
    taken_back = [record[STEP] for record in read_metrics(run_dir / "metrics.superseded.jsonl")]
    assert taken_back == [saved + 1]


def assert_the_guard_compared(run_dir: Path, saved: int) -> None:
    """The engine guard compared rollouts, also after the resume from checkpoint `saved`, and engine and actor agree."""
    compared = [record for record in read_metrics(run_dir / "metrics.jsonl") if "engine_guard/probs_diff_max" in record]
    assert any(record[STEP] > saved for record in compared)
    assert max(record["engine_guard/probs_diff_max"] for record in compared) < 1e-4


def press_ctrl_c(driver: psutil.Process) -> None:
    """Send SIGINT to every process of the command's group, as a terminal does."""
    os.killpg(driver.pid, signal.SIGINT)


def _engine_segments(run_dir: Path) -> set[str]:
    ledger = run_dir / "engine_resources.json"
    if not ledger.exists():  # no engine has started
        return set()
    return {name for entry in json.loads(ledger.read_text()) for name in entry["segments"]}


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())[:100] or process.name()
    return ""
