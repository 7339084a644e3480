"""Validation rollouts of TracIn: some are kept between two refreshes, and nothing else stays."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from stored_rows import StoredRows
from tensordict import TensorDict

from recipe.tracin.method.validation import ValidationSet, ValidationSettings
from recipe.tracin.validation_rollouts import FIELDS, PARTITION, ValidationRollouts
from verl_ext.influence.batches import ROLLOUT_LOG_PROBS, VALIDATION_ADVANTAGE
from verl_ext.serving import data_plane
from verl_ext.serving.agent_loop import PromptReport, RolloutReport

REWARDS = [1.0, 0.0, 0.0, 1.0]
PROBABILITIES = [0.9, 0.1, 0.2, 0.5]  # of the only token that the policy wrote


class Loops:
    """Agent loops with `num_outputs` outputs per session; the reward of validation prompt p is `REWARDS[p]`."""

    def __init__(self, num_outputs: int) -> None:
        self.num_outputs = num_outputs

    def generate_and_report(self, batch: TensorDict) -> dict[str, PromptReport]:
        reports = {}
        for uid, place in zip(batch["uid"], batch["place"], strict=True):
            keys = [f"{uid}_0_{number}" for number in range(self.num_outputs)]
            rows = {name: [torch.full((2,), int(place)) for _ in keys] for name in FIELDS}
            probability = PROBABILITIES[int(place)]
            # A tool wrote the other token: if it counted, the order would be another.
            log_probs = [math.log(probability), -20.0 if probability > 0.5 else 0.0]
            rows[ROLLOUT_LOG_PROBS] = [torch.tensor(log_probs) for _ in keys]
            rows["response_mask"] = [torch.tensor([1, 0]) for _ in keys]
            data_plane.write([uid], data_plane.VALIDATION, None, [{"is_prompt": True}])
            data_plane.write(keys, data_plane.VALIDATION, data_plane.as_columns(rows), [{} for _ in keys])
            report = RolloutReport(keys[-1], REWARDS[int(place)], {}, 2 * self.num_outputs, 0)
            reports[uid] = PromptReport([report])
        return reports


def make_dataset() -> list[dict[str, Any]]:
    return [{"place": place, "raw_prompt": [{"role": "user", "content": "?"}]} for place in range(len(REWARDS))]


def kept_rows(store: StoredRows, keys: Sequence[str]) -> list[tuple[int, bool]]:
    """By row, its prompt and whether it is padding."""
    return [(int(store.partitions[PARTITION][key][1]["prompts"][0]), "filler" in key) for key in keys]


@pytest.mark.parametrize(("min_reward", "chosen"), [(0.0, [3]), (None, [3, 0, 1])])
def test_of_equal_rewards_the_rollout_whose_tokens_were_less_likely_is_kept(
    monkeypatch: pytest.MonkeyPatch, min_reward: float | None, chosen: list[int]
):
    store = StoredRows(monkeypatch)
    settings = ValidationSettings(k=len(chosen), pool_size=4, min_reward=min_reward)
    rollouts: Any = ValidationRollouts(ValidationSet(settings, len(REWARDS)), make_dataset())
    rollouts.refresh(1, Loops(2), num_ranks=1)
    kept = [place for place, is_filler in kept_rows(store, rollouts.batch(1.0).keys) if not is_filler]
    assert sorted(kept) == sorted(place for place in chosen for _ in range(2))


@pytest.mark.parametrize(("num_outputs", "num_ranks"), [(1, 1), (1, 2), (3, 2), (3, 4)])
def test_on_every_rank_every_other_row_belongs_to_one_half_of_the_prompts(
    monkeypatch: pytest.MonkeyPatch, num_outputs: int, num_ranks: int
):
    store = StoredRows(monkeypatch)
    settings = ValidationSettings(k=3, pool_size=4, min_reward=None)
    rollouts: Any = ValidationRollouts(ValidationSet(settings, len(REWARDS)), make_dataset())
    rollouts.refresh(1, Loops(num_outputs), num_ranks)
    rows = kept_rows(store, rollouts.batch(1.0).keys)
    assert len(rows) % (2 * num_ranks) == 0
    parts = np.split(np.arange(len(rows)), num_ranks)
    halves = [{rows[i][0] for part in parts for i in part[half::2] if not rows[i][1]} for half in (0, 1)]
    assert sorted(map(len, halves)) == [1, 2]
    assert halves[0].isdisjoint(halves[1])


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_all_outputs_of_the_chosen_are_kept_with_their_advantage_and_the_rest_is_freed(
    monkeypatch: pytest.MonkeyPatch, num_outputs: int
):
    store = StoredRows(monkeypatch)
    dataset = make_dataset()
    settings = ValidationSettings(strategy="quality", k=2, pool_size=4, refresh_every=1)
    rollouts: Any = ValidationRollouts(ValidationSet(settings, len(dataset)), dataset)
    for step in (1, 2):
        assert rollouts.refresh(step, Loops(num_outputs), num_ranks=4) == len(REWARDS)
        assert store.tags(data_plane.VALIDATION) == {}
        batch = rollouts.batch(temperature=1.0)
        real = [key for key in batch.keys if "filler" not in key]
        assert set(store.tags(PARTITION)) == set(batch.keys)
        assert len(real) == batch.extra_info["global_batch_size"] == 2 * num_outputs
        assert len(batch.keys) % 4 == 0
        for key in batch.keys:
            row = store.partitions[PARTITION][key][1]
            assert float(row[VALIDATION_ADVANTAGE]) == float(row["response_mask"].any()) == float(key in real)
        assert {place for place, _ in kept_rows(store, batch.keys)} == {0, 3}
