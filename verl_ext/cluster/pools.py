"""The devices that a run uses: the trainer's, and those of engines on separate devices. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig

# The `trainer.v1.trainer_mode` in which engines have separate devices.
SEPARATE = "separate_async"


@dataclass(frozen=True)
class DevicePool:
    """A pool of devices.

    Attributes:
        owner: The node of the configuration that has `nnodes` and `n_gpus_per_node`.
        nodes: Number of nodes.
        devices: Devices per node.
    """

    owner: str
    nodes: int
    devices: int


def has_engines_apart(config: DictConfig) -> bool:
    """Whether engines have separate devices, where generation continues while the actor is trained."""
    return config.trainer.v1.trainer_mode == SEPARATE


def device_pools(config: DictConfig) -> list[DevicePool]:
    """Pools of a run, the trainer's first."""
    pools = [DevicePool("trainer", config.trainer.nnodes, config.trainer.n_gpus_per_node)]
    if has_engines_apart(config):
        rollout = config.actor_rollout_ref.rollout
        pools.append(DevicePool("actor_rollout_ref.rollout", rollout.nnodes, rollout.n_gpus_per_node))
    return pools


def num_ranks(config: DictConfig) -> int:
    """Number of processes of the actor."""
    return config.trainer.nnodes * config.trainer.n_gpus_per_node


def has_several_nodes(config: DictConfig) -> bool:
    """Whether a run uses more than one machine."""
    return sum(pool.nodes for pool in device_pools(config)) > 1


def first_without_room(pools: Iterable[DevicePool], devices: Sequence[float]) -> DevicePool | None:
    """The first pool that does not fit on machines with these devices, in addition to the pools before it.

    Example:
        >>> first_without_room([DevicePool("trainer", 1, 4), DevicePool("rollout", 1, 6)], [8])
        DevicePool(owner='rollout', nodes=1, devices=6)
    """
    free = list(devices)
    for pool in pools:
        free.sort(reverse=True)
        if sum(number >= pool.devices for number in free) < pool.nodes:
            return pool
        # Take the fullest machines with room, so that the free devices stay together.
        for place in range(sum(number >= pool.devices for number in free) - 1, -1, -1)[: pool.nodes]:
            free[place] -= pool.devices
    return None
