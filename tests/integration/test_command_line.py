"""`python -m recipe.fast_dapo.main` as a user runs it: one fault after another, resumed each time, to the end.

Every attempt is the same command in the same folder. What is to hold at the end, holds over all of them.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from attempts import SHARED_MEMORY, Attempt, attempt, press_ctrl_c, run, saved_step

from verl_ext.metrics_stream import STEP, read_metrics

# All attempts are in a fixture, so in the first test's time.
pytestmark = pytest.mark.timeout(2400)

STEPS = 12

FAULTS = {
    "driver": psutil.Process.kill,
    "Ctrl-C": press_ctrl_c,
}
OVERRIDES = [
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=1",
    f"trainer.test_freq={STEPS}",
    # Prompts that were fetched and not yet screened wait across the faults, too.
    "curriculum.schedule=streaming",
]


@pytest.fixture(scope="module")
def attempts(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Attempt]]:
    """The run's folder and its faults, in their order."""
    run_dir = tmp_path_factory.mktemp("faults") / "run"

    def _another_checkpoint(found: int) -> Callable[[psutil.Process], bool]:
        return lambda driver: saved_step(run_dir) > found

    return run_dir, {
        name: attempt(run_dir, OVERRIDES, _another_checkpoint(saved_step(run_dir)), fault)
        for name, fault in FAULTS.items()
    }


def test_ctrl_c_ends_the_run_with_a_word_and_nothing_is_left(attempts: tuple[Path, dict[str, Attempt]]):
    attempt = attempts[1]["Ctrl-C"]
    assert attempt.code == 130, attempt.printed[-3000:]
    assert "interrupted: the same command resumes from the newest checkpoint" in attempt.printed
    assert "Traceback" not in attempt.printed
    assert attempt.seconds < 90
    assert attempt.orphans == []
    assert attempt.segments, "the engine made no shared memory: the ledger looks in the wrong place"
    assert not [name for name in attempt.segments if (SHARED_MEMORY / name).exists()]


@pytest.fixture(scope="module")
def resumed_run(attempts: tuple[Path, dict[str, Attempt]]) -> tuple[Path, dict[str, Attempt], str]:
    """The same command to the end, after its newest checkpoint was cut short."""
    run_dir, faults = attempts
    newest = run_dir / f"checkpoints/global_step_{faults['Ctrl-C'].saved}"
    (shard,) = (newest / "actor").glob("optim_world_size_*.pt")
    os.truncate(shard, shard.stat().st_size // 2)
    result = run(run_dir, *OVERRIDES)
    assert result.returncode == 0, result.stderr[-3000:]
    return run_dir, faults, result.stderr


def test_a_checkpoint_that_was_cut_short_falls_back_to_the_one_before(resumed_run):
    run_dir, faults, printed = resumed_run
    damaged = f"global_step_{faults['Ctrl-C'].saved}"
    assert f"warning: {damaged} is damaged (actor/optim_world_size_1_rank_0.pt has" in printed
    assert f"warning: resuming from global_step_{faults['Ctrl-C'].saved - 1}" in printed
    assert (run_dir / f"checkpoints/{damaged}.damaged").is_dir()


def test_the_run_ends_with_a_summary(resumed_run):
    summary = json.loads((resumed_run[0] / "summary.json").read_text())
    assert summary["global_steps"] == STEPS
    assert summary["rollouts_trained"] == STEPS * 8 * 16
    assert summary["rollouts_generated"] > summary["rollouts_trained"]
    assert summary["seconds"] > 0


def test_training_raises_the_validation_accuracy(resumed_run):
    summary = json.loads((resumed_run[0] / "summary.json").read_text())
    assert summary["val_accuracy_after"] > summary["val_accuracy_before"] + 0.03


def test_steps_go_on_where_the_checkpoint_ended(resumed_run):
    run_dir, faults, _ = resumed_run
    saved = [attempt.saved for attempt in faults.values()]
    assert saved == sorted(set(saved))
    assert saved[-1] < STEPS
    steps = [record[STEP] for record in read_metrics(run_dir / "metrics.jsonl")]
    # A fault between a step's checkpoint and its record loses that one record, never a step.
    assert steps == sorted(set(steps))
    assert set(range(1, STEPS + 1)) - set(steps) <= set(saved)


def test_cumulative_counts_never_go_back(resumed_run):
    records = read_metrics(resumed_run[0] / "metrics.jsonl")
    for name in ("seconds", "rollouts_generated", "rollouts_trained", "tokens_trained"):
        values = [record[f"training/total/{name}"] for record in records]
        assert values == sorted(values)
    assert [record["training/total/rollouts_trained"] for record in records] == [
        record[STEP] * 128 for record in records
    ]


def test_no_prompt_is_lost_or_trained_on_twice(resumed_run):
    """Over all faults: what was screened is trained on, dropped or still waiting, and each prompt once an epoch."""
    run_dir = resumed_run[0]
    records = [json.loads(line) for line in (run_dir / "prompts.jsonl").read_text().splitlines()]
    screened = Counter(r["index"] for r in records if r["event"] == "screening")
    continued = Counter(r["index"] for r in records if r["event"] == "continuation")
    trained = Counter(r["index"] for r in records if r["event"] == "trained")
    qualified = Counter(r["index"] for r in records if r["event"] == "screening" and 0 < r["passes"] < 4)
    assert sum(trained.values()) == STEPS * 8
    assert all(trained[index] <= continued[index] <= qualified[index] for index in trained)
    # The order of an epoch is a permutation: nothing comes twice before everything else had its turn.
    assert max(screened.values()) - min(screened.values(), default=0) <= 1
    state_file = run_dir / f"checkpoints/global_step_{STEPS}/signal.json"
    controller = json.loads(state_file.read_text())["controller"]
    waiting = len(controller["second"]) + len(controller["training"])
    expired = controller["counts"]["windows"]["total"]["expired"]
    assert sum(qualified.values()) == sum(trained.values()) + waiting + expired


def test_nothing_of_the_run_stays_in_shared_memory(resumed_run):
    run_dir, faults, _ = resumed_run
    segments = {name for attempt in faults.values() for name in attempt.segments}
    assert not [name for name in segments if (SHARED_MEMORY / name).exists()]
    assert not (run_dir / "engine_resources.json").exists()


def test_a_finished_run_says_so_and_keeps_its_results(resumed_run):
    run_dir = resumed_run[0]
    before = (run_dir / "summary.json").read_text()
    result = run(run_dir, f"trainer.total_training_steps={STEPS}", "trainer.save_freq=1")
    assert result.returncode == 0
    assert "This run is complete" in result.stdout
    assert (run_dir / "summary.json").read_text() == before
