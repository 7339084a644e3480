"""A job in several calls: each works until its time is up, ends after a whole step, and saves what the next one needs.

A *call* is one process, on a machine that may be gone afterwards. It saves files directly in its state folder, each
small enough to be copied back; folders in it only serve calls on the same machine.
"""

import datetime
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from pieces import PieceError, write_atomically

SECONDS_BETWEEN_SAVES = 60.0
# The next step may take longer than any before, and the state is written after it.
MARGIN = 1.3
RECORDED = ("torch", "transformers", "peft", "verl", "TransferQueue", "tensordict", "ray", "vllm", "verl-signal")


@dataclass(frozen=True)
class Setting:
    """What a job is asked to do.

    Attributes:
        state: Its state folder.
        root: Folder of the sources, with models and data in `outputs`.
        device: "cuda" or "cpu".
        is_toy: Tiny models and few steps, to try the code.
        deadline: In `time.monotonic`; the call ends before.
    """

    state: Path
    root: Path
    device: str
    is_toy: bool
    deadline: float

    def seconds_left(self) -> float:
        """Seconds until the call must have ended."""
        return self.deadline - time.monotonic()


class Job(Protocol):
    """Work in steps. A new object continues where the last `save` was."""

    def advance(self) -> bool:
        """Take one step; False if there was none left, or no time for it."""
        ...

    def keep_only(self, names: Sequence[str]) -> None:
        """Leave out all other steps."""
        ...

    def save(self) -> None:
        """Write all that a new object needs into the state folder."""
        ...

    def left(self) -> str:
        """What is still to do, in a few words; empty when all is done."""
        ...

    def figures(self) -> Any:
        """What was measured so far, as JSON."""
        ...


def call(job: Job, setting: Setting, most_steps: int | None = None) -> bool:
    """Work until the time is up, no step is left, or `most_steps` were taken; returns whether the job is complete."""
    longest, saved, steps = 0.0, time.monotonic(), 0
    while (most_steps is None or steps < most_steps) and setting.seconds_left() > MARGIN * longest:
        began = time.monotonic()
        if not job.advance():
            break
        steps += 1
        longest = max(longest, time.monotonic() - began)
        if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            job.save()
            saved = time.monotonic()
    job.save()
    return not job.left()


def write_results(name: str, setting: Setting, job: Job) -> Path:
    """Write the figures, with what a reader needs to judge them, to `results.json` in the state folder."""
    record = {
        "job": name,
        "is_complete": not job.left(),
        "is_toy": setting.is_toy,
        "device": device_name(setting.device),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": installed_versions(),
        "figures": job.figures(),
    }
    path = setting.state / "results.json"
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
    return path


def device_name(device: str) -> str:
    """Name of the accelerator, as reported by its driver."""
    import torch  # a job of commands starts without it

    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def installed_versions() -> dict[str, str]:
    """Versions of the libraries that determine the figures."""
    found: dict[str, str] = {}
    for name in RECORDED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Table:
    """A job of independent steps that each have a name; what a step returns is its record.

    Args:
        state: Folder of `records.json`.
        steps: A step returns JSON, or None if there was no time for it and it has to be taken again.
    """

    def __init__(self, state: Path, steps: Mapping[str, Callable[[], Any]]) -> None:
        self._path = state / "records.json"
        self._steps = steps
        self.records: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def keep_only(self, names: Sequence[str]) -> None:
        """Leave out all other steps, so that several processes can share the work, each in its own state folder.

        Raises:
            PieceError: There is no such step.
        """
        if unknown := [name for name in names if name not in self._steps]:
            raise PieceError(f"no step {', '.join(unknown)}. The steps: {', '.join(self._steps)}.")
        self._steps = {name: self._steps[name] for name in names}

    def names_left(self) -> list[str]:
        """Steps without a record."""
        return [name for name in self._steps if name not in self.records]

    def advance(self) -> bool:
        """Take the next step, and save its record at once: it may have taken minutes."""
        for name in self.names_left():
            record = self._steps[name]()
            if record is None:
                return False
            self.records[name] = record
            self.save()
            return True
        return False

    def save(self) -> None:
        """Write the records."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, (json.dumps(self.records, indent=1) + "\n").encode())

    def left(self) -> str:
        """The number of steps left, and the next one."""
        names = self.names_left()
        return f"{len(names)} of {len(self._steps)} steps, the next is {names[0]}" if names else ""

    def figures(self) -> dict[str, Any]:
        """The records."""
        return self.records
