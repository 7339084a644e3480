"""Both ends of verl's socket for new weights, of runs that share a machine."""

from types import SimpleNamespace

import pytest
import ray
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout import base
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from verl_ext import plugin
from verl_ext.cluster.engine_resources import RUN_VARIABLE
from verl_ext.serving.weight_socket import JOB_VARIABLE, job_of_run

FIRST_JOB = "01000000"


@pytest.fixture(autouse=True)
def _first_job_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: FIRST_JOB))
    monkeypatch.setattr(base, "_ROLLOUT_REGISTRY", dict(base._ROLLOUT_REGISTRY))


def ends(monkeypatch: pytest.MonkeyPatch, run: str | None, rank: int = 0) -> tuple[str, str]:
    """The names of the sender's and the engine's socket, in processes of a run."""
    if run is not None:
        monkeypatch.setenv(RUN_VARIABLE, run)
    for name, value in {"RANK": rank, "RAY_LOCAL_WORLD_SIZE": 2, "VERL_REPLICA_RANK": rank}.items():
        monkeypatch.setenv(name, str(value))
    plugin.register()
    monkeypatch.setenv(JOB_VARIABLE, job_of_run())
    config = RolloutConfig(name="vllm", tensor_model_parallel_size=1)
    sender = base.get_rollout_class("vllm")(config, HFModelConfig.__new__(HFModelConfig), None)
    # verl's __new__ would end this process with its parent, and at once if that has ended already.
    engine = object.__new__(vLLMColocateWorkerExtension)
    engine.model_runner, engine.local_rank = SimpleNamespace(vllm_config=None), 0
    return sender.zmq_handle, engine._get_zmq_handle()


def test_the_two_ends_meet_and_no_two_runs_share_a_socket(monkeypatch: pytest.MonkeyPatch):
    sockets = set()
    for run in ("a" * 32, "b" * 32):
        for rank in (0, 1):
            sender, engine = ends(monkeypatch, run, rank)
            assert sender == engine
            # The longest path that a socket may have.
            assert len(sender.removeprefix("ipc://")) <= 107
            sockets.add(sender)
    assert len(sockets) == 4


def test_outside_a_run_they_are_verls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    sender, engine = ends(monkeypatch, None)
    assert sender == engine == f"ipc:///tmp/rl-colocate-zmq-{FIRST_JOB}-replica-0-rank-0.sock"
