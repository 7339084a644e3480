"""Training runs on the real stack, by the command that a user would write: started, resumed, skipped if finished."""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from verl_ext.run.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]


class RunError(Exception):
    """A command ended before its work was done."""


class WholeRun(ABC):
    """One training run.

    Attributes:
        program: The module that is run.
        steps: Its length.
    """

    program: ClassVar[str]
    steps: int

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The run folder: metrics, checkpoints, summary."""

    @abstractmethod
    def overrides(self) -> list[str]:
        """What follows the program's name."""

    @property
    def log(self) -> Path:
        """What the command printed."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def command(self) -> list[str]:
        """As a user would write it."""
        return ["python", "-m", self.program, *self.overrides()]

    def is_finished(self) -> bool:
        """Whether its folder has a run of this length or longer."""
        summary = RunFolder(self.folder).read_summary()
        return summary is not None and summary["global_steps"] >= self.steps

    def describe(self) -> str:
        """For `--dry-run`: whether it is finished, and its command."""
        return f"# {self.folder.name}: {'finished' if self.is_finished() else 'to do'}\n{' '.join(self.command())}"


AnyRun = TypeVar("AnyRun", bound=WholeRun)


def execute(command: Sequence[str], log: Path) -> int:
    """Run a command of `python`, output appended to a log; returns its status. Ctrl-C is left to the command."""
    log.parent.mkdir(parents=True, exist_ok=True)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, *command[1:]],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # it got the signal as well, and ends its engines
                continue


def train(run: WholeRun) -> int:
    """Run the command, or resume it; returns its exit status."""
    return execute(run.command(), run.log)


def finish(runs: Sequence[AnyRun], train: Callable[[AnyRun], int] = train) -> None:
    """Make what is missing, in order.

    Raises:
        RunError: A run failed or was interrupted; nothing after it is started.
    """
    for number, run in enumerate(runs, start=1):
        if run.is_finished():
            continue
        print(f"{number} of {len(runs)}: {run.folder.name}, {run.steps} steps", flush=True)
        status = train(run)
        if status != 0 or not run.is_finished():
            raise RunError(f"{run.folder.name} ended with status {status}: {run.log} says why; this command resumes it")


def missing_files(root: Path, needed: Mapping[str, str], section: str) -> str | None:
    """A sentence about what is not there and how it is made; None if all is.

    Args:
        root: Of the repository.
        needed: By file, the script of data_preprocess that makes it.
        section: Of the documentation, which has the commands.
    """
    missing = {name: script for name, script in needed.items() if not (root / name).exists()}
    if not missing:
        return None
    scripts = ", ".join(f"data_preprocess.{script}" for script in missing.values())
    return f"{', '.join(missing)} missing: run {scripts}, as {section} shows"
