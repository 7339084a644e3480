"""Validation rollouts of TracIn: some are kept between two refreshes, and nothing else stays."""

import math
from typing import Any

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


@pytest.mark.parametrize(("min_reward", "chosen"), [(0.0, [3]), (None, [3, 0, 1])])
def test_of_equal_rewards_the_rollout_whose_tokens_were_less_likely_is_kept(
    monkeypatch: pytest.MonkeyPatch, min_reward: float | None, chosen: list[int]
):
    store = StoredRows(monkeypatch)
    settings = ValidationSettings(k=len(chosen), pool_size=4, min_reward=min_reward)
    rollouts: Any = ValidationRollouts(ValidationSet(settings, len(REWARDS)), make_dataset())
    rollouts.refresh(1, Loops(2), num_ranks=1)
    kept = [int(store.partitions[PARTITION][key][1]["prompts"][0]) for key in rollouts.batch(1.0).keys]
    assert kept == [place for place in chosen for _ in range(2)]


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
        kept = [store.partitions[PARTITION][key][1] for key in batch.keys]
        advantages = [float(row[VALIDATION_ADVANTAGE]) for row in kept]
        assert advantages == [1.0] * len(real) + [0.0] * (len(batch.keys) - len(real))
        assert {int(row["prompts"][0]) for row in kept} == {0, 3}
