"""Ghost passes under FSDP2: no gradient communication, and no change of FSDP2's own state."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

from verl_ext.influence.method.ghost_functions import InfluenceError


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
