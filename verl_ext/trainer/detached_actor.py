"""verl's actor of `separate_async`, which keeps weights of earlier updates, for weights in the memory of the CPU. Our
actor in every asynchronous trainer, for the engine guard.

verl 0.9.1 keeps weights before it computes old log-probs, and the engine guard does so occasionally. With FSDP2 and
VeOmni they are `tensor.cpu()`. If the weights are already on the CPU (`param_offload`, `offload_policy`, VeOmni's
`enable_fsdp_offload`, the CPU backend), this is the trained tensor itself, and restoring kept weights undoes updates.
verl's copies of FSDP1's and Megatron's weights are separate tensors.

verl offloads FSDP's weights without waiting for the device, so until then the CPU must neither read nor write them.
"""

from collections.abc import Callable
from typing import Any

import torch
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.utils.device import get_torch_device

# Strategies whose kept weights are a pair: shards with their layouts by name, and the layout of the first.
_SHARDED = ("fsdp2", "veomni")


class CopyingActorWorker(DetachActorWorker):
    """verl's actor; kept weights are copies wherever the weights are, and offloaded weights are waited for."""

    @property
    def copy_handler(self) -> Callable[[torch.nn.Module], Any]:
        save = super().copy_handler

        def saved(module: torch.nn.Module) -> Any:
            get_torch_device().synchronize()
            state = save(module)
            if self.config.actor.strategy not in _SHARDED:
                return state
            shards, layout = state
            return _separate(shards, module), layout

        return saved

    @property
    def restore_handler(self) -> Callable[..., None]:
        restore = super().restore_handler

        def restored(*arguments: Any) -> None:
            get_torch_device().synchronize()
            restore(*arguments)

        return restored


def _separate(shards: dict[str, tuple[torch.Tensor, Any]], module: torch.nn.Module) -> dict[str, Any]:
    """The shards by name, those that are the module's own tensors copied; what verl has copied is not copied again."""
    weights: dict[str, Any] = dict(module.named_parameters())
    kept: dict[str, Any] = {}
    for name, (shard, layout) in shards.items():
        trained = weights[name] if layout is None else weights[name].to_local()
        is_shared = shard.untyped_storage().data_ptr() == trained.untyped_storage().data_ptr()
        kept[name] = (shard.clone() if is_shared else shard, layout)
    return kept
