"""The data plane: tensors by key, in partitions, with one tag each. The only file that uses TransferQueue.

verl keeps a step's rollouts there; the control plane names rows by key and never holds their tensors. A *column* is one
field of rows; its rows may differ in length.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

# verl's partitions: rollouts to train on, and those of validations.
TRAIN = "train"
VALIDATION = "val"

Tag = dict[str, Any]

__all__ = [
    "TRAIN",
    "VALIDATION",
    "KVBatchMeta",
    "Tag",
    "as_columns",
    "clear",
    "load",
    "read",
    "save",
    "select_rows",
    "start",
    "tags",
    "write",
]


def start(config: DictConfig | None = None) -> None:
    """Start the store in this Ray cluster, or connect to the running one.

    Args:
        config: verl's `transfer_queue` node.
    """
    tq.init(config)


def read(keys: Sequence[str], partition: str, columns: Sequence[str] | None = None) -> TensorDict:
    """Columns of rows, in the order of `keys`; without `columns`, all columns of the rows."""
    return tq.kv_batch_get(
        keys=list(keys), partition_id=partition, select_fields=None if columns is None else list(columns)
    )


def write(keys: Sequence[str], partition: str, columns: TensorDict | None, tags: Sequence[Tag] | None = None) -> None:
    """Add or replace columns of rows, and their tags; None leaves them unchanged. New rows may have only tags."""
    copies = None if tags is None else [dict(tag) for tag in tags]
    tq.kv_batch_put(keys=list(keys), partition_id=partition, fields=columns, tags=copies)


def as_columns(rows: Mapping[str, Sequence[torch.Tensor]]) -> TensorDict:
    """Columns for `write` from one tensor per row; the tensors of a column may differ in length."""
    sizes = {len(column) for column in rows.values()}
    if len(sizes) != 1:
        raise ValueError(f"every column needs one tensor per row, got columns of {sorted(sizes)} rows")
    jagged = {name: torch.nested.as_nested_tensor(list(column), layout=torch.jagged) for name, column in rows.items()}
    return TensorDict(jagged, sizes.pop())


def tags(partition: str) -> dict[str, Tag]:
    """The rows of a partition, with their tags."""
    stored = tq.kv_list(partition) or {}
    return stored.get(partition, {})


def clear(keys: Sequence[str], partition: str) -> None:
    """Free rows; without keys, do nothing."""
    if keys:
        tq.kv_clear(keys=list(keys), partition_id=partition)


def select_rows(batch: KVBatchMeta, positions: Sequence[int]) -> KVBatchMeta:
    """The batch of these rows; the rows themselves stay in place."""
    return KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[batch.keys[position] for position in positions],
        tags=[batch.tags[position] for position in positions],
        fields=batch.fields,
        extra_info=batch.extra_info,
    )


def save(folder: Path) -> None:
    """Save everything to a new folder."""
    tq.save_checkpoint(folder)


def load(folder: Path) -> None:
    """Replace everything by the content that `save` wrote."""
    tq.load_checkpoint(folder)
