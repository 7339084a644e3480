"""Command-line runs into which a fault is injected, and what remains of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from lab import ROOT, TINY

SHARED_MEMORY = Path("/dev/shm")

# A user sets nothing: `+backend=cpu` must be enough.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}


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
    """

    code: int
    printed: str
    seconds: float
    saved: int
    orphans: list[str]
    segments: set[str]


def saved_step(run_dir: Path) -> int:
    """Step of the newest checkpoint; 0 without one."""
    tracker = run_dir / "checkpoints/latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.exists() else 0


def attempt(
    run_dir: Path,
    overrides: list[str],
    is_time: Callable[[psutil.Process], bool],
    fault: Callable[[psutil.Process], None],
    timeout_s: float = 180,
    program: Sequence[str] = OWN,
) -> Attempt:
    """Start the command in its own session; when `is_time`, apply `fault` to it, and wait for it to end."""
    process = subprocess.Popen(
        command(run_dir, *overrides, program=program),
        cwd=ROOT,
        # verl's own command chooses its platform before it knows about the backend.
        env=ENVIRONMENT if program is OWN else ENVIRONMENT | {"VERL_PLATFORM": "cpu"},
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
    return Attempt(code, "".join(printed), seconds, saved_step(run_dir), orphans, segments)


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
