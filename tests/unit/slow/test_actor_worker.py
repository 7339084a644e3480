"""The actor's class in each of verl's trainers: where batches are generated ahead, the engine guard needs copies."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.trainer.ppo.utils import Role
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_ext.core.compat import undecorated
from verl_ext.influence.worker import InfluenceWorker
from verl_ext.trainer.detached_actor import CopyingActorWorker
from verl_ext.trainer.trainer import SignalTrainer

INFLUENCE: Any = SimpleNamespace(worker_class=InfluenceWorker)


def _actor(monkeypatch: pytest.MonkeyPatch, mode: str, verls: type, strategy: str, parts: list[Any]) -> type:
    """The class that replaces verl's actor."""
    trainer: Any = object.__new__(SignalTrainer.in_mode(mode))
    trainer.config = OmegaConf.create(
        {"trainer": {"device": "cuda"}, "actor_rollout_ref": {"actor": {"strategy": strategy}}}
    )
    trainer.parts = dict(enumerate(parts))

    def of_verl(self: Any) -> None:
        self.role_worker_mapping = {Role.ActorRollout: ray.remote(verls)}

    for base in type(trainer).__mro__:
        if base.__module__.startswith("verl.") and "_init_resource_pool_mgr" in vars(base):
            monkeypatch.setattr(base, "_init_resource_pool_mgr", of_verl)
    trainer._init_resource_pool_mgr()
    return undecorated(trainer.role_worker_mapping[Role.ActorRollout])


@pytest.mark.parametrize("parts", [[], [INFLUENCE]], ids=["plain", "with_scores"])
@pytest.mark.parametrize(
    ("mode", "verls", "strategy", "copies"),
    [
        ("sync", ActorRolloutRefWorker, "fsdp2", False),
        ("colocate_async", ActorRolloutRefWorker, "fsdp2", True),
        ("colocate_async", ActorRolloutRefWorker, "megatron", True),
        ("colocate_async", ActorRolloutRefWorker, "torchtitan", False),  # which verl cannot copy
        ("separate_async", DetachActorWorker, "fsdp2", True),
    ],
)
def test_the_actor_can_copy_its_weights_where_all_rollouts_may_be_old(
    monkeypatch: pytest.MonkeyPatch, mode: str, verls: type, strategy: str, copies: bool, parts: list[Any]
):
    actor = _actor(monkeypatch, mode, verls, strategy, parts)
    assert issubclass(actor, CopyingActorWorker) == copies
    assert issubclass(actor, InfluenceWorker) == bool(parts)
