"""verl's asynchronous trainers as a user runs them: killed with rollouts in flight, resumed to the end."""

import json
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest
from attempts import attempt, saved_step
from test_training_asynchronous import COLOCATE, ENGINES_APART, SEPARATE

from verl_ext.run.metrics_stream import STEP, read_metrics

pytestmark = [pytest.mark.release, pytest.mark.timeout(2400)]

STEPS = 8
OVERRIDES = [f"trainer.total_training_steps={STEPS}", "trainer.save_freq=1", "curriculum.schedule=streaming"]


@pytest.fixture(scope="module", params=[COLOCATE, (*SEPARATE, ENGINES_APART)], ids=["colocate", "separate"])
def run_dir(request: pytest.FixtureRequest, demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asynchronous") / "run"
    overrides = [*OVERRIDES, *request.param]
    killed = attempt(folder, overrides, lambda _: saved_step(folder) >= 2, psutil.Process.kill)
    assert killed.code == -signal.SIGKILL
    assert 2 <= killed.saved < STEPS
    in_flight = _controller(folder, killed.saved)
    assert in_flight["first"] or in_flight["second"], "nothing was in flight: nothing is shown"
    resumed = attempt(folder, overrides, lambda _: saved_step(folder) > killed.saved, lambda _: None, timeout_s=800)
    assert resumed.code == 0, resumed.printed[-3000:]
    assert resumed.orphans == []
    return folder


def _curriculum(folder: Path, step: int) -> dict:
    state = json.loads((folder / f"checkpoints/global_step_{step}/signal.json").read_text())
    return state["parts"]["recipe.fast_dapo.collector.Curriculum"]


def _controller(folder: Path, step: int) -> dict:
    return _curriculum(folder, step)["controller"]


def test_every_step_is_made_once(run_dir: Path):
    steps = [record[STEP] for record in read_metrics(run_dir / "metrics.jsonl")]
    assert steps == list(range(1, STEPS + 1))
    assert json.loads((run_dir / "summary.json").read_text())["rollouts_trained"] == STEPS * 8 * 16


def test_no_prompt_is_lost_or_trained_on_twice(run_dir: Path):
    # What the engine finished after the last checkpoint is told, too, and cut off by whoever resumes from it.
    at_checkpoint = _curriculum(run_dir, STEPS)["prompt_records"]["events"]
    told = (run_dir / "prompts.jsonl").read_bytes()[:at_checkpoint]
    records = [json.loads(line) for line in told.splitlines()]
    by_event = {name: Counter(r["index"] for r in records if r["event"] == name) for name in ("screening", "trained")}
    assert sum(by_event["trained"].values()) == STEPS * 8
    assert max(by_event["trained"].values()) == 1  # the first epoch
    qualified = Counter(r["index"] for r in records if r["event"] == "screening" and 0 < r["passes"] < r["samples"])
    controller = _controller(run_dir, STEPS)
    waiting = len(controller["second"]) + len(controller["training"])
    expired = controller["counts"]["windows"]["total"]["expired"]
    assert sum(qualified.values()) == sum(by_event["trained"].values()) + waiting + expired


def test_ages_are_as_configured(run_dir: Path):
    ages = [record["curriculum/sample_age/max"] for record in read_metrics(run_dir / "metrics.jsonl")]
    assert 1 <= max(ages) <= 4
