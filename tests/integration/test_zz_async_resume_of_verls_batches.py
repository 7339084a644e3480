"""TracIn's own batches in each of verl's trainers, killed (SIGKILL) and resumed to the end.

There verl collects: it makes the prompts in flight again, and what had finished waits in the checkpoint. Runs with the
curriculum: test_zz_async_resume.py.
"""

import json
import pickle
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from attempts import (
    assert_one_step_was_taken_back,
    assert_the_guard_compared,
    kill_after_a_step_past_the_checkpoint,
    resume_to_the_end,
)
from test_zz_async_resume import MODES, PROMPTS, STEPS, TAKEN_BACK, TRACIN

from verl_ext.run.metrics_stream import read_metrics
from verl_ext.serving.rollout_key import uid_of

pytestmark = [pytest.mark.release, pytest.mark.timeout(2400)]

ROLLOUTS = 4
OWN_BATCHES = (
    "curriculum.enable=false",
    "algorithm.adv_estimator=grpo",
    f"actor_rollout_ref.rollout.n={ROLLOUTS}",
    "actor_rollout_ref.rollout.n_continue=0",
    *TRACIN,
)


@dataclass(frozen=True)
class Stored:
    """The training partition in a checkpoint: prompts that wait or are in flight, and rows without a prompt."""

    prompts: set[str]
    without_prompt: set[str]


@dataclass(frozen=True)
class Killed:
    """A run that was killed after a step past its checkpoint `saved`, and resumed."""

    folder: Path
    at_kill: Stored
    mode: str
    saved: int


def _stored(folder: Path, step: int) -> Stored:
    """An asynchronous trainer's checkpoint; a synchronous one has no prompt in it."""
    found = list((folder / f"checkpoints/global_step_{step}/transfer_queue").rglob("*.pkl"))
    states = [state for path in found if "partitions" in (state := pickle.loads(path.read_bytes()))]
    (train,) = [state["partitions"]["train"] for state in states if "train" in state["partitions"]]
    tags = {key: train.custom_meta.get(row, {}) for key, row in train.keys_mapping.items()}
    prompts = {key for key, tag in tags.items() if tag.get("is_prompt", False)}
    return Stored(prompts, {key for key in tags.keys() - prompts if uid_of(key) not in prompts})


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "influence.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module", params=MODES)
def run(request: pytest.FixtureRequest, demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Module-scoped: one run serves all tests of a mode."""
    mode = request.param
    folder = tmp_path_factory.mktemp(mode) / "run"
    overrides = [*TAKEN_BACK, *MODES[mode], *OWN_BATCHES]
    killed = kill_after_a_step_past_the_checkpoint(folder, overrides, ["influence.jsonl"])
    at_kill = Stored(set(), set()) if mode == "sync" else _stored(folder, killed.saved)
    assert mode == "sync" or at_kill.prompts, "nothing was in flight or waiting: this run shows nothing"
    resume_to_the_end(folder, overrides, killed)
    return Killed(folder, at_kill, mode, killed.saved)


def test_every_step_is_made_once_and_the_one_past_the_checkpoint_again(run: Killed):
    assert_one_step_was_taken_back(run.folder, run.saved, STEPS)
    records = read_metrics(run.folder / "metrics.jsonl")
    assert all(record["tracin/identity_error"] < 1e-4 for record in records)
    ages = [record["training/off_policy/trajectory_staleness_worst/max"] for record in records]
    assert (max(ages) >= 1) == (run.mode != "sync")


def test_the_guard_compared_engine_and_actor(run: Killed):
    assert_the_guard_compared(run.folder, run.saved)


def test_every_rollout_is_scored_and_trained_on_once(run: Killed):
    records = _records(run.folder)
    assert len({record["key"] for record in records}) == len(records) == STEPS * PROMPTS * ROLLOUTS
    steps, prompts = defaultdict(set), defaultdict(set)
    for record in records:
        steps[uid_of(record["key"])].add(record["step"])
        prompts[record["index"]].add(uid_of(record["key"]))
    assert all(len(own) == 1 for own in steps.values())
    # The data set has more prompts than the run takes: none comes twice.
    assert all(len(own) == 1 for own in prompts.values())


def test_no_prompt_of_the_checkpoint_is_lost(run: Killed):
    if run.mode == "sync":
        pytest.skip("nothing is in flight between the steps of the synchronous trainer")
    trained = {uid_of(record["key"]) for record in _records(run.folder) if record["step"] > run.saved}
    waiting = _stored(run.folder, STEPS).prompts
    assert run.at_kill.prompts <= trained | waiting
    assert not trained & waiting


def test_what_was_trained_on_before_the_kill_is_freed(run: Killed):
    if run.mode == "sync":
        pytest.skip("the synchronous trainer's rows are all freed")
    last = {record["key"] for record in _records(run.folder) if record["step"] == STEPS}
    # The last step's rows are still there when its checkpoint is written.
    assert _stored(run.folder, STEPS).without_prompt <= last
