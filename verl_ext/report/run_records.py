"""Reads a run folder for its pages while the run may still write.

A page is opened to find out what went wrong, so missing or damaged files do not stop it: broken lines are counted and
reported on the page. Texts are read only from both ends of a file, which may have gigabytes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from verl_ext.core.errors import SignalError
from verl_ext.run.metrics_stream import STEP
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile
from verl_ext.run.trainer_metrics import is_accuracy

_CHUNK = 1 << 20  # bytes
_LONGEST_LINE = 64 << 20  # bytes searched for a line's end


class NoRunError(SignalError):
    """A folder is not a run folder."""


@dataclass
class RunRecords:
    """One run.

    Attributes:
        path: Its folder.
        metrics: One record per step, in the file's order; first, as step 0, the validation before training.
        first_validation: Details of that one: `seconds`, `num_prompts`.
        status: Content of `status.json`; empty without one.
        num_broken: Complete lines of the metrics that are not a JSON object with a step.
        superseded: Steps that were trained again after a resume.
        summary: None until a run is finished.
        config: As Hydra composed it, unresolved.
        overrides: Overrides of the command line.
        hydra: Hydra's own settings: the recipe's name, chosen groups, version.
        versions: Package -> version, if the folder has `versions.json`.
        last_write: When the metrics were last written (seconds since 1970); None without metrics.
    """

    path: Path
    metrics: list[dict[str, Any]] = field(default_factory=list)
    num_broken: int = 0
    superseded: list[int] = field(default_factory=list)
    first_validation: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    hydra: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    last_write: float | None = None

    @property
    def folder(self) -> RunFolder:
        """Names of its files."""
        return RunFolder(self.path)

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.path.resolve().name

    @property
    def recipe(self) -> str:
        """Name of the configuration that was started."""
        job = self.hydra.get("job")
        return str(job.get("config_name") or "unknown") if isinstance(job, dict) else "unknown"


def read_run(path: Path) -> RunRecords:
    """Read everything except the histories of prompts and samples, which `read_objects` reads.

    Raises:
        NoRunError: The folder has neither metrics nor a configuration.
    """
    folder = RunFolder(path)
    if not folder.metrics.is_file() and not folder.status.is_file() and not (path / "hydra").is_dir():
        raise NoRunError(f"{path}: neither metrics.jsonl nor hydra/ is there. Give the run's run_dir")
    lines, num_broken = read_objects(folder.metrics)
    steps = [record for record in lines if type(record.get(STEP)) is int]
    summary, first = _json(folder.summary), _json(folder.first_validation) or {}
    old, _ = read_objects(folder.metrics.with_suffix(".superseded.jsonl"))
    hydra = _yaml(path / "hydra" / "hydra.yaml", dict).get("hydra")
    return RunRecords(
        path=path,
        metrics=[*step_zero(first, summary, steps), *steps],
        first_validation=first,
        status=StatusFile(folder.status).read(),
        num_broken=num_broken + len(lines) - len(steps),
        superseded=sorted({record[STEP] for record in old if type(record.get(STEP)) is int}),
        summary=summary,
        config=_yaml(path / "hydra" / "config.yaml", dict),
        overrides=[str(one) for one in _yaml(path / "hydra" / "overrides.yaml", list)],
        hydra=hydra if isinstance(hydra, dict) else {},
        versions={str(name): str(own) for name, own in (_json(path / "versions.json") or {}).items()},
        last_write=folder.metrics.stat().st_mtime if folder.metrics.is_file() else None,
    )


def step_zero(
    first: Mapping[str, Any], summary: Mapping[str, Any] | None, steps: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The validation before training as a record: curves of accuracy begin there. Empty if there was none.

    Args:
        first: Its `metrics` and `seconds`, if the run has kept them.
        summary: Has the accuracy for a run that has not kept them; the metric is known only if there is a single one.
        steps: The other records.
    """
    validation = first.get("metrics")
    if not isinstance(validation, dict):
        before = (summary or {}).get("val_accuracy_before")
        names = {name for record in steps for name in record if is_accuracy(name)}
        if type(before) not in (int, float) or len(names) != 1:
            return []
        validation = {names.pop(): before}
    nothing_yet: dict[str, Any] = {f"training/total/{name}": 0 for name in ("seconds", "rollouts_generated")}
    if first.get("seconds") is not None:
        nothing_yet["timing_s/testing"] = first["seconds"]
    return [{**validation, **nothing_yet, STEP: 0}]


def read_objects(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The complete lines of a file that are JSON objects, and the number of lines that are not; a torn last line is
    left out."""
    if not path.is_file():
        return [], 0
    data = path.read_bytes()
    return parse_lines(data[: data.rfind(b"\n") + 1].split(b"\n"))


def parse_lines(lines: Iterable[bytes]) -> tuple[list[dict[str, Any]], int]:
    """Same as `read_objects`, for lines; empty ones do not count."""
    found, num_broken = [], 0
    for line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            found.append(value)
        else:
            num_broken += 1
    return found, num_broken


def first_lines(path: Path, number: int) -> list[bytes]:
    """Up to this many complete lines from the start; the rest is not read."""
    found: list[bytes] = []
    with path.open("rb") as stream:
        while len(found) < number and (line := stream.readline(_LONGEST_LINE)).endswith(b"\n"):
            found.append(line)
    return found


def last_lines(path: Path, number: int) -> list[bytes]:
    """Up to this many complete lines from the end; earlier ones are not read."""
    with path.open("rb") as stream:
        position, data = stream.seek(0, 2), b""
        # One more line end than lines, because the first line may be partial; one more for a torn last line.
        while position > 0 and data.count(b"\n") < number + 2 and len(data) < _LONGEST_LINE:
            size = min(_CHUNK, position)
            position -= size
            stream.seek(position)
            data = stream.read(size) + data
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    if position > 0:
        lines = lines[1:]
    return lines[-number:] if number > 0 else []


def stamp(path: Path) -> tuple[int, int] | None:
    """A value that changes with the file; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _yaml(path: Path, kind: type) -> Any:
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError):
        return kind()
    return value if isinstance(value, kind) else kind()
