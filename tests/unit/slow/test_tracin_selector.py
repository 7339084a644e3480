"""TracIn as a selector: which samples the update sees for given scores, and that everything is undone after it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from stored_rows import Engine, QuietTrainer, StoredRows

from recipe.tracin.influence_records import telling
from recipe.tracin.selector import TracInSelector
from verl_ext.core.errors import ConfigError
from verl_ext.influence.worker import InfluenceWorker, RankScores
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.rollout_key import uid_of
from verl_ext.trainer.loading import configured_selectors

ROOT = Path(__file__).resolve().parents[3]
KEYS = [f"uid{prompt}_{session}_0" for prompt in (0, 1) for session in (0, 1)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StoredRows:
    return StoredRows(monkeypatch)


def _config(*overrides: str) -> Any:
    small = ["data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "tracin.validation.strategy=in_batch"]
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("tracin", overrides=[*small, "actor_rollout_ref.actor.ppo_mini_batch_size=1", *overrides])


def _make(
    store: StoredRows, tmp_path: Path, scores: list[float], *overrides: str
) -> tuple[TracInSelector, KVBatchMeta]:
    trainer: Any = QuietTrainer(_config(*overrides), tmp_path, Engine(lambda index, session: True))
    ranks = [RankScores(1, np.array(scores[2:]), None), RankScores(0, np.array(scores[:2]), 1e-6)]
    trainer.asked = []
    trainer.actor_rollout_wg = SimpleNamespace(
        world_size=2,
        compute_influence=lambda batch: trainer.asked.append(dict(batch.extra_info)) or {"metrics": {"norm": 2.0}},
        take_influence_scores=lambda: ranks,
        set_up_influence=lambda parameters, preconditioner: [0.25, 0.25],
    )
    trainer.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: " ".join(map(str, ids)))
    rows = {
        "advantages": [torch.full((length,), value) for length, value in ((2, 1.0), (3, -1.0), (2, 0.5), (4, -0.5))],
        "rm_scores": [torch.tensor([0.0, value]) for value in (1.0, 0.0, 1.0, 0.0)],
    }
    rows |= {name: [torch.ones(len(row), dtype=torch.long) for row in rows["advantages"]] for name in ("responses",)}
    rows |= {name: list(rows["responses"]) for name in ("response_mask", "loss_mask", "prompts")}
    data_plane.write(KEYS, "train", data_plane.as_columns(rows), [{} for _ in KEYS])
    for key, (_, row) in store.partitions["train"].items():
        row.update(uid=key.rsplit("_", 2)[0], index=7)
    selector = TracInSelector(trainer)
    selector.set_up_data()
    return selector, KVBatchMeta(partition_id="train", keys=list(KEYS), tags=[{} for _ in KEYS])


def _seen(name: str, keys: list[str]) -> list[float]:
    return [float(row.float().mean()) for row in data_plane.read(keys, "train", [name])[name].unbind()]


def test_it_joins_every_trainer_that_enables_it_and_brings_its_worker():
    assert configured_selectors(_config()) == [TracInSelector]
    assert configured_selectors(_config("tracin.enable=false")) == []
    assert TracInSelector.worker_class is InfluenceWorker


def test_the_update_sees_what_has_a_positive_score_and_everything_is_whole_afterwards(
    store: StoredRows, tmp_path: Path
):
    selector, batch = _make(store, tmp_path, [1.0, -1.0, -2.0, 3.0], "tracin.selection.denominator=all")
    before = {name: _seen(name, KEYS) for name in ("advantages", "response_mask", "loss_mask")}
    chosen = selector.select(batch)
    assert chosen is not None
    assert chosen.keys == KEYS
    assert selector._trainer.asked[0]["in_batch"] is True
    assert [value == 0 for value in _seen("response_mask", KEYS)] == [False, True, True, False]
    selector.after_update(chosen)
    assert {name: _seen(name, KEYS) for name in before} == before
    metrics = selector.metrics()
    assert metrics["tracin/num_selected"] == 2
    assert metrics["tracin/update_skipped"] == 0
    assert metrics["tracin/norm"] == 2.0
    assert metrics["tracin/identity_error"] == 1e-6
    assert selector.metrics() == {}
    records = [json.loads(line) for line in (tmp_path / "influence.jsonl").read_text().splitlines()]
    assert [(record["key"], record["score"], record["weight"]) for record in records] == [
        (KEYS[0], 1.0, 1.0), (KEYS[1], -1.0, 0.0), (KEYS[2], -2.0, 0.0), (KEYS[3], 3.0, 1.0),
    ]  # fmt: skip
    assert all(record["prompt"] and record["response"] for record in records)
    # The collector learns how the groups did.
    assert selector._trainer.influence == [{uid_of(KEYS[0]): 0.0, uid_of(KEYS[2]): 1.0}]


def test_texts_are_kept_of_both_ends_and_of_where_score_and_reward_disagree():
    scores, rewards = np.array([5.0, 4.0, 3.0, -3.0, -4.0, -5.0]), np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    # The lowest and the highest; then the highest that failed, and the lowest that passed.
    assert telling(scores, rewards, 1) == [5, 0, 1, 4]
    assert telling(scores, np.ones(6), 1) == [5, 0]
    assert telling(scores, rewards, 0) == []


def test_nothing_positive_calls_the_update_off(store: StoredRows, tmp_path: Path):
    selector, batch = _make(store, tmp_path, [-1.0, -1.0, -2.0, -3.0])
    assert selector.select(batch) is None
    selector.after_update(batch)
    assert 0 not in _seen("response_mask", KEYS)
    assert selector.metrics()["tracin/update_skipped"] == 1


def test_rows_leave_in_whole_mini_batches(store: StoredRows, tmp_path: Path):
    selector, batch = _make(store, tmp_path, [1.0, 2.0, -2.0, 3.0], "tracin.selection.divisibility=drop")
    chosen = selector.select(batch)
    assert chosen is not None
    assert chosen.keys == [KEYS[1], KEYS[3]]
    selector.after_update(chosen)
    assert _seen("advantages", chosen.keys) == [-1.0, -0.5]


def test_a_prompt_is_selected_as_a_whole(store: StoredRows, tmp_path: Path):
    """KEYS are two rollouts of each of two prompts."""
    selector, batch = _make(store, tmp_path, [3.0, -1.0, -2.0, 1.0], "tracin.selection.unit=prompt")
    chosen = selector.select(batch)
    assert chosen is not None
    assert [value == 0 for value in _seen("response_mask", KEYS)] == [False, False, True, True]
    assert selector.metrics()["tracin/num_selected"] == 2


def test_one_pass_leaves_the_decision_to_the_worker_and_reports_it(store: StoredRows, tmp_path: Path):
    selector, batch = _make(store, tmp_path, [1.0, -1.0, 2.0, -1.0])
    # In a run, one pass goes with validation rollouts, which need engines.
    validation = selector.settings.validation.model_copy(update={"strategy": "fixed"})
    selector.settings = selector.settings.model_copy(update={"one_pass": True, "validation": validation})
    chosen = selector.select(batch)
    assert chosen is batch
    assert batch.extra_info["one_pass"]["rule"] == "positive"
    assert selector._trainer.asked == []
    selector.after_update(batch)
    assert "one_pass" not in batch.extra_info
    assert selector.metrics()["tracin/num_selected"] == 2


def test_its_records_go_back_to_the_checkpoints_length(store: StoredRows, tmp_path: Path):
    selector, batch = _make(store, tmp_path, [1.0, -1.0, -2.0, 3.0])
    selector.select(batch)
    state = json.loads(json.dumps(selector.state_dict()))
    selector.select(batch)
    assert len(selector.records.lines.read()) == 8
    selector.load_state_dict(state)
    assert len(selector.records.lines.read()) == 4


@pytest.mark.parametrize("baseline", ["before", "after"])
def test_advantages_are_those_of_the_tokens_that_the_model_wrote(store: StoredRows, tmp_path: Path, baseline: str):
    """Tokens that a tool wrote have none, as in verl's estimators."""
    selector, batch = _make(store, tmp_path, [1.0, 1.0, 1.0, 1.0], f"tracin.selection.baseline={baseline}")
    rows = data_plane.read(KEYS, "train", ["advantages"])["advantages"].unbind()
    masks = [torch.tensor([number % 2 == 0 for number in range(len(row))]).long() for row in rows]
    columns = {"advantages": [row * mask for row, mask in zip(rows, masks, strict=True)]}
    columns |= dict.fromkeys(("response_mask", "loss_mask"), masks)
    data_plane.write(KEYS, "train", data_plane.as_columns(columns))
    selector.select(batch)
    records = [json.loads(line) for line in (tmp_path / "influence.jsonl").read_text().splitlines()]
    assert [record["advantage"] for record in records] == [1.0, -1.0, 0.5, -0.5]
    seen = data_plane.read(KEYS, "train", ["advantages"])["advantages"].unbind()
    assert [sorted(set((row * (1 - mask)).tolist())) for row, mask in zip(seen, masks, strict=True)] == [[0.0]] * 4
    assert any(row.any() for row in seen)


def test_the_share_of_parameters_that_is_scored_is_said_and_reported(store: StoredRows, tmp_path: Path, capsys):
    selector, batch = _make(store, tmp_path, [1.0, -1.0, -2.0, 3.0])
    selector.set_up_workers()
    assert "over 25.0% of the trained parameters" in capsys.readouterr().out
    selector.select(batch)
    assert selector.metrics()["tracin/share_of_parameters"] == 0.25


def test_token_level_advantages_survive_a_selection_and_are_not_centred_again(store: StoredRows, tmp_path: Path):
    tokens = torch.tensor([0.9, 0.1, -0.5])
    selector, batch = _make(store, tmp_path, [1.0, 1.0, 1.0, 1.0], "tracin.selection.denominator=all")
    row = {"advantages": [tokens]}
    data_plane.write([KEYS[1]], "train", data_plane.as_columns(row))
    selector.select(batch)
    seen = data_plane.read([KEYS[1]], "train", ["advantages"])["advantages"].unbind()[0]
    assert seen.tolist() == pytest.approx(tokens.tolist())

    selector, batch = _make(store, tmp_path, [1.0, 1.0, 1.0, 1.0], "tracin.selection.baseline=after")
    data_plane.write([KEYS[1]], "train", data_plane.as_columns(row))
    with pytest.raises(ConfigError, match=r"the tokens of one have 3 from -0.5 to 0.9: use baseline=before"):
        selector.select(batch)


def test_centring_again_looks_at_tokens_that_count(store: StoredRows, tmp_path: Path):
    """The environment wrote the first token of a response: verl's advantage is 0 there."""
    selector, batch = _make(store, tmp_path, [1.0, 1.0, -1.0, -1.0], "tracin.selection.baseline=after")
    masked = {name: [torch.tensor([0, 1, 1])] for name in ("response_mask", "loss_mask")}
    changed = {"advantages": [torch.tensor([0.0, -1.0, -1.0])]} | masked
    data_plane.write([KEYS[1]], "train", data_plane.as_columns(changed))
    selector.select(batch)
    seen = data_plane.read(KEYS[:2], "train", ["advantages"])["advantages"].unbind()
    assert [float(row[-1]) for row in seen] == [1.0, -1.0]
