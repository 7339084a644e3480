"""Validation rollouts of TracIn: some are kept between two refreshes, and nothing else stays."""

from typing import Any

import pytest
import torch
from stored_rows import StoredRows
from tensordict import TensorDict

from recipe.tracin.method.validation import ValidationSet, ValidationSettings
from recipe.tracin.validation_rollouts import FIELDS, PARTITION, ValidationRollouts
from verl_ext.influence.batches import VALIDATION_ADVANTAGE
from verl_ext.serving import data_plane
from verl_ext.serving.agent_loop import PromptReport, RolloutReport

REWARDS = [1.0, 0.0, 0.0, 1.0]


class Loops:
    """Agent loops with `num_outputs` outputs per session; the reward of validation prompt p is `REWARDS[p]`."""

    def __init__(self, num_outputs: int) -> None:
        self.num_outputs = num_outputs

    def generate_and_report(self, batch: TensorDict) -> dict[str, PromptReport]:
        reports = {}
        for uid, place in zip(batch["uid"], batch["place"], strict=True):
            keys = [f"{uid}_0_{number}" for number in range(self.num_outputs)]
            rows = {name: [torch.full((2,), int(place)) for _ in keys] for name in FIELDS}
            data_plane.write([uid], data_plane.VALIDATION, None, [{"is_prompt": True}])
            data_plane.write(keys, data_plane.VALIDATION, data_plane.as_columns(rows), [{} for _ in keys])
            report = RolloutReport(keys[-1], REWARDS[int(place)], {}, 2 * self.num_outputs, 0)
            reports[uid] = PromptReport([report])
        return reports


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_all_outputs_of_the_chosen_are_kept_with_their_advantage_and_the_rest_is_freed(
    monkeypatch: pytest.MonkeyPatch, num_outputs: int
):
    store = StoredRows(monkeypatch)
    dataset = [{"place": place, "raw_prompt": [{"role": "user", "content": "?"}]} for place in range(len(REWARDS))]
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
