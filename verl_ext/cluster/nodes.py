"""Manages a run on every node of a Ray cluster: records its processes, cleans up, detects lost nodes.

On a shared cluster that this run did not start, its processes are not descendants of this one. So every process of a
run inherits a mark in its environment (`RUN_VARIABLE`), and only processes with this mark are touched.
"""

import contextlib
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import ray
from omegaconf import DictConfig, open_dict
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.utils.device import get_resource_name

from verl_ext.cluster import engine_resources
from verl_ext.cluster.engine_resources import RUN_VARIABLE, EngineResources, read_ledger, write_ledger
from verl_ext.cluster.pools import DevicePool, first_without_room
from verl_ext.core.errors import ClusterError

logger = logging.getLogger(__name__)

# Arguments that ray.init accepts for a new cluster and rejects when joining one.
_OF_A_NEW_CLUSTER = ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "_system_config")

# Seconds to wait for a node's answer. Ray's health checks detect a dead node within 15 to 30 s.
_ANSWER_TIMEOUT_S = 60.0
_CONNECT_TIMEOUT_S = 15.0


def choose_cluster(config: DictConfig) -> None:
    """Set `ray_kwargs.ray_init` for the cluster to join, or to start a new one.

    The address is `ray_kwargs.ray_init.address`, otherwise `RAY_ADDRESS`. Without either, a configuration that sets the
    size of the machine (`num_cpus`, as the CPU backend does) gets its own cluster; any other joins the one that `ray
    start` has started on this machine, if there is one, as verl does.
    """
    ray_init = config.ray_kwargs.ray_init
    address = ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    with open_dict(ray_init):
        if address and address != "local":
            ray_init.address = address
            for name in _OF_A_NEW_CLUSTER:
                ray_init.pop(name, None)
        elif address == "local" or ray_init.get("num_cpus") is not None:
            ray_init.address = "local"


def check_address(config: DictConfig) -> None:
    """Reject an address where nothing listens, which Ray would retry for ten minutes.

    Raises:
        ClusterError: says what to do.
    """
    address = str(config.ray_kwargs.ray_init.get("address"))
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto", "local"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise unreachable(address, error) from None


def unreachable(address: str, error: Exception) -> ClusterError:
    """The error for a missing cluster, with the text of `error`."""
    reason = (str(error) or repr(error)).splitlines()[0]
    return ClusterError(
        f"expected a running Ray cluster at {address} (ray_kwargs.ray_init.address, or the variable RAY_ADDRESS), got: "
        f"{reason}. Start one (`ray start --head`), correct the address, or leave both out for a cluster on this "
        "machine only."
    )


def owns_cluster() -> bool:
    """Whether this process started the Ray cluster it is connected to, so that Ray ends with it."""
    return any(child.name() == "raylet" for child in psutil.Process().children())


def logs_folder() -> str | None:
    """Log folder of the Ray that this process started; None for another Ray."""
    raylet = next((child for child in psutil.Process().children() if child.name() == "raylet"), None)
    arguments = raylet.cmdline() if raylet is not None else []
    return next((text.partition("=")[2] for text in arguments if text.startswith("--log_dir=")), None)


def check_nodes(pools: Sequence[DevicePool]) -> None:
    """Reject a cluster that is too small; verl would wait for it.

    Args:
        pools: Pools that the run needs, of the device type of verl's platform, which Ray calls GPU or NPU.

    Raises:
        ClusterError: says what was requested and what is available.
    """
    device = get_resource_name()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if first_without_room(pools, [node["Resources"].get(device, 0) for node in nodes]) is None:
        return
    wanted = " and ".join(
        f"{pool.nodes} nodes ({pool.owner}.nnodes) with {pool.devices} {device}s each ({pool.owner}.n_gpus_per_node)"
        for pool in pools
    )
    found = ", ".join(f"{_name(node)} with {node['Resources'].get(device, 0):g}" for node in nodes)
    slots = "--num-gpus=1" if device == "GPU" else f"--resources='{{\"{device}\": 1}}'"
    raise ClusterError(
        f"expected {wanted}, got {len(nodes)}: {found}. Start Ray on the others (`ray start --address=…`), or ask for "
        f"less. Where Ray finds no {device} by itself, it has as many as it is told: `ray start {slots}`."
    )


def on_every_node(function: Callable[..., Any], *args: Any, timeout_s: float = _ANSWER_TIMEOUT_S) -> dict[str, Any]:
    """Run `function(*args)` in a Ray task on each node.

    Returns:
        Results by node id, of the nodes that answered in time.
    """
    pending = {}
    for node in ray.nodes():
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            pending[node["NodeID"]] = _call.options(scheduling_strategy=here).remote(function, *args)
    deadline, results = time.monotonic() + timeout_s, {}
    for node_id, result in pending.items():
        try:
            results[node_id] = ray.get(result, timeout=max(0.1, deadline - time.monotonic()))
        except RayError:  # a node that dies or does not answer; GetTimeoutError is a subclass
            continue
    return results


def spread(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Run `function(*args)` for each of these in Ray tasks, on all nodes in turn and in parallel; results in order."""
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    # Ray's SPREAD is a hint: two tasks on two nodes may share one. A node that has died since is replaced by another.
    places = itertools.cycle(NodeAffinitySchedulingStrategy(node_id, soft=True) for node_id in alive)
    return ray.get(
        [
            _call.options(scheduling_strategy=place).remote(function, *args)
            for place, args in zip(places, arguments, strict=False)
        ]
    )


@ray.remote(num_cpus=0, max_retries=0)
def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


# ------------------------------ processes and shared memory ------------------------------


def record_processes(ledger: Path) -> dict[str, str]:
    """Record the engines' processes and shared memory on every node, for the clean-up of a killed run.

    Returns:
        Names of the nodes on which this run has processes, by node id.
    """
    names = {node["NodeID"]: _name(node) for node in ray.nodes()}
    found = on_every_node(EngineResources.of_raylet, os.environ[RUN_VARIABLE])
    entries = [
        replace(resources, node_id=node_id, node=names[node_id])
        for node_id, resources in found.items()
        if resources.num_processes
    ]
    write_ledger(ledger, entries)
    return {entry.node_id: entry.node for entry in entries}


def release_recorded(ledger: Path) -> list[str]:
    """Release a ledger's resources on every node. The ledger stays.

    Returns:
        Names of the leftovers.
    """
    recorded = read_ledger(ledger)
    if not recorded:
        return []
    return [name for names in on_every_node(engine_resources.release_recorded, recorded).values() for name in names]


def end_run(ledger: Path) -> list[str]:
    """End the run's actors on a shared cluster, and release their leftovers on every node.

    Returns:
        Names of the nodes of the run that no longer answer: they are lost.
    """
    recorded = read_ledger(ledger)
    # All other actors of the run are its children and end with it. ValueError: it has ended already.
    with contextlib.suppress(ValueError):
        ray.kill(ray.get_actor(runner_name()))
    answered = on_every_node(engine_resources.release_run, os.environ[RUN_VARIABLE], recorded)
    return [entry.node for entry in recorded if entry.node_id not in answered]


def runner_name() -> str:
    """Name of the actor that holds the trainer."""
    return f"verl_signal_{os.environ[RUN_VARIABLE]}"


def _name(node: Mapping[str, Any]) -> str:
    host, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
    return f"{host} ({address})" if host != address else host


# ------------------------------ lost nodes ------------------------------


class NodeWatchdog:
    """Stops the trainer from waiting when a node of the run is lost.

    Collectives and queues wait for a lost rank far too long (NCCL: ten minutes and more). A thread in
    the trainer's process asks Ray which nodes are alive and, when one of the run's is not, kills the actors that the
    trainer waits for, and after a while the trainer itself. `end_run` then says which node it was.

    Args:
        nodes: names by node id.
        waited_for: actors to kill, so that nothing waits for them any more.
        interval_s: seconds between two checks.
        grace_s: seconds for the trainer to end by itself.
    """

    def __init__(
        self, nodes: Mapping[str, str], waited_for: Sequence[Any], interval_s: float, grace_s: float = 30.0
    ) -> None:
        self._nodes = dict(nodes)
        self._waited_for = list(waited_for)
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="node-watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching: the end of a run is not a loss."""
        self._stop.set()

    def lost(self) -> list[str]:
        """Names of the run's nodes that Ray declared dead."""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        return [name for node_id, name in self._nodes.items() if node_id not in alive]

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            lost = self.lost()
            if lost:
                logger.error("lost %s: ending the run", " and ".join(lost))
                for actor in self._waited_for:
                    ray.kill(actor)
                if not self._stop.wait(self._grace_s):
                    os._exit(1)
                return
