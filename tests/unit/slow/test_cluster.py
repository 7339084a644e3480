"""Which cluster a run joins, and how an unsuitable one is refused. The rest is an integration test."""

import queue
import socket
import time
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.plugin.platform import get_platform

from verl_ext.cluster import nodes as cluster
from verl_ext.cluster.pools import DevicePool
from verl_ext.core.errors import ClusterError

# As in the CPU backend.
SIZES = {"num_cpus": 64, "num_gpus": 1, "object_store_memory": 10**9, "include_dashboard": False}


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def _chosen(**ray_init: Any) -> dict[str, Any]:
    config = OmegaConf.create({"ray_kwargs": {"ray_init": ray_init}})
    OmegaConf.set_struct(config, True)
    cluster.choose_cluster(config)
    return OmegaConf.to_container(config.ray_kwargs.ray_init)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379"])
def test_a_cluster_that_runs_is_joined_as_it_is(address: str, monkeypatch: pytest.MonkeyPatch):
    """Ray refuses sizes together with an address."""
    joined = {"address": address, "include_dashboard": False}
    assert _chosen(**SIZES, address=address) == joined
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert _chosen(**SIZES) == joined
    # The configuration takes precedence over the environment.
    assert _chosen(address="other:1") == {"address": "other:1"}


def _check(address: str | None) -> None:
    cluster.check_address(OmegaConf.create({"ray_kwargs": {"ray_init": {"address": address}}}))


@pytest.mark.parametrize("form", ["{}", "ray://{}"])
def test_an_address_where_nothing_listens_is_refused_at_once(form: str):
    """Ray would keep trying for ten minutes."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = form.format(f"127.0.0.1:{listening.getsockname()[1]}")
        listening.listen()
        _check(address)
    with pytest.raises(ClusterError, match=f"expected a running Ray cluster at {address} .* got: .*refused"):
        _check(address)


def test_an_address_that_does_not_exist_is_refused():
    for address in ("no-such-machine.invalid:6379", "127.0.0.1:99999"):
        with pytest.raises(ClusterError, match="expected a running Ray cluster at"):
            _check(address)


@pytest.mark.parametrize("address", ["auto", "local", None])
def test_addresses_that_ray_looks_up_are_left_to_ray(address: str | None):
    _check(address)


def test_a_configuration_with_sizes_gets_a_cluster_of_its_own():
    """Not the cluster that is already running on this machine."""
    assert _chosen(**SIZES) == SIZES | {"address": "local"}


def test_a_cluster_of_its_own_can_be_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert _chosen(**SIZES, address="local") == SIZES | {"address": "local"}


def test_without_sizes_ray_decides_as_for_verl():
    assert _chosen(num_cpus=None) == {"num_cpus": None}


def _node(address: str, gpus: int, alive: bool = True, device: str = "GPU") -> dict[str, Any]:
    resources = {"CPU": 8.0} | ({device: float(gpus)} if gpus else {})
    return {"Alive": alive, "NodeManagerHostname": "host", "NodeManagerAddress": address, "Resources": resources}


def _pool(nodes: int, devices: int) -> DevicePool:
    return DevicePool("trainer", nodes, devices)


def test_a_cluster_that_is_too_small_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Even if the total is large enough: verl requests its GPUs per node, and waits for them."""
    nodes = [_node("10.0.0.1", 8), _node("10.0.0.2", 8, alive=False), _node("10.0.0.3", 0)]
    monkeypatch.setattr(cluster.ray, "nodes", lambda: nodes)
    cluster.check_nodes([_pool(1, 8)])
    for num_nodes, gpus in ((2, 4), (1, 9), (2, 8)):
        with pytest.raises(ClusterError, match=rf"expected {num_nodes} nodes .* got 2: host \(10.0.0.1\) with 8, host"):
            cluster.check_nodes([_pool(num_nodes, gpus)])


def test_engines_with_devices_of_their_own_need_them_beside_the_trainers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster.ray, "nodes", lambda: [_node("10.0.0.1", 8)])
    cluster.check_nodes([_pool(1, 4), DevicePool("actor_rollout_ref.rollout", 1, 4)])
    with pytest.raises(ClusterError, match=r"1 nodes \(actor_rollout_ref.rollout.nnodes\) with 5 GPUs each"):
        cluster.check_nodes([_pool(1, 4), DevicePool("actor_rollout_ref.rollout", 1, 5)])


def test_devices_are_counted_under_the_name_that_verl_asks_ray_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(get_platform(), "ray_resource_name", lambda: "NPU")
    monkeypatch.setattr(cluster.ray, "nodes", lambda: [_node("10.0.0.1", 8, device="NPU")])
    cluster.check_nodes([_pool(1, 8)])
    with pytest.raises(ClusterError, match=r"with 8 NPUs each .* got 1: host \(10.0.0.1\) with 8"):
        cluster.check_nodes([_pool(2, 8)])
    monkeypatch.setattr(cluster.ray, "nodes", lambda: [_node("10.0.0.1", 8)])
    with pytest.raises(ClusterError, match=r"got 1: host \(10.0.0.1\) with 0.*--resources"):
        cluster.check_nodes([_pool(1, 8)])


# ------------------------------ the watchdog's decisions; a node that is really lost: test_zz_two_nodes.py ----------


class Watched:
    """The watchdog of a run on nodes a and b, in a cluster that also has c; nodes in `dead` are not alive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, grace_s: float) -> None:
        self.dead: set[str] = set()
        self.killed: list[str] = []
        self.exits: queue.Queue[int] = queue.Queue()
        monkeypatch.setattr(cluster.ray, "nodes", lambda: [{"NodeID": n, "Alive": n not in self.dead} for n in "abc"])
        monkeypatch.setattr(cluster.ray, "kill", self.killed.append)
        monkeypatch.setattr(cluster.os, "_exit", self.exits.put)
        self.watchdog = cluster.NodeWatchdog({"a": "A", "b": "B"}, ["engine", "actor"], 0.01, grace_s)
        self.watchdog.start()

    def wait_until_killed(self) -> None:
        deadline = time.monotonic() + 10
        while len(self.killed) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.killed == ["engine", "actor"]


def test_a_lost_node_ends_the_waiting_and_then_the_trainer(monkeypatch: pytest.MonkeyPatch):
    watched = Watched(monkeypatch, grace_s=0.01)
    watched.dead.add("b")
    assert watched.exits.get(timeout=10) == 1
    assert watched.killed == ["engine", "actor"]
    assert watched.watchdog.lost() == ["B"]


def test_a_trainer_that_ends_by_itself_is_let_be(monkeypatch: pytest.MonkeyPatch):
    watched = Watched(monkeypatch, grace_s=0.5)
    watched.dead.add("a")
    watched.wait_until_killed()
    watched.watchdog.stop()
    with pytest.raises(queue.Empty):
        watched.exits.get(timeout=1)


def test_neither_other_nodes_nor_the_end_of_the_run_are_a_loss(monkeypatch: pytest.MonkeyPatch):
    watched = Watched(monkeypatch, grace_s=0.01)
    watched.dead.add("c")
    time.sleep(0.1)
    assert watched.watchdog.lost() == []
    watched.watchdog.stop()
    time.sleep(0.05)
    watched.dead.update("ab")
    with pytest.raises(queue.Empty):
        watched.exits.get(timeout=0.2)
    assert watched.killed == []
