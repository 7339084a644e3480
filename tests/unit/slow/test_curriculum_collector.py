"""The curriculum as a collector: what it asks, hands over, frees and remembers, on an engine that answers at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from stored_rows import Engine, QuietTrainer, StoredRows

from recipe.fast_dapo.collector import Curriculum, CurriculumExhaustedError
from recipe.fast_dapo.settings import resolve_group_size
from recipe.fast_dapo.weighting import HorvitzThompson
from verl_ext.core.errors import SignalError
from verl_ext.run.run_totals import RunTotals

ROOT = Path(__file__).resolve().parents[3]
SIZES = ["data.train_batch_size=3", "data.gen_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=3"]


def mixed_now_and_then(index: int, session: int) -> bool:
    """Of four prompts in a row two are mixed; one is always, one never solved."""
    return [False, True, session % 2 == 0, session % 4 == 1][index % 4]


def one_output(session: int) -> int:
    return 1


def one_to_three(session: int) -> int:
    return 1 + session % 3


def _make(
    tmp_path: Path, *overrides: str, passes: Any = mixed_now_and_then, outputs: Any = one_output
) -> tuple[Curriculum, QuietTrainer]:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        config = compose("fast_dapo", overrides=[*SIZES, *overrides])
    resolve_group_size(config)
    trainer = QuietTrainer(config, tmp_path, Engine(passes, outputs))
    return Curriculum(trainer), trainer


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StoredRows:
    return StoredRows(monkeypatch)


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
def test_a_batch_is_complete_groups_of_mixed_prompts_and_the_rest_is_freed(
    store: StoredRows, tmp_path: Path, schedule: str
):
    curriculum, trainer = _make(tmp_path, f"curriculum.schedule={schedule}")
    for step in (1, 2, 3):
        trainer.global_steps, trainer.agent_loop_manager.version = step, step - 1
        batch = curriculum.collect(3)
        groups = [batch.keys[place : place + 16] for place in range(0, len(batch.keys), 16)]
        assert len(batch.keys) == len(batch.tags) == 3 * 16
        for group in groups:
            uid = group[0].rsplit("_", 2)[0]
            assert group == [f"{uid}_{session}_0" for session in range(16)]
            assert int(uid.removeprefix("uid")) % 4 in (2, 3)
        assert all(tag["response_len"] == 2 for tag in batch.tags)
        store.clear(batch.keys, "train")  # as verl does after the step
        assert set(store.tags("train")) | curriculum.prompt_rows.uids == curriculum.controller.live_names()
    metrics, totals = curriculum.metrics(), RunTotals()
    curriculum.count(batch, {}, totals)
    assert metrics["curriculum/unaccounted_rollouts"] == 0
    assert totals.rollouts_generated == trainer.agent_loop_manager.num_rollouts
    assert totals.rollouts_trained == 3 * 3 * 16
    assert curriculum.summary()["rollouts_avoided"] > 0
    events = [json.loads(line)["event"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert events.count("trained") == 9
    assert events.count("screening") >= 18


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
@pytest.mark.parametrize("correction", ["none", "continuation_only"])
def test_all_outputs_of_a_session_are_trained_on_and_freed_and_count_as_one_rollout(
    store: StoredRows, tmp_path: Path, schedule: str, correction: str
):
    options = [f"curriculum.schedule={schedule}", f"curriculum.correction={correction}", "trainer.n_gpus_per_node=4"]
    first, group = (4, 12) if correction == "continuation_only" else (0, 16)
    curriculum, trainer = _make(tmp_path, *options, outputs=one_to_three)
    for step in (1, 2):
        trainer.global_steps, trainer.agent_loop_manager.version = step, step - 1
        batch = curriculum.collect(3)
        uids = list(dict.fromkeys(key.rsplit("_", 2)[0] for key in batch.keys))
        assert batch.keys == [
            f"{uid}_{session}_{number}"
            for uid in uids
            for session in range(first, 16)
            for number in range(one_to_three(session))
        ]
        assert len(uids) == 3
        store.clear(batch.keys, "train")  # as verl does after the step
        left = set(store.tags("train"))
        live = curriculum.controller.live_names() - curriculum.controller.live_uids()
        assert {key.rsplit("_", 1)[0] for key in left} == {key.rsplit("_", 1)[0] for key in live}
        assert live <= left
        assert len(left) == sum(one_to_three(int(key.rsplit("_", 2)[1])) for key in live)
    totals = RunTotals()
    curriculum.count(batch, {}, totals)
    assert totals.rollouts_trained == 2 * 3 * group
    assert totals.rollouts_generated == trainer.agent_loop_manager.num_rollouts


def test_all_outputs_of_a_session_travel_with_a_checkpoint(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "data.gen_batch_size=12", outputs=one_to_three)
    store.clear(curriculum.collect(3).keys, "train")
    waiting = set(store.tags("train"))
    curriculum.before_checkpoint()
    state = json.loads(json.dumps(curriculum.state_dict()))
    restored, _ = _make(tmp_path, "data.gen_batch_size=12")
    restored.load_state_dict(state)
    assert set(store.tags("train")) == waiting | curriculum.controller.live_uids()
    last = max(waiting, key=lambda key: int(key.rsplit("_", 1)[1]))
    assert last.endswith("_2")
    store.clear([last.removesuffix("2") + "0"], "train")  # the first of its outputs
    with pytest.raises(SignalError, match="lacks 1 of"):
        restored.load_state_dict(state)


def test_what_waits_travels_with_a_checkpoint(store: StoredRows, tmp_path: Path):
    curriculum, trainer = _make(tmp_path, "data.gen_batch_size=12")
    batch = curriculum.collect(3)
    curriculum.before_checkpoint()
    state = json.loads(json.dumps(curriculum.state_dict()))
    waiting = curriculum.controller.live_names()
    assert waiting
    # The step's own batch is in the data plane still.
    assert set(store.tags("train")) == waiting | set(batch.keys)
    restored, _ = _make(tmp_path, "data.gen_batch_size=12")
    restored.load_state_dict(state)
    assert restored.controller.live_names() == waiting == set(store.tags("train"))
    assert restored.state_dict() == state
    trainer.global_steps = 2
    restored._trainer.num_fetched = trainer.num_fetched
    assert len(restored.collect(3).keys) == 3 * 16
    store.clear([min(restored.controller.live_names() & set(store.tags("train")))], "train")
    with pytest.raises(SignalError, match="lacks"):
        _make(tmp_path)[0].load_state_dict(json.loads(json.dumps(restored.state_dict())))


def test_too_many_rounds_end_with_an_error_after_a_checkpoint(store: StoredRows, tmp_path: Path):
    curriculum, trainer = _make(tmp_path, "curriculum.max_num_gen_batches=2", passes=lambda index, session: False)
    with pytest.raises(CurriculumExhaustedError, match="A checkpoint was written"):
        curriculum.collect(3)
    assert trainer.saved == [0]


def test_a_metric_that_the_reward_does_not_return_is_named(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "curriculum.success_metric=solved")
    with pytest.raises(SignalError, match=r"success_metric='solved'.*\['acc'\]"):
        curriculum.collect(3)


def test_horvitz_thompson_weights_whole_groups_and_says_so(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "curriculum.correction=horvitz_thompson")
    batch = curriculum.collect(3)
    weighting = HorvitzThompson(curriculum)
    before = store.read(batch.keys, "train", ["advantages"])["advantages"].unbind()
    assert weighting.select(batch) is batch
    after = store.read(batch.keys, "train", ["advantages"])["advantages"].unbind()
    factors = [float(new[0] / old[0]) for old, new in zip(before, after, strict=True)]
    metrics = weighting.metrics()
    for place in range(3):
        group = factors[16 * place : 16 * place + 16]
        assert group == pytest.approx([group[0]] * 16)
    assert 1 < max(factors) <= 4
    assert max(factors) == pytest.approx(metrics["curriculum/correction_weight/max"])
    assert metrics["curriculum/correction_weight/clipped_share"] == 0
