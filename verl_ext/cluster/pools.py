"""The devices that a run takes: the trainer's, and those of engines that have their own. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig

# `trainer.v1.trainer_mode` in which engines have devices of their own.
SEPARATE = "separate_async"


@dataclass(frozen=True)
class DevicePool:
    """Devices that belong together.

    Attributes:
        owner: The node of the configuration that has `nnodes` and `n_gpus_per_node`.
        nodes: How many.
        devices: On each.
    """

    owner: str
    nodes: int
    devices: int


def has_engines_apart(config: DictConfig) -> bool:
    """Whether engines have devices of their own, where generation goes on while the actor is trained."""
    return config.trainer.v1.trainer_mode == SEPARATE


def device_pools(config: DictConfig) -> list[DevicePool]:
    """Of a run, the trainer's first."""
    pools = [DevicePool("trainer", config.trainer.nnodes, config.trainer.n_gpus_per_node)]
    if has_engines_apart(config):
        rollout = config.actor_rollout_ref.rollout
        pools.append(DevicePool("actor_rollout_ref.rollout", rollout.nnodes, rollout.n_gpus_per_node))
    return pools


def num_ranks(config: DictConfig) -> int:
    """Processes of the actor."""
    return config.trainer.nnodes * config.trainer.n_gpus_per_node


def has_several_nodes(config: DictConfig) -> bool:
    """Whether a run has more machines than this one."""
    return sum(pool.nodes for pool in device_pools(config)) > 1


def first_without_room(pools: Iterable[DevicePool], devices: Sequence[float]) -> DevicePool | None:
    """The first pool that machines with so many devices have no room for, beside those before it.

    Example:
        >>> first_without_room([DevicePool("trainer", 1, 4), DevicePool("rollout", 1, 6)], [8])
        DevicePool(owner='rollout', nodes=1, devices=6)
    """
    free = list(devices)
    for pool in pools:
        free.sort(reverse=True)
        if sum(number >= pool.devices for number in free) < pool.nodes:
            return pool
        # From the fullest that have room: what is left stays together.
        for place in range(sum(number >= pool.devices for number in free) - 1, -1, -1)[: pool.nodes]:
            free[place] -= pool.devices
    return None
