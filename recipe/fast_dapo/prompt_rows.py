"""Data rows of live prompts: in the driver during the run, in the data plane across a checkpoint.

A row goes out once for screening and once for continuation, often together with only a few others. Reading it back from
the data plane each time would cost the driver more than the dispatch itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensordict import NonTensorData, TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from verl_ext.serving import data_plane


class PromptRows:
    """Rows by uid.

    Args:
        partition: Partition of the data plane, for checkpoints.
    """

    def __init__(self, partition: str) -> None:
        self.partition = partition
        self._rows: dict[str, dict[str, Any]] = {}
        self._stored: set[str] = set()  # in the data plane already

    def __contains__(self, uid: str) -> bool:
        return uid in self._rows

    @property
    def uids(self) -> set[str]:
        return set(self._rows)

    def add(self, rows: Mapping[str, Any]) -> None:
        """Add rows by column, as verl's loader returns them; values of the whole batch (NonTensorData) are not kept."""
        columns = {name: rows[name] for name, value in rows.items() if not isinstance(value, NonTensorData)}
        for position, uid in enumerate(rows["uid"]):
            self._rows[uid] = {name: column[position] for name, column in columns.items()}

    def batch(self, uids: Sequence[str]) -> TensorDict:
        """The rows of these prompts, in this order.

        Raises:
            KeyError: an unknown uid.
        """
        return tu.get_tensordict(collate_fn([self._rows[uid] for uid in uids]))

    def value(self, uid: str, column: str) -> Any:
        """One value of a prompt's row; None if the data set has no such column."""
        return self._rows[uid].get(column)

    def remove(self, uids: Iterable[str]) -> None:
        """Forget prompts; the caller clears their names in the data plane."""
        for uid in uids:
            self._rows.pop(uid, None)
            self._stored.discard(uid)

    def clear(self) -> None:
        """Forget all prompts."""
        self._rows.clear()
        self._stored.clear()

    def store(self, tag: dict[str, Any]) -> None:
        """Write the rows that the data plane does not have yet."""
        new = [uid for uid in self._rows if uid not in self._stored]
        if new:
            data_plane.write(new, self.partition, self.batch(new), [tag for _ in new])
            self._stored.update(new)

    def restore(self, uids: Sequence[str]) -> None:
        """Replace all rows by those that the data plane has under these names."""
        self.clear()
        if uids:
            self.add(data_plane.read(uids, self.partition))
            self._stored.update(uids)
