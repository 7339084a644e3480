"""Sessions with two outputs on real Ray, FSDP2 and vLLM: the curriculum and TracIn train on both, and free both."""

import json
from pathlib import Path
from typing import Any

import pytest
from lab import DATA, Lab

# Needs its own cluster, for a minute and a half; tests/unit tests the same without engines.
pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

NUM_SESSIONS = 8 * 16


@pytest.fixture
def drafts_lab(labs: Any, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    loops: Path = tmp_path_factory.mktemp("loops") / "loops.yaml"
    loops.write_text("- name: drafts\n  _target_: small_loops.Drafts\n")
    return labs.get(
        "drafts",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
        "actor_rollout_ref.rollout.agent.default_agent_loop=drafts",
        "tracin.enable=true",
        f"tracin.validation_files={DATA}/val.parquet",
        "tracin.validation.strategy=contrast",
        "tracin.validation.pool_size=48",
        "tracin.validation.k=16",
        "tracin.check_identity_every=1",
        "actor_rollout_ref.model.lora_rank=4",
        "actor_rollout_ref.actor.optim.lr=1e-4",
        "algorithm.adv_estimator=grpo",
    )


def _state(trainer: Any) -> tuple[set[str], set[str], set[str], set[str], set[str], list[str]]:
    """What is stored in each partition; uids and samples of live prompts; the validation rollouts that are kept."""
    from verl_ext.serving import data_plane

    controller, rollouts = trainer.collector.controller, trainer.selectors[-1].validation_rollouts
    uids = controller.live_uids()
    train, validation, influence = (set(data_plane.tags(partition)) for partition in ("train", "val", "influence"))
    return train, validation, influence, uids, controller.live_names() - uids, list(rollouts._keys)


def _watch_advantages(trainer: Any) -> None:
    """Record the advantages that the selectors get."""
    from verl_ext.serving import data_plane

    selector = trainer.selectors[-1]
    select, trainer.seen = selector.select, {}

    def watched(batch: Any) -> Any:
        rows = data_plane.read(batch.keys, "train", ["advantages"])["advantages"].unbind()
        trainer.seen = {key: float(row[0]) for key, row in zip(batch.keys, rows, strict=True)}
        selector.select = select
        return select(batch)

    selector.select = watched


def test_both_outputs_of_a_session_are_trained_on_with_its_advantage_and_freed(drafts_lab: Lab):
    drafts_lab.call(_watch_advantages)
    metrics = drafts_lab.step()
    trained = {key for key in metrics["batch_keys"] if key.endswith(("_0", "_1")) and key.count("_") == 2}
    sessions = {key.rpartition("_")[0] for key in trained}
    assert len(sessions) == NUM_SESSIONS
    assert trained == {f"{session}_{number}" for session in sessions for number in (0, 1)}

    seen = drafts_lab.call(lambda trainer: trainer.seen)
    assert all(seen[f"{session}_0"] == seen[f"{session}_1"] for session in sessions)
    assert any(seen[f"{session}_0"] > 0 for session in sessions)
    records = [json.loads(line) for line in (drafts_lab.run_dir / "influence.jsonl").read_text().splitlines()]
    assert {record["key"] for record in records} == trained
    assert metrics["tracin/identity_error"] < 1e-4
    assert metrics["actor/grad_norm"] > 0
    assert metrics["curriculum/total/trained_rollouts"] == NUM_SESSIONS

    train, validation, influence, uids, live, kept = drafts_lab.call(_state)
    # Prompts whose generation has begun have their own name there.
    assert train - uids == {f"{key.rpartition('_')[0]}_{number}" for key in live for number in (0, 1)}
    assert validation == set()
    assert influence == set(kept)
    real = {key for key in kept if "filler" not in key}
    assert len(real) == 2 * 16
    assert {key.rpartition("_")[2] for key in real} == {"0", "1"}


def test_one_pass_trains_on_both_outputs_in_several_updates(drafts_lab: Lab):
    with drafts_lab.settings(tracin__one_pass=True):
        metrics = drafts_lab.step()
    lines = (drafts_lab.run_dir / "influence.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines[-2 * NUM_SESSIONS :]]
    assert len({record["step"] for record in records}) == 1
    assert len(records) == 2 * NUM_SESSIONS
    assert metrics["tracin/num_selected"] == sum(record["score"] > 0 for record in records) > 0
    assert metrics["tracin/identity_error"] < 1e-4
    assert metrics["actor/grad_norm"] > 0
