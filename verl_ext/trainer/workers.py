"""Worker classes: verl's own of a mode, the parts' and the CPU's."""

from typing import Any

import ray
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.trainer.ppo.utils import Role
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_ext.core.compat import undecorated
from verl_ext.trainer import loading
from verl_ext.trainer.detached_actor import CopyingActorWorker
from verl_ext.trainer.parts import Part

# Roles that include the actor.
ACTORS = (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef)


def replace_workers(classes: dict[Role, Any], parts: list[Part], device: str, *, keep_weights: bool) -> None:
    """Replace verl's workers by those that the parts require, and those of the CPU.

    Args:
        classes: verl's Ray actor classes by role; changed.
        parts: Parts of the trainer.
        device: "cpu", or an accelerator.
        keep_weights: whether the actor can keep copies of its weights, which verl's can only in `separate_async`.

    Raises:
        ConfigError: two parts require different actors.
    """
    wanted = loading.worker_class(parts)
    for role in ACTORS:
        if role in classes:
            classes[role] = ray.remote(_joined(wanted, _actor(undecorated(classes[role]), keep_weights)))
    if device == "cpu" and Role.Critic in classes:
        from verl_ext.cpu.engine import CPUTrainingWorker

        classes[Role.Critic] = ray.remote(CPUTrainingWorker)


def _actor(verls: type, keep_weights: bool) -> type:
    """The class that verl decorated, behind Ray's actor class, or our version of it."""
    return CopyingActorWorker if keep_weights or issubclass(verls, DetachActorWorker) else ActorRolloutRefWorker


def _joined(wanted: type | None, verls: type) -> type:
    """A part's worker on top of verl's worker of the mode, which has methods that the trainer's mode calls."""
    if wanted is None or issubclass(wanted, verls):
        return wanted or verls
    return type(f"{wanted.__name__}Over{verls.__name__}", (wanted, verls), {"__module__": wanted.__module__})
