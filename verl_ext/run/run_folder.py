"""Names of the files that every recipe writes to a run folder; a recipe defines its own."""

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from verl_ext.core.errors import ConfigError
from verl_ext.run.metrics_stream import scalars


@dataclass(frozen=True)
class RunFolder:
    """The folder with a run's records.

    Args:
        path: the folder, `run_dir` of the configuration.
    """

    path: Path

    @property
    def metrics(self) -> Path:
        """One JSON object per step."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """Summary of the finished run."""
        return self.path / "summary.json"

    @property
    def status(self) -> Path:
        """The current state of the run; see `status.py`."""
        return self.path / "status.json"

    @property
    def first_validation(self) -> Path:
        """The validation before the first step: `metrics`, `seconds`, `num_prompts` (null if not known)."""
        return self.path / "validation_before.json"

    @property
    def engine_ledger(self) -> Path:
        """Processes and shared memory of the vLLM engines while they run."""
        return self.path / "engine_resources.json"

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Lock the folder while this command runs: a second one would kill its engines.

        Raises:
            ConfigError: Another process has locked the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise ConfigError(
                    f"another run (process {lock.read() or 'unknown'}) is writing to {self.path}: wait for it, end it, "
                    "or choose another run_dir"
                ) from None
            except OSError:
                pass  # a file system without locks
            lock.truncate(0)
            lock.write(f"{os.getpid()} on {platform.node()}")
            lock.flush()
            yield

    def write_versions(self, versions: dict[str, str]) -> None:
        """Record the versions of the run's libraries, by distribution, and those of Python and torch."""
        found = {"python": platform.python_version(), "torch": metadata.version("torch"), **versions}
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "versions.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the summary atomically."""
        _write_json(self.summary, summary)

    def write_first_validation(self, metrics: Mapping[str, Any], seconds: float, num_prompts: int | None) -> None:
        """Write it atomically."""
        found = {"metrics": scalars(metrics), "seconds": seconds, "num_prompts": num_prompts}
        _write_json(self.first_validation, found)

    def read_summary(self) -> dict[str, Any] | None:
        """The summary, or None while the run is not finished."""
        return json.loads(self.summary.read_text(encoding="utf-8")) if self.summary.exists() else None


def _write_json(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
