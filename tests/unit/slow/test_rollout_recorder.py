"""What a run keeps of its rollouts: the best and the worst of some prompts, bounded, and none twice after a resume."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from stored_rows import Engine, QuietTrainer, StoredRows

from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.trainer.rollout_texts import RolloutRecorder

SESSIONS, PROMPTS = 4, 6


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StoredRows:
    return StoredRows(monkeypatch)


def _make(tmp_path: Path, **settings: Any) -> tuple[RolloutRecorder, QuietTrainer]:
    trainer = QuietTrainer(OmegaConf.create({"rollout_texts": settings}), tmp_path, Engine(lambda *_: True))
    trainer.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "".join(map(chr, ids)))
    return RolloutRecorder(trainer), trainer


def _batch(length: int = 3) -> KVBatchMeta:
    """Rollout s of a prompt has reward s; session 1 has two outputs, and the last row is padding."""
    keys = [f"uid{p}_{s}_{o}" for p in range(PROMPTS) for s in range(SESSIONS) for o in range(1 + (s == 1))]
    sessions = [int(key.split("_")[1]) for key in keys]
    rows = {
        "prompts": [torch.full((length,), ord("p")) for _ in keys],
        "responses": [torch.full((length,), ord("A") + session) for session in sessions],
        "rm_scores": [torch.tensor([0.0, float(session)]) for session in sessions],
    }
    data_plane.write([*keys, "pad"], "train", data_plane.as_columns({n: [*v, v[0]] for n, v in rows.items()}), None)
    tags = [*({} for _ in keys), {"is_padding": True}]
    return KVBatchMeta(partition_id="train", keys=[*keys, "pad"], tags=tags)


def _written(tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "rollouts.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_the_best_and_the_worst_of_two_prompts_are_kept(store: StoredRows, tmp_path: Path):
    recorder, _ = _make(tmp_path)
    batch = _batch()
    for key, (_, row) in store.partitions["train"].items():
        row.update(index=int(key[3]) if key != "pad" else 0, reward_model={"ground_truth": 7}, data_source="a")
    recorder.before_advantages(batch)
    assert _written(tmp_path) == []
    recorder.observe(batch)
    records = _written(tmp_path)
    assert [(record["reward"], record["response"]) for record in records] == [(3.0, "DDD"), (0.0, "AAA")] * 2
    assert records[0]["index"] == records[1]["index"] != records[2]["index"]
    assert records[0]["group"] == {"rollouts": SESSIONS, "mean_reward": 1.5}
    assert (records[0]["ground_truth"], records[0]["data_source"], records[0]["prompt"]) == ("7", "a", "ppp")


def test_texts_of_a_step_are_bounded_and_further_updates_add_none(store: StoredRows, tmp_path: Path):
    recorder, trainer = _make(tmp_path, prompts_per_step=3, max_kb_per_step=1.2)
    batch = _batch(length=5000)
    for trainer.local_trigger_step in (0, 1):
        recorder.before_advantages(batch)
        recorder.observe(batch)
    records = _written(tmp_path)
    assert len(records) == 6
    for record in records:
        kept = sum(record[name].count(record[name][0]) for name in ("prompt", "response"))
        assert kept == 200
        assert "characters…" in record["response"]
        assert record["index"] is record["ground_truth"] is record["data_source"] is None


def test_nothing_is_asked_of_the_data_plane_where_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recorder, _ = _make(tmp_path, prompts_per_step=0)
    monkeypatch.setattr(data_plane, "read", lambda *_: pytest.fail("asked"))
    batch = KVBatchMeta(partition_id="train", keys=["uid_0_0"], tags=[{}])
    recorder.before_advantages(batch)
    recorder.observe(batch)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_repeats_no_record(store: StoredRows, tmp_path: Path):
    recorder, trainer = _make(tmp_path)
    batch = _batch()
    recorder.before_advantages(batch)
    recorder.observe(batch)
    state = recorder.state_dict()
    recorder.before_advantages(batch)
    recorder.observe(batch)
    assert len(_written(tmp_path)) == 8
    recorder.load_state_dict(state)
    recorder.set_up_workers()
    assert len(_written(tmp_path)) == 4
    # A run that ended before its first checkpoint starts over.
    trainer.global_steps = 0
    recorder.set_up_workers()
    assert _written(tmp_path) == []
