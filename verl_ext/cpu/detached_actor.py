"""verl's actor of `separate_async`, which keeps weights of earlier updates, on the CPU."""

from collections.abc import Callable
from typing import Any

import torch
from verl.experimental.separation.engine_workers import DetachActorWorker


class CPUDetachActorWorker(DetachActorWorker):
    """verl's actor, with copies of the kept weights: on the CPU its `tensor.cpu()` is the trained tensor itself."""

    @property
    def copy_handler(self) -> Callable[[torch.nn.Module], tuple[dict[str, Any], Any]]:
        save = super().copy_handler

        def copied(module: torch.nn.Module) -> tuple[dict[str, Any], Any]:
            shards, rules = save(module)
            return {name: (shard.clone(), spec) for name, (shard, spec) in shards.items()}, rules

        return copied
