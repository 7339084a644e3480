"""When `InfluenceWorker` frees the validation gradient: as soon as nothing of the step needs it."""

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_ext.influence.worker import InfluenceWorker


class Actor:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def forget_validation_gradient(self) -> None:
        self.calls.append("forget")

    def train_one_pass(self, data: TensorDict, **options: Any) -> None:
        self.calls.append(f"one pass by {options['rule']}")


@pytest.mark.parametrize(
    ("one_pass", "calls"),
    [(None, ["forget", "update"]), ({"rule": "positive"}, ["one pass by positive", "forget"])],
    ids=["two passes", "one pass"],
)
def test_the_validation_gradient_is_freed_after_its_last_use(
    one_pass: dict[str, str] | None, calls: list[str], monkeypatch: pytest.MonkeyPatch
):
    worker = InfluenceWorker.__new__(InfluenceWorker)
    actor = worker.actor = Actor()
    monkeypatch.setattr(ActorRolloutRefWorker, "update_actor", lambda *_: actor.calls.append("update"))
    data = TensorDict({"rows": torch.zeros(2)}, batch_size=2)
    if one_pass is not None:
        tu.assign_non_tensor(data, one_pass=one_pass)
    InfluenceWorker.update_actor.__wrapped__(worker, data)
    assert actor.calls == calls
