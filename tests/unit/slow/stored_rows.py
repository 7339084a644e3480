"""A data plane in memory, and a trainer with an engine that answers at once: parts run on them without Ray."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from verl_ext.run.run_folder import RunFolder
from verl_ext.serving import data_plane
from verl_ext.serving.agent_loop import FIRST_SESSION, PromptReport, RolloutReport


class StoredRows:
    """Takes the place of the functions of `data_plane`."""

    def __init__(self, monkeypatch: Any) -> None:
        self.partitions: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {}
        for name in ("read", "write", "clear", "tags"):
            monkeypatch.setattr(data_plane, name, getattr(self, name))

    def write(self, keys: Sequence[str], partition: str, columns: TensorDict | None, tags: Any = None) -> None:
        rows = self.partitions.setdefault(partition, {})
        values = {} if columns is None else {name: _rows_of(columns, name) for name in columns.keys()}  # noqa: SIM118
        for place, key in enumerate(keys):
            tag, row = rows.setdefault(key, ({}, {}))
            tag.update(tags[place] if tags is not None else {})
            row.update({name: column[place] for name, column in values.items()})

    def read(self, keys: Sequence[str], partition: str, columns: Sequence[str] | None = None) -> TensorDict:
        rows = [self.partitions[partition][key][1] for key in keys]
        read: dict[str, Any] = {}
        for name in columns if columns is not None else rows[0]:
            values = [row[name] for row in rows]
            if isinstance(values[0], torch.Tensor) and values[0].ndim == 1:
                read[name] = torch.nested.as_nested_tensor(values, layout=torch.jagged)
            else:
                read[name] = np.array(values, dtype=object)
        return tu.get_tensordict(read)

    def clear(self, keys: Sequence[str], partition: str) -> None:
        for key in keys:  # like TransferQueue, it ignores unknown keys
            self.partitions.get(partition, {}).pop(key, None)

    def tags(self, partition: str) -> dict[str, dict[str, Any]]:
        return {key: tag for key, (tag, _) in self.partitions.get(partition, {}).items()}


def _rows_of(columns: TensorDict, name: str) -> list[Any]:
    column = columns[name]
    return list(column.unbind()) if isinstance(column, torch.Tensor) else list(column)


class Engine:
    """verl's agent loops: session s of a prompt passes if `passes(index, s)`, and has `outputs(s)` outputs."""

    def __init__(self, passes: Callable[[Any, int], bool], outputs: Callable[[int], int] = lambda session: 1) -> None:
        self.passes = passes
        self.outputs = outputs
        self.version = 0
        self.num_rollouts = 0
        self._waiting: dict[str, PromptReport] = {}

    def generate_and_report(self, batch: TensorDict) -> dict[str, PromptReport]:
        reports = {}
        columns = (list(batch[name]) for name in ("uid", "index", "__rollout_n__", FIRST_SESSION))
        for uid, index, num, first in zip(*columns, strict=True):
            sessions = range(int(first), int(first) + int(num))
            reports[uid] = PromptReport()
            name = index if isinstance(index, str) else int(index)
            for session in sessions:
                reward, num_outputs = float(self.passes(name, session)), self.outputs(session)
                keys = [f"{uid}_{session}_{number}" for number in range(num_outputs)]
                rows = {"advantages": [torch.full((2,), 2 * reward - 1) for _ in keys]}
                tags = [{"response_len": 2, "min_global_steps": self.version} for _ in keys]
                data_plane.write(keys, "train", data_plane.as_columns(rows), tags)
                report = RolloutReport(keys[-1], reward, {"acc": reward}, 2 * num_outputs, self.version)
                reports[uid].rollouts.append(report)
            self.num_rollouts += len(sessions)
        return reports

    def dispatch(self, batch: TensorDict) -> None:
        self._waiting |= self.generate_and_report(batch)

    def finished_reports(self, timeout_s: float = 0.0) -> dict[str, PromptReport]:
        """One prompt at a time."""
        uid = next(iter(self._waiting))
        return {uid: self._waiting.pop(uid)}


class QuietTrainer:
    """The interface of `parts.Trainer`, with a loader of prompts 0, 1, 2, …"""

    processor: Any = None

    def __init__(self, config: DictConfig, folder: Path, engine: Engine) -> None:
        self.config = config
        self.run_folder = RunFolder(folder)
        self.global_steps = 1
        self.local_trigger_step = 0
        self.agent_loop_manager = engine
        self.num_fetched = 0
        self.saved: list[int] = []
        self.influence: list[dict[str, float]] = []  # of each update
        self.collector = SimpleNamespace(observe_influence=lambda scores: self.influence.append(dict(scores)))

    @property
    def weight_version(self) -> int:
        return self.global_steps - 1

    def timed(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def waiting_for_rollouts(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def fetch_prompts(self) -> TensorDict:
        indices = range(self.num_fetched, self.num_fetched + self.config.data.gen_batch_size)
        self.num_fetched = indices.stop
        uids = [f"uid{index}" for index in indices]
        columns = {"uid": uids, "index": list(indices), "raw_prompt": [f"prompt {index}" for index in indices]}
        return tu.get_tensordict({name: np.array(values, dtype=object) for name, values in columns.items()})

    def save_unfinished_step(self) -> None:
        self.saved.append(self.global_steps - 1)
