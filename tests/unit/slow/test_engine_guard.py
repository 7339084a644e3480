"""The engine guard where a batch has only rollouts of earlier weights: these are kept until it can compare.

The workers are those of a policy with one weight, its log-prob of every token.
"""

from typing import Any

import pytest
import torch
from stored_rows import StoredRows

from verl_ext.core.errors import StaleEngineError
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.engine_guard import EarlierWeights, check_engine, rows_of_version

NUM_RANKS = 2


class Workers:
    """The methods of verl's `DetachActorWorker` that the guard calls."""

    workers = (None,) * NUM_RANKS

    def __init__(self) -> None:
        self.weight = 0.0
        self.copies: dict[Any, float] = {}

    def save_model_to_cpu(self, name: Any) -> None:
        self.copies[name] = self.weight

    def restore_model_from_cpu(self, name: Any) -> None:
        self.weight = self.copies[name]

    def clear_cpu_model(self, name: Any) -> None:
        del self.copies[name]


class Play:
    """A run whose batches have rollouts of `age` versions ago; an update makes every token less probable."""

    def __init__(self, age: int, is_served: bool = True, span: int = 0) -> None:
        self.workers, self.age, self.is_served, self.span = Workers(), age, is_served, span
        self.version = 0
        self.guard = EarlierWeights(self.workers, self._compute)
        self.computed: list[int] = []

    def weight_of(self, version: int) -> float:
        return -0.1 * (1 + version)

    def step(self, limit: int) -> dict[str, float]:
        self.workers.weight = self.weight_of(self.version)
        generated_by = self.version - self.age
        served = generated_by if self.is_served else 0
        keys = [f"step{self.version}_{session}_0" for session in range(5)]
        tag = {"min_global_steps": generated_by, "max_global_steps": generated_by + self.span}
        log_probs = [torch.full((3,), self.weight_of(served)) for _ in keys]
        ones = [torch.ones(3, dtype=torch.long) for _ in keys]
        rows = {"rollout_log_probs": log_probs, "response_mask": ones, "responses": ones}
        data_plane.write(keys, "train", data_plane.as_columns(rows), [tag for _ in keys])
        batch = KVBatchMeta(partition_id="train", keys=keys, tags=[tag for _ in keys])
        metrics = self.guard.check(batch, self.version, 0.01, limit)
        assert self.workers.weight == self.weight_of(self.version)
        self.version += 1
        return metrics

    def _compute(self, rows: KVBatchMeta) -> None:
        self.computed.append(len(rows.keys))
        columns = {"old_log_probs": [torch.full((3,), self.workers.weight) for _ in rows.keys]}
        data_plane.write(rows.keys, rows.partition_id, data_plane.as_columns(columns))


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> StoredRows:
    return StoredRows(monkeypatch)


@pytest.mark.parametrize("age", [1, 2, 5])
def test_earlier_weights_are_compared_from_the_first_step_on_and_then_every_so_many(age: int):
    play, limit = Play(age), 4
    checked = []
    for step in range(30):
        if metrics := play.step(limit):
            assert metrics["engine_guard/earlier_rollouts"] == 4  # of 5, as many for each rank
            assert metrics["engine_guard/probs_diff_max"] < 1e-6
            assert play.workers.copies == {}
            checked.append(step)
    assert checked == list(range(age, 30, age + limit))
    assert set(play.computed) <= {4}


def test_weights_that_were_not_served_end_the_run():
    play = Play(2, is_served=False)
    for _ in range(8):
        play.step(4)
    with pytest.raises(StaleEngineError, match="over 4 rollouts of weight version 6 the probabilities"):
        play.step(4)


def test_rollouts_of_several_versions_are_not_compared():
    play = Play(2, span=1)
    assert not any(play.step(3) for _ in range(20))
    assert play.computed == []


def test_a_copy_whose_rollouts_were_never_trained_on_is_replaced():
    play = Play(5)
    assert not any(play.step(2) for _ in range(3))
    play.age = 2
    assert [bool(play.step(2)) for _ in range(6)].count(True) >= 1


def test_nothing_is_kept_where_the_current_weights_rollouts_are_trained_on():
    play = Play(0)
    assert not any(play.step(1) for _ in range(5))
    assert play.workers.copies == {}


def test_a_fresh_row_is_one_of_the_current_weights_alone():
    tags = [
        {"min_global_steps": 3, "max_global_steps": 3},
        {"min_global_steps": 3, "max_global_steps": 4},
        {"min_global_steps": 3},
        {"min_global_steps": 3, "is_padding": True},
        {"min_global_steps": 2, "max_global_steps": 3},
    ]
    batch = KVBatchMeta(partition_id="train", keys=list("abcde"), tags=tags)
    assert rows_of_version(batch, 3) == [0, 2]
    assert check_engine(batch, 7, 0.01) == {"engine_guard/fresh_rollouts": 0.0}
