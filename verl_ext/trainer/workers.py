"""The workers' classes: verl's own of a mode, the parts' and the CPU's."""

from typing import Any

import ray
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.trainer.ppo.utils import Role
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_ext.core.compat import undecorated
from verl_ext.trainer import loading
from verl_ext.trainer.parts import Part

# Roles of which the actor is one.
ACTORS = (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef)


def replace_workers(classes: dict[Role, Any], parts: list[Part], device: str) -> None:
    """Put the workers that the parts ask for, and those of the CPU, in the place of verl's.

    Args:
        classes: verl's Ray actor classes by role; changed.
        parts: Of the trainer.
        device: "cpu", or an accelerator.

    Raises:
        ConfigError: two parts ask for different actors.
    """
    wanted = loading.worker_class(parts)
    for role in ACTORS:
        if role in classes:
            classes[role] = ray.remote(_joined(wanted, _actor(undecorated(classes[role]), device)))
    if device == "cpu" and Role.Critic in classes:
        from verl_ext.cpu.engine import CPUTrainingWorker

        classes[Role.Critic] = ray.remote(CPUTrainingWorker)


def _actor(verls: type, device: str) -> type:
    """The class that verl decorated, of which Ray has made another; on the CPU, ours of it."""
    if not issubclass(verls, DetachActorWorker):
        return ActorRolloutRefWorker
    if device != "cpu":
        return DetachActorWorker
    from verl_ext.cpu.detached_actor import CPUDetachActorWorker

    return CPUDetachActorWorker


def _joined(wanted: type | None, verls: type) -> type:
    """A part's worker over verl's of the mode, which has methods that the trainer's mode calls."""
    if wanted is None or issubclass(wanted, verls):
        return wanted or verls
    return type(f"{wanted.__name__}Over{verls.__name__}", (wanted, verls), {"__module__": wanted.__module__})
