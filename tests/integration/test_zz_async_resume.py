"""Runs of verl's trainers as a user starts them, killed (SIGKILL) and resumed to the end: both asynchronous ones with
rollouts in flight; two phases, and choose with TracIn's selection; with vLLM, and with an engine in plain PyTorch.

Two phases in the synchronous trainer with vLLM: test_command_line.py.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from attempts import (
    PLAIN_AS_VLLM,
    assert_one_step_was_taken_back,
    assert_the_guard_compared,
    kill_after_a_step_past_the_checkpoint,
    resume_to_the_end,
)
from lab import DATA
from test_training_asynchronous import COLOCATE, ENGINES_APART, SEPARATE

from recipe.fast_dapo.curriculum.records import TrainingGroup
from verl_ext.run.metrics_stream import read_metrics

pytestmark = [pytest.mark.release, pytest.mark.timeout(2400)]

STEPS, PROMPTS = 6, 8
# A checkpoint after every second step; killed after a third one, which the resumed run makes again.
TAKEN_BACK = (
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=2",
    # Copies of the weights wherever no rollout of the current ones is trained on.
    "engine_guard.max_unchecked_steps=1",
)
MODES = {"sync": (), "colocate": COLOCATE, "separate": (*SEPARATE, ENGINES_APART)}
TRACIN = (
    "tracin.enable=true",
    "tracin.parameters=down_proj",
    f"tracin.validation_files={DATA}/val.parquet",
    "tracin.validation.pool_size=48",
    "tracin.validation.k=16",
    "tracin.check_identity_every=1",
)
METHODS = {
    "two_phase": (),
    "choose_tracin": (
        "curriculum.predictor=posterior",
        "curriculum.train_on=all",
        "curriculum.baseline=posterior",
        "algorithm.adv_estimator=posterior",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.rollout.n_continue=2",
        *TRACIN,
    ),
}


@dataclass(frozen=True)
class Case:
    """A trainer, how prompts and samples are chosen, and an engine."""

    mode: str
    method: str
    engine: str = "vllm"


CASES = [
    Case("colocate", "two_phase"),
    Case("separate", "two_phase"),
    Case("sync", "choose_tracin"),
    Case("colocate", "choose_tracin"),
    Case("separate", "choose_tracin"),
    *(Case(mode, method, "plain") for mode in MODES for method in METHODS),
]
# Titles of the engines' processes.
ENGINES = {"vllm": "VLLM::EngineCore", "plain": "ray::PlainServer"}


@dataclass(frozen=True)
class Resumed:
    """A run that was killed after a step past its checkpoint `saved`, and resumed to its end."""

    folder: Path
    saved: int


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case.mode}-{case.method}-{case.engine}")
def case(request: pytest.FixtureRequest) -> Case:
    """Module-scoped: one run serves all tests of a case."""
    return request.param


@pytest.fixture(scope="module")
def run(case: Case, demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    folder = tmp_path_factory.mktemp(f"{case.mode}_{case.method}_{case.engine}") / "run"
    variables = PLAIN_AS_VLLM if case.engine == "plain" else None
    overrides = [*TAKEN_BACK, "curriculum.schedule=streaming", *MODES[case.mode], *METHODS[case.method]]
    records = ["prompts.jsonl"] if case.method == "two_phase" else ["prompts.jsonl", "influence.jsonl"]
    killed = kill_after_a_step_past_the_checkpoint(folder, overrides, records, variables)
    found = {name for name, title in ENGINES.items() if any(title in process for process in killed.processes)}
    assert found == {case.engine}
    # Separate engines may have finished all rollouts in flight by the time of the checkpoint; these then wait.
    live = {"sync": (), "colocate": ("first", "second"), "separate": ("first", "second", "training")}[case.mode]
    at_kill = _controller(folder, killed.saved)
    assert not live or any(at_kill[name] for name in live), "nothing was in flight or waiting: this run shows nothing"
    resume_to_the_end(folder, overrides, killed, variables)
    return Resumed(folder, killed.saved)


@pytest.fixture
def run_dir(run: Resumed) -> Path:
    return run.folder


def _curriculum(folder: Path, step: int) -> dict[str, Any]:
    state = json.loads((folder / f"checkpoints/global_step_{step}/signal.json").read_text())
    return state["parts"]["recipe.fast_dapo.collector.Curriculum"]


def _controller(folder: Path, step: int) -> dict[str, Any]:
    return _curriculum(folder, step)["controller"]


def _events(folder: Path) -> list[dict[str, Any]]:
    """Events of prompts up to the last checkpoint: a resume from it cuts off what the engine finished later."""
    at_checkpoint = _curriculum(folder, STEPS)["prompt_records"]["events"]
    return [json.loads(line) for line in (folder / "prompts.jsonl").read_bytes()[:at_checkpoint].splitlines()]


def _by_index(events: Iterable[dict[str, Any]], name: str) -> Counter[Any]:
    return Counter(event["index"] for event in events if event["event"] == name)


def test_every_step_is_made_once_and_the_one_past_the_checkpoint_again(run: Resumed):
    assert_one_step_was_taken_back(run.folder, run.saved, STEPS)


def test_the_guard_compared_engine_and_actor(run: Resumed):
    assert_the_guard_compared(run.folder, run.saved)


def test_every_rollout_is_trained_on_or_waits(run_dir: Path, case: Case):
    controller = _controller(run_dir, STEPS)
    total = controller["counts"]["windows"]["total"]
    live = [group for name in ("partly_screened", "second", "training") for group in controller[name]]
    trained = json.loads((run_dir / "summary.json").read_text())["rollouts_trained"]
    assert total["trained"] == STEPS * PROMPTS
    assert total["trained_rollouts"] == trained
    assert total["failed"] == total["given_up"] == 0
    dropped = total["uninformative_rollouts"] + total["expired_rollouts"]
    assert total["generated_rollouts"] == trained + dropped + sum(
        len(TrainingGroup.unpack(group).samples) for group in live
    )
    if case.method == "two_phase":
        assert trained == STEPS * PROMPTS * 16
    else:
        assert dropped == 0
        assert STEPS * PROMPTS * 2 <= trained <= STEPS * PROMPTS * 4


def test_no_prompt_is_lost_or_trained_on_twice(run_dir: Path, case: Case):
    events, controller = _events(run_dir), _controller(run_dir, STEPS)
    trained, screened = _by_index(events, "trained"), _by_index(events, "screening")
    assert sum(trained.values()) == STEPS * PROMPTS
    # Choose may return to a prompt within these steps, but generates new rollouts then: none is trained on twice.
    assert max(trained.values()) == 1 or case.method != "two_phase"
    for index in trained:
        turns = [e["event"] for e in events if e["index"] == index and e["event"] in ("screening", "trained")]
        assert turns == ["screening", "trained"] * trained[index] + ["screening"] * (len(turns) % 2)
    kept = screened
    if case.method == "two_phase":
        mixed = [e for e in events if e["event"] == "screening" and 0 < e["passes"] < e["samples"]]
        kept = _by_index(mixed, "screening")
    waiting = len(controller["second"]) + len(controller["training"])
    expired = controller["counts"]["windows"]["total"]["expired"]
    assert sum(kept.values()) == sum(trained.values()) + waiting + expired


def test_ages_are_as_configured(run_dir: Path, case: Case):
    ages = [record["curriculum/sample_age/max"] for record in read_metrics(run_dir / "metrics.jsonl")]
    assert (0 if case.mode == "sync" else 1) <= max(ages) <= 4


def test_every_trained_sample_has_one_score(run_dir: Path, case: Case):
    scores = run_dir / "influence.jsonl"
    if case.method != "choose_tracin":
        assert not scores.exists()
        return
    lines = [json.loads(line) for line in scores.read_text().splitlines()]
    records = read_metrics(run_dir / "metrics.jsonl")
    trained = json.loads((run_dir / "summary.json").read_text())["rollouts_trained"]
    assert len(lines) == len({(line["step"], line["key"]) for line in lines}) == trained
    assert all(record["tracin/identity_error"] < 1e-4 for record in records)
