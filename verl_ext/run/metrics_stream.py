"""The run's metrics as JSON lines: one object per step, appended to on resume.

verl's own `file` logger truncates its file when a run resumes. Here a resumed run keeps the records up to the
checkpoint; records of steps past it, which are trained again, move to `metrics.superseded.jsonl`.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STEP = "training/global_step"


class MetricsStream:
    """Append-only JSON lines.

    Args:
        path: file of the stream; its folder is created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def resume_after(self, step: int) -> None:
        """Keep the records up to `step`; a torn last line (the run was killed while writing) counts as superseded."""
        if not self.path.exists():
            return
        kept, superseded = [], []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                is_kept = json.loads(line)[STEP] <= step
            except (json.JSONDecodeError, KeyError, TypeError):
                is_kept = False
            (kept if is_kept else superseded).append(line)
        if not superseded:
            return
        with self.path.with_suffix(".superseded.jsonl").open("a", encoding="utf-8") as archive:
            archive.writelines(f"{line}\n" for line in superseded)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        temporary.replace(self.path)

    def append(self, metrics: Mapping[str, Any]) -> None:
        """Write one record. Scalars only: tensors and arrays of one element become numbers, NaN becomes null."""
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(scalars(metrics)) + "\n")


def scalars(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that fit into a record: numbers, with null for NaN, and strings."""
    return {name: scalar for name, value in metrics.items() if (scalar := _scalar(value)) is not _NOT_A_SCALAR}


_NOT_A_SCALAR = object()


def _scalar(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "size", 1) in (1, ()):
        value = value.item()
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _NOT_A_SCALAR


class MetricsTail:
    """Reads a stream that another process writes, each record once.

    Args:
        path: file of the stream; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0  # bytes

    def new_records(self) -> list[dict[str, Any]]:
        """Complete records written since the last call."""
        if not self._path.exists():
            return []
        if self._path.stat().st_size < self._position:  # truncated by a resume
            self._position = 0
        with self._path.open("rb") as stream:
            stream.seek(self._position)
            new = stream.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._position += len(complete)
        return [json.loads(line) for line in complete.splitlines()]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All complete records of a stream, in order; empty if the file does not exist yet."""
    return MetricsTail(path).new_records()
