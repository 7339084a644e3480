"""The way between curriculum and agent loops: real Ray, the product's manager and workers, without verl's loops."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from verl_ext.launch.recipe import PROJECT_ROOT
from verl_ext.serving.agent_loop import SignalAgentLoopManager, SignalAgentLoopWorker

PATIENCE_S = 300.0  # a worker's imports take ten seconds, and more on a busy machine


class EchoWorker(SignalAgentLoopWorker):
    """A prompt finishes a moment after its dispatch."""

    reads_per_stream = 3

    def __init__(self) -> None:
        super().__init__(OmegaConf.create(), None)

    async def generate_sequences(self, batch: TensorDict) -> None:
        if "broken" in batch["uid"]:
            raise ValueError("no agent loop of this name")
        for uid in batch["uid"]:
            asyncio.get_running_loop().call_later(0.01, self._finish, uid)

    def _finish(self, uid: str) -> None:
        self._reports[uid].errors.append(f"of {uid}")
        self._finished.pop(uid).put_nowait(uid)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ray.shutdown()


def _manager(*workers: type) -> SignalAgentLoopManager:
    with initialize_config_dir(str(PROJECT_ROOT / "configs"), version_base=None):
        manager = SignalAgentLoopManager(compose("fast_dapo"), None)
    manager.agent_loop_workers = [ray.remote(worker).remote() for worker in workers]
    return manager


@pytest.fixture(scope="module")
def manager(cluster: None) -> SignalAgentLoopManager:
    """Every test leaves nothing in flight."""
    return _manager(EchoWorker, EchoWorker)


def _batch(*uids: str) -> TensorDict:
    return tu.get_tensordict({"uid": np.array(uids, dtype=object)})


def _collect(manager: SignalAgentLoopManager, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < number:
        assert time.monotonic() < deadline
        reports = manager.finished_reports(1.0)
        assert not found.keys() & reports.keys()
        found |= reports
    return found


def test_every_prompt_is_reported_once_over_one_stream_per_worker(manager: SignalAgentLoopManager):
    manager.dispatch(_batch("a", "b", "c"))
    for number in range(40):
        manager.dispatch(_batch(str(number)))
        assert len(manager._streams) <= 2
    reports = _collect(manager, 43)
    assert {uid: report.errors for uid, report in reports.items()} == {uid: [f"of {uid}"] for uid in reports}
    with pytest.raises(RuntimeError, match="dispatch a batch first"):
        manager.finished_reports()
    # A prompt may be dispatched again, and a stream that has ended is followed by another.
    manager.dispatch(_batch("a"))
    assert _collect(manager, 1).keys() == {"a"}


def test_a_thread_that_waits_sees_what_another_dispatches(manager: SignalAgentLoopManager):
    found: dict[str, Any] = {}
    manager.dispatch(_batch("first"))
    thread = threading.Thread(target=lambda: found.update(_collect(manager, 61)))
    thread.start()
    for number in range(60):
        manager.dispatch(_batch(str(number)))
    thread.join(PATIENCE_S)
    assert found.keys() == {"first", *map(str, range(60))}


def test_what_keeps_rollouts_from_starting_is_raised_where_reports_are_waited_for(manager: SignalAgentLoopManager):
    manager.dispatch(_batch("broken"))
    with pytest.raises(ValueError, match="no agent loop of this name"):
        manager.finished_reports(PATIENCE_S)
    with pytest.raises(RuntimeError, match="dispatch a batch first"):
        manager.finished_reports()


class SilentWorker(EchoWorker):
    """Nothing finishes."""

    async def generate_sequences(self, batch: TensorDict) -> None:
        pass


def test_with_nothing_finished_the_wait_ends_in_time(cluster: None):
    manager = _manager(SilentWorker)
    manager.dispatch(_batch("a"))
    assert manager.finished_reports(0.5) == {}


def test_a_call_that_waits_for_its_batch_and_one_that_does_not_keep_their_reports_apart(
    manager: SignalAgentLoopManager,
):
    manager.dispatch(_batch("streamed"))
    assert manager.generate_and_report(_batch("x", "y", "z")).keys() == {"x", "y", "z"}
    assert _collect(manager, 1).keys() == {"streamed"}
