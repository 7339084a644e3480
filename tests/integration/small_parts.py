"""A user's parts, in a module found only through PYTHONPATH; named by `selectors` and `observers`."""

from typing import Any

import torch

from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.trainer.parts import Observer, Selector, Trainer


class EvenSessions(Selector):
    """Hides the rollouts of odd sessions from the update, and counts its steps."""

    def __init__(self, trainer: Trainer) -> None:
        self._num_steps = 0
        self._before: tuple[list[str], Any] | None = None
        self._left_out = 0.0

    def select(self, batch: KVBatchMeta) -> KVBatchMeta:
        odd = [key for key in batch.keys if int(key.rsplit("_", 2)[1]) % 2]
        rows = list(data_plane.read(odd, batch.partition_id, ["advantages"])["advantages"].unbind())
        self._before = odd, data_plane.as_columns({"advantages": rows})
        zeros = data_plane.as_columns({"advantages": [torch.zeros_like(row) for row in rows]})
        data_plane.write(odd, batch.partition_id, zeros)
        self._left_out = len(odd) / len(batch.keys)
        return batch

    def after_update(self, batch: KVBatchMeta) -> None:
        keys, columns = self._before
        data_plane.write(keys, batch.partition_id, columns)
        self._num_steps += 1

    def metrics(self) -> dict[str, Any]:
        return {"even_sessions/left_out": self._left_out}

    def state_dict(self) -> dict[str, Any]:
        return {"num_steps": self._num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._num_steps = state["num_steps"]


class AdvantagesSeen(Observer):
    """The sum of absolute advantages over even and over odd sessions, after the update."""

    def __init__(self, trainer: Trainer) -> None:
        self._metrics: dict[str, Any] = {}

    def observe(self, batch: KVBatchMeta) -> None:
        rows = data_plane.read(batch.keys, batch.partition_id, ["advantages"])["advantages"].unbind()
        sizes = {0: 0.0, 1: 0.0}
        for key, row in zip(batch.keys, rows, strict=True):
            sizes[int(key.rsplit("_", 2)[1]) % 2] += float(row.abs().sum())
        self._metrics = {"seen/even": sizes[0], "seen/odd": sizes[1]}

    def metrics(self) -> dict[str, Any]:
        return self._metrics
