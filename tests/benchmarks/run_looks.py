"""Validations of a run over its rollouts and its seconds, from the files in its folder. No torch.

A look: a validation.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verl_ext.run.metrics_stream import STEP, read_metrics
from verl_ext.run.run_folder import RunFolder


@dataclass(frozen=True)
class Look:
    """A validation.

    Attributes:
        step: After so many updates.
        rollouts: Made until then, for training and for TracIn's validation gradient.
        seconds: Of steps until then, without evaluations and without writing checkpoints.
        values: Of each of the metrics asked for; 0 where the run has none.
    """

    step: int
    rollouts: float
    seconds: float
    values: tuple[float, ...]


def read_looks(folder: Path, steps: int, metrics: Sequence[str]) -> list[Look]:
    """The looks of a run up to a step; with the one before the first step, if it was made.

    Args:
        folder: The run folder.
        steps: Looks at later steps are left out.
        metrics: Names in metrics.jsonl; a record with the first of them is a look.
    """
    run = RunFolder(folder)
    first = json.loads(run.first_validation.read_text(encoding="utf-8")) if run.first_validation.exists() else {}
    looks, validation_rollouts, saving = [], 0.0, 0.0
    for record in [{**first.get("metrics", {}), STEP: 0}, *read_metrics(run.metrics)]:
        validation_rollouts += record.get("tracin/validation/rollouts_generated") or 0
        saving += record.get("timing_s/save_checkpoint") or 0
        if record.get(metrics[0]) is None or record[STEP] > steps:
            continue
        looks.append(
            Look(
                step=record[STEP],
                rollouts=record.get("training/total/rollouts_generated", 0) + validation_rollouts,
                seconds=record.get("training/total/seconds", 0.0) - saving,
                values=tuple(record.get(name) or 0.0 for name in metrics),
            )
        )
    return looks


def first_reached(values: Sequence[float], x: Sequence[float], level: float) -> float | None:
    """`x` where a curve is first as high as the level, interpolated between its points; None: never."""
    curve = np.asarray(values, dtype=np.float64)
    reached = np.flatnonzero(curve >= level)
    if not len(reached):
        return None
    place = int(reached[0])
    if place == 0:
        return float(x[0])
    share = (level - curve[place - 1]) / (curve[place] - curve[place - 1])
    return float(x[place - 1] + share * (x[place] - x[place - 1]))
