"""verl's own batches: what a resumed run frees, and what counts as generated."""

from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from stored_rows import StoredRows

from verl_ext.run.run_totals import RunTotals
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.trainer.verl_collector import VerlCollector


def _collector(mode: str) -> VerlCollector:
    config = {"actor_rollout_ref": {"rollout": {"n": 4}}, "data": {"train_batch_size": 2}}
    trainer: Any = SimpleNamespace(trainer_mode=mode, config=OmegaConf.create(config))
    return VerlCollector(trainer)


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        ("sync", set()),
        ("colocate_async", {"waits", "waits_0_0", "waits_1_0", "running", "running_0_0"}),
        ("separate_async", {"waits", "waits_0_0", "waits_1_0", "running", "running_0_0"}),
    ],
)
def test_a_resumed_run_frees_what_its_checkpoints_step_was_trained_on(
    mode: str, left: set[str], monkeypatch: pytest.MonkeyPatch
):
    stored = StoredRows(monkeypatch)
    prompts = ["waits", "running"]  # verl takes a prompt's own row away when it samples the prompt
    rows = ["waits_0_0", "waits_1_0", "running_0_0", "trained_0_0", "trained_1_0"]
    tags = [{"is_prompt": True, "status": "finished"}, {"is_prompt": True, "status": "running"}]
    stored.write([*prompts, *rows], data_plane.TRAIN, None, [*tags, *({"response_len": 3} for _ in rows)])
    _collector(mode).load_state_dict({})
    assert set(data_plane.tags(data_plane.TRAIN)) == left


@pytest.mark.parametrize("kind", ["filter_groups", "off_policy", "rollout_failure"])
def test_groups_that_verl_discards_count_as_generated(kind: str):
    totals = RunTotals()
    keys = [f"{uid}_{session}_0" for uid in "ab" for session in range(4)]
    batch = KVBatchMeta(partition_id="train", keys=keys, tags=[{"response_len": 5} for _ in keys])
    _collector("colocate_async").count(batch, {f"training/{kind}/evicted_samples": 3}, totals)
    assert (totals.rollouts_trained, totals.rollouts_generated) == (8, 8 + 3 * 4)
    assert totals.tokens_generated == 40 * (1 + 3 / 2)
