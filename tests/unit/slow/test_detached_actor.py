"""Kept weights stay as they were where the weights are in the memory of the CPU: offloaded, or on the CPU backend.

With verl's own functions, on models wrapped as verl wraps them.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import verl
from omegaconf import OmegaConf
from stored_rows import StoredRows
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from verl.experimental.separation.engine_workers import DetachActorWorker

from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.engine_guard import EarlierWeights
from verl_ext.trainer import detached_actor
from verl_ext.trainer.detached_actor import CopyingActorWorker

# With `param_offload`, every use puts the weights into other tensors; with `offload_policy` they stay in theirs.
MOVING, STAYING = True, False
CASES = [("fsdp2", MOVING), ("fsdp2", STAYING), ("veomni", MOVING), ("veomni", STAYING), ("fsdp", STAYING)]


class Model(nn.Module):
    """Two weights, of which FSDP2 leaves one whole; all their numbers are the version."""

    def __init__(self) -> None:
        super().__init__()
        self.sharded = nn.Parameter(torch.zeros(2, 3))
        self.whole = nn.Parameter(torch.zeros(3))


class Actor:
    """A worker with only what verl's methods for kept weights read, and the actor's weights on the CPU.

    Attributes:
        worker: Of this class.
        land: Called when the device is waited for: copies in flight arrive then.
    """

    def __init__(self, kind: type[DetachActorWorker], strategy: str, is_moving: bool = STAYING) -> None:
        model = Model()
        self.is_moving, self.land = is_moving, lambda: None
        self.module: nn.Module = model
        if strategy == "fsdp":
            self.module = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
        else:
            fully_shard(model, mesh=init_device_mesh("cpu", (1,)), ignored_params={model.whole})
        self.worker: Any = kind.__new__(kind)
        self.worker.config = OmegaConf.create({"actor": {"strategy": strategy}})
        self.worker.actor = SimpleNamespace(engine=SimpleNamespace(module=self.module))
        self.worker._strategy_handlers = None
        self.worker.workers = (None,)  # as a group of one rank

    def _weights(self) -> list[torch.Tensor]:
        weights = [weight.detach() for weight in self.module.parameters()]
        return [weight.to_local() if isinstance(weight, DTensor) else weight for weight in weights]

    def use(self) -> float:
        """Load and offload the weights; return their version."""
        if self.is_moving:
            self.module._apply(torch.clone)  # pyright: ignore[reportPrivateUsage]
        return self.version

    def update(self, version: float) -> None:
        self.use()
        for weight in self._weights():
            weight.fill_(version)

    @property
    def version(self) -> float:
        (version,) = {number for weight in self._weights() for number in weight.flatten().tolist()}
        return version


@pytest.fixture(autouse=True)
def _ranks(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _updated_and_checked(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The guard copies version 1, and compares rollouts of it when version 5 is trained; returns its metrics."""
    StoredRows(monkeypatch)

    def log_probs() -> list[torch.Tensor]:
        return [torch.full((3,), -0.1 * version) for version in 4 * [actor.use()]]

    def compute(rows: KVBatchMeta) -> None:
        data_plane.write(rows.keys, "train", data_plane.as_columns({"old_log_probs": log_probs()}))

    def batch(version: int) -> KVBatchMeta:
        tag = {"min_global_steps": version, "max_global_steps": version}
        keys = [f"v{version}_{session}_0" for session in range(4)]
        return KVBatchMeta(partition_id="train", keys=keys, tags=[tag for _ in keys])

    guard = EarlierWeights(actor.worker, compute)
    actor.update(1)
    assert guard.check(batch(0), 1, 0.01, 10) == {}
    ones, rollouts = [torch.ones(3, dtype=torch.long)] * 4, batch(1)
    columns = {"rollout_log_probs": log_probs(), "response_mask": ones, "responses": ones}
    data_plane.write(rollouts.keys, "train", data_plane.as_columns(columns), rollouts.tags)
    actor.update(5)
    return guard.check(rollouts, 5, 1.0, 10)


def _trained(actor: Actor) -> list[float]:
    """The versions that old log-probs are computed with, by verl's calls in two steps of three updates."""
    worker, used = actor.worker, []
    for _ in range(2):
        worker.save_model_to_cpu(0)
        used.append(actor.use())
        actor.update(actor.version + 1)
        for update in (1, 2):
            worker.save_model_to_cpu(update)
            worker.restore_model_from_cpu(0)
            used.append(actor.use())
            worker.restore_model_from_cpu(update)
            worker.clear_cpu_model(update)
            actor.update(actor.version + 1)
    return used


@pytest.mark.parametrize(("strategy", "is_moving"), CASES)
def test_the_engine_guard_compares_with_kept_weights_and_leaves_the_current_ones(
    strategy: str, is_moving: bool, monkeypatch: pytest.MonkeyPatch
):
    actor = Actor(CopyingActorWorker, strategy, is_moving)
    metrics = _updated_and_checked(actor, monkeypatch)
    assert metrics["engine_guard/earlier_rollouts"] == 4
    assert metrics["engine_guard/probs_diff_max"] < 1e-6
    assert actor.version == 5
    assert actor.worker.cpu_saved_models == {}


@pytest.mark.parametrize(("strategy", "is_moving"), CASES)
def test_updates_of_a_step_share_their_old_weights_and_none_is_lost(strategy: str, is_moving: bool):
    actor = Actor(CopyingActorWorker, strategy, is_moving)
    assert _trained(actor) == [0, 0, 0, 3, 3, 3]
    assert actor.version == 6


@pytest.mark.parametrize("strategy", ["fsdp2", "veomni"])
def test_verls_own_worker_still_loses_updates(strategy: str, monkeypatch: pytest.MonkeyPatch):
    """Once it does not, `CopyingActorWorker` need not copy."""
    actor = Actor(DetachActorWorker, strategy, MOVING)
    _updated_and_checked(actor, monkeypatch)
    assert actor.version == 1
    actor = Actor(DetachActorWorker, strategy, MOVING)
    _trained(actor)
    assert actor.version < 6
    metrics = _updated_and_checked(Actor(DetachActorWorker, strategy, STAYING), monkeypatch)
    assert metrics["engine_guard/probs_diff_max"] > 0.1  # the kept weights are the current ones


@pytest.mark.parametrize("strategy", ["fsdp2", "veomni", "fsdp"])
def test_offloaded_weights_are_waited_for_before_they_are_read_or_written(
    strategy: str, monkeypatch: pytest.MonkeyPatch
):
    actor = Actor(CopyingActorWorker, strategy)
    device = SimpleNamespace(synchronize=lambda: actor.land())
    monkeypatch.setattr(detached_actor, "get_torch_device", lambda: device)

    def in_flight(version: float) -> Callable[[], None]:
        return lambda: actor.update(version)

    actor.land = in_flight(1)
    actor.worker.save_model_to_cpu(0)
    actor.land = in_flight(2)
    actor.worker.restore_model_from_cpu(0)
    assert actor.version == 1


def test_weights_that_verl_has_copied_are_not_copied_again():
    actor = Actor(CopyingActorWorker, "fsdp2")
    kept, _ = actor.worker.copy_handler(actor.module)
    again = detached_actor._separate(kept, actor.module)  # pyright: ignore[reportPrivateUsage]
    assert [again[name][0] is shard for name, (shard, _) in kept.items()] == [True, True]


def test_verl_copies_megatrons_weights_itself():
    """Megatron is not installed, so the source is checked."""
    source = Path(verl.__file__).parent.joinpath("utils", "megatron_utils.py").read_text(encoding="utf-8")
    function = source.split("def copy_megatron_model_to_cpu(")[1].split("\ndef ")[0]
    kept = re.findall(r"\{?.*_state(?:\[\"param_data\"\])? = (.*data.*)", function)
    assert len(kept) == 3
    assert all(".clone()" in each for each in kept)
