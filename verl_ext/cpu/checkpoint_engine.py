"""Weights from the actor to engines on other devices, over gloo: verl's checkpoint engines for that need accelerators.

Imported through `rollout.checkpoint_engine.custom_backend_module`, and chosen by `checkpoint_engine.backend=gloo`.
"""

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import ray
import torch
from torch.distributed import ProcessGroupGloo, TCPStore
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

# Timeout per tensor; after it, the other side counts as dead.
_TIMEOUT = timedelta(minutes=10)

# Host and port of the rendezvous store.
Address = tuple[str, int]


@CheckpointEngineRegistry.register("gloo")
class GlooCheckpointEngine(CheckpointEngine):
    """The actor's first rank broadcasts one tensor after the other to all rollout workers.

    Args:
        bucket_size: Used by verl's other engines; there are no buckets here.
        is_master: Whether this is the actor's first rank.
    """

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._is_master = is_master
        self._store: TCPStore | None = None
        self._group: ProcessGroupGloo | None = None

    def prepare(self) -> Address | None:
        """Open the store on the first rank; returns its address for the others."""
        if not self._is_master:
            return None
        host = ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
        return host, self._store.port

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Address | None]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The actor's other ranks are not in the group (rank -1): they only help to gather the weights."""
        world_size, address = 1 + rollout_world_size, metadata[0]

        def arguments(ranks: list[int]) -> dict[str, list[Any]]:
            return {"rank": ranks, "world_size": [world_size] * len(ranks), "address": [address] * len(ranks)}

        return arguments([0] + [-1] * (actor_wg_world_size - 1)), arguments(list(range(1, world_size)))

    def init_process_group(self, rank: int, world_size: int, address: Address) -> None:
        """Join the group, which is separate from torch's default one."""
        if rank < 0:
            return
        if self._store is None:
            self._store = TCPStore(*address, is_master=False, wait_for_workers=False, timeout=_TIMEOUT)
        self._group = ProcessGroupGloo(self._store, rank, world_size, _TIMEOUT)

    def finalize(self) -> None:
        """Leave the group: the next synchronisation may be with other replicas."""
        self._group = self._store = None

    async def send_weights(self, weights: Iterator[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        """Broadcast a model's weights; every rank of the actor calls it."""
        async for name, weight in ensure_async_iterator(weights):  # gathers the tensor from all ranks
            if self._group is not None:
                await self._broadcast(_packed((name, weight.shape, weight.dtype)))
                await self._broadcast(weight.detach().cpu().contiguous().view(-1).view(torch.uint8))
        if self._group is not None:
            await self._broadcast(_packed(None))

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The tensors by name, in the order in which they are sent."""
        while (header := await self._received_header()) is not None:
            name, shape, dtype = header
            data = torch.empty(shape.numel() * dtype.itemsize, dtype=torch.uint8)
            await self._broadcast(data)
            yield name, data.view(dtype).view(shape)

    async def _received_header(self) -> tuple[str, torch.Size, torch.dtype] | None:
        header = torch.empty(_HEADER_BYTES, dtype=torch.uint8)
        await self._broadcast(header)
        return pickle.loads(header.numpy().tobytes())

    async def _broadcast(self, tensor: torch.Tensor) -> None:
        assert self._group is not None
        await asyncio.to_thread(self._group.broadcast(tensor, root=0).wait)


# Bytes of a pickled name, shape and dtype.
_HEADER_BYTES = 1024


def _packed(header: tuple[str, torch.Size, torch.dtype] | None) -> torch.Tensor:
    data = pickle.dumps(header)
    if len(data) > _HEADER_BYTES:
        raise ValueError(f"expected a weight's name of less than {_HEADER_BYTES} bytes, got {header}")
    packed = torch.zeros(_HEADER_BYTES, dtype=torch.uint8)
    packed[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return packed
