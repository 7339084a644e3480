"""Ghost passes under FSDP2: G in shards, no other gradient communication, and no change of FSDP2's own state."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Partial

from verl_ext.influence.batches import whole
from verl_ext.influence.method.ghost_parameters import InfluenceError, Storage

# Smaller gradients are stored whole: gathering each of them would take longer than reading it.
SMALLEST_SHARDED = 1 << 16


class ShardedStorage(Storage):
    """G in shards like the parameters': each rank stores one of every large weight, averaged over the ranks.

    Each micro-batch scatters a layer's gradient as FSDP2 does in an update, and gathers G for one layer at a time, so
    that a rank never has more of G than its shards and one layer. LoRA's factors are stored whole, as other small
    parameters are; these are sums of a rank's own tokens, which the caller reduces.

    Args:
        model: The module that scores are computed for, after `fully_shard`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layouts = {
            name: (parameter.device_mesh, parameter.placements)
            for name, parameter in model.named_parameters()
            if isinstance(parameter, DTensor) and parameter.numel() >= SMALLEST_SHARDED and "lora_" not in name
        }

    def store(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """The mean over the ranks, sharded like the parameter; a small parameter's gradient as it is."""
        if name not in self._layouts:
            return gradient
        mesh, placements = self._layouts[name]
        summands = DTensor.from_local(gradient, mesh, [Partial()] * mesh.ndim, run_check=False)
        return summands.redistribute(mesh, placements) / mesh.size()

    def whole(self, stored: torch.Tensor) -> torch.Tensor:
        """Gathered, if it is sharded."""
        return whole(stored) if isinstance(stored, DTensor) else stored

    def local(self, stored: torch.Tensor) -> torch.Tensor:
        """The shard."""
        return stored.to_local() if isinstance(stored, DTensor) else stored

    def like(self, tensor: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
        """A shard on the device of what is stored, or the whole."""
        if not isinstance(stored, DTensor):
            return self.whole(tensor).to(stored)
        return DTensor.from_local(
            self.local(tensor).to(stored.to_local()),
            stored.device_mesh,
            stored.placements,
            run_check=False,
            shape=stored.shape,
            stride=stored.stride(),
        )


@contextmanager
def without_gradient_sync(model: nn.Module) -> Iterator[None]:
    """Wrap each ghost context of a model under FSDP2 in this; it does nothing for a model that is not sharded.

        with without_gradient_sync(model), ghost.scoring(sample_index):
            loss.backward()

    - FSDP2 takes its dtypes from the parameters that are trainable at the first forward. A ghost pass freezes all of
      them, so if it came first, a later bf16 update would fail: FSDP2 is initialised here.
    - Parameters are resharded on both sides. FSDP2 copies `requires_grad` from a sharded parameter to the full one when
      it gathers; one that stays gathered, as the root's after its forward, would be trained here or frozen later.
    - After an exception FSDP2 believes that a forward is running; its state is reset. This drops any gradients that the
      caller had accumulated without synchronisation.

    Raises:
        InfluenceError: The model is wrapped by FSDP1, or is a part of an FSDP2 model instead of its root.
    """
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise InfluenceError(
            "influence scores need FSDP2, this model is wrapped by FSDP1, which flattens the weights: "
            "set actor_rollout_ref.actor.strategy=fsdp2"
        )
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        yield
        return
    if not isinstance(model, FSDPModule):
        raise InfluenceError(
            "pass the module that fully_shard was applied to last, the root: FSDP2 keeps its state there"
        )
    # There is no public way to run the initialisation of the first forward without a forward.
    model._get_fsdp_state()._lazy_init()
    groups = [group for module in sharded for group in module._get_fsdp_state()._fsdp_param_groups]
    synced = [(group.reduce_grads, group.all_reduce_grads) for group in groups]
    for module in sharded:
        module.reshard()
    model.set_requires_gradient_sync(False)
    try:
        yield
    except BaseException:
        # Older versions of torch cannot recover an aborted iteration: there the exception must end the run.
        if hasattr(model, "reset_iter_state"):
            model.reset_iter_state()
        raise
    finally:
        for group, (reduce_grads, all_reduce_grads) in zip(groups, synced, strict=True):
            group.reduce_grads, group.all_reduce_grads = reduce_grads, all_reduce_grads
        for module in sharded:
            module.reshard()
