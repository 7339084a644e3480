"""Watchdogs of engines and nodes while a verl trainer waits for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.workers.rollout.replica import RolloutReplica

from verl_ext.cluster import nodes as cluster
from verl_ext.cluster.nodes import NodeWatchdog
from verl_ext.serving.settings import WatchdogSettings
from verl_ext.serving.watchdog import EngineWatchdog


def start_watchdogs(
    replicas: Sequence[RolloutReplica], workers: Sequence[Any], settings: WatchdogSettings, ledger: Path
) -> tuple[EngineWatchdog | None, NodeWatchdog]:
    """Start both; before the first weight synchronisation, where a failing engine would hang the run.

    Args:
        replicas: Replicas of the rollout engine; without any there is no watchdog of engines.
        workers: Handles of the actors that the trainer waits for.
        settings: Criteria for a hung engine.
        ledger: File that records the engines' processes.
    """
    # A replica on several nodes has its engine's core on the first.
    servers = [replica.servers[0] for replica in replicas]
    engines = EngineWatchdog(servers, workers, settings.interval_s, settings.hang_timeout_s) if servers else None
    if engines is not None:
        engines.start()
    nodes = NodeWatchdog(cluster.record_processes(ledger), workers, settings.interval_s)
    nodes.start()
    return engines, nodes
