"""`python -m verl.trainer.main_ppo +recipe=fast_dapo` as a user of verl runs it: killed, its newest checkpoint
truncated, and resumed to the end with `python -m recipe.fast_dapo.main`, which must not make a difference.

The checks at the end cover both commands. Ctrl-C, at many moments: test_zz_interrupts.py.
"""

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest
from attempts import SHARED_MEMORY, VERLS, Attempt, attempt, run, saved_step

from verl_ext.run.metrics_stream import STEP, read_metrics

# Both commands run in fixtures, which count towards the time of the first tests.
pytestmark = pytest.mark.timeout(2400)

STEPS = 12

OVERRIDES = [
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=1",
    f"trainer.test_freq={STEPS}",
    # Prompts that were fetched but not yet screened must also survive the fault.
    "curriculum.schedule=streaming",
]


@pytest.fixture(scope="module")
def killed(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Attempt]:
    """The run's folder, and the attempt whose driver was killed (SIGKILL) once there were two checkpoints."""
    run_dir = tmp_path_factory.mktemp("faults") / "run"
    ended = attempt(run_dir, OVERRIDES, lambda driver: saved_step(run_dir) >= 2, psutil.Process.kill, program=VERLS)
    assert ended.code == -signal.SIGKILL
    return run_dir, ended


def _nothing(driver: psutil.Process) -> None:
    """No fault: the command continues."""


@pytest.fixture(scope="module")
def resumed_run(killed: tuple[Path, Attempt]) -> tuple[Path, Attempt, Attempt]:
    """The same run, completed by our command after its newest checkpoint was truncated."""
    run_dir, ended = killed
    (shard,) = (run_dir / f"checkpoints/global_step_{ended.saved}/actor").glob("optim_world_size_*.pt")
    os.truncate(shard, shard.stat().st_size // 2)
    resumed = attempt(run_dir, OVERRIDES, lambda driver: saved_step(run_dir) > ended.saved, _nothing, timeout_s=800)
    assert resumed.code == 0, resumed.printed[-3000:]
    return run_dir, ended, resumed


def test_a_checkpoint_that_was_cut_short_falls_back_to_the_one_before(resumed_run):
    run_dir, ended, resumed = resumed_run
    damaged = f"global_step_{ended.saved}"
    assert f"warning: {damaged} is damaged (actor/optim_world_size_1_rank_0.pt has" in resumed.printed
    assert f"warning: resuming from global_step_{ended.saved - 1}" in resumed.printed
    assert (run_dir / f"checkpoints/{damaged}.damaged").is_dir()


def test_a_log_file_tells_the_phases_the_steps_and_where_logs_and_page_are(resumed_run):
    run_dir, ended, resumed = resumed_run
    phases = ("starting Ray", "loading the trainer", "starting workers and engines", "step ")
    places = [resumed.printed.index(f"  {phase}") for phase in phases]
    assert places == sorted(places)
    told = [int(step) for step in re.findall(rf"  step (\d+) of {STEPS}: \d+\.\d s", resumed.printed)]
    assert told == list(range(ended.saved, STEPS + 1))
    assert Path(re.findall(r"logs of workers and engines: (.+)", resumed.printed)[0]).is_absolute()
    assert f"python -m verl_ext.report run {run_dir}" in resumed.printed
    assert resumed.printed.rstrip().splitlines()[-1].startswith(f"{(run_dir / 'report.html').resolve()}  (")
    assert re.search(r"wall-clock +\d+ s, \d+ s of it before the first", resumed.printed)
    assert "ray init kwargs" not in resumed.printed
    assert "[validate_config]" not in resumed.printed


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
    run_dir, ended, _ = resumed_run
    assert 2 <= ended.saved < STEPS
    steps = [record[STEP] for record in read_metrics(run_dir / "metrics.jsonl")]
    assert steps == list(range(1, STEPS + 1))


def test_cumulative_counts_never_go_back(resumed_run):
    records = read_metrics(resumed_run[0] / "metrics.jsonl")
    for name in ("seconds", "rollouts_generated", "rollouts_trained", "tokens_trained"):
        values = [record[f"training/total/{name}"] for record in records]
        assert values == sorted(values)
    assert [record["training/total/rollouts_trained"] for record in records] == [
        record[STEP] * 128 for record in records
    ]


def test_no_prompt_is_lost_or_trained_on_twice(resumed_run):
    """Across the fault: screened prompts are trained on, dropped or still waiting, and each comes once per epoch."""
    run_dir = resumed_run[0]
    records = [json.loads(line) for line in (run_dir / "prompts.jsonl").read_text().splitlines()]
    screened = Counter(r["index"] for r in records if r["event"] == "screening")
    continued = Counter(r["index"] for r in records if r["event"] == "continuation")
    trained = Counter(r["index"] for r in records if r["event"] == "trained")
    qualified = Counter(r["index"] for r in records if r["event"] == "screening" and 0 < r["passes"] < 4)
    assert sum(trained.values()) == STEPS * 8
    assert all(trained[index] <= continued[index] <= qualified[index] for index in trained)
    # The order of an epoch is a permutation, and the first one is not over.
    assert max(screened.values()) == 1
    state_file = run_dir / f"checkpoints/global_step_{STEPS}/signal.json"
    parts = json.loads(state_file.read_text())["parts"]
    controller = parts["recipe.fast_dapo.collector.Curriculum"]["controller"]
    waiting = len(controller["second"]) + len(controller["training"])
    expired = controller["counts"]["windows"]["total"]["expired"]
    assert sum(qualified.values()) == sum(trained.values()) + waiting + expired


def test_nothing_of_the_run_stays_in_shared_memory(resumed_run):
    run_dir, *both = resumed_run
    for ended in both:
        assert ended.segments, "the engine made no shared memory: the ledger looks in the wrong place"
        assert not [name for name in ended.segments if (SHARED_MEMORY / name).exists()]
    assert both[1].orphans == []
    assert not (run_dir / "engine_resources.json").exists()


def test_runs_with_clusters_of_their_own_do_not_share_a_socket_for_new_weights(resumed_run):
    """Ray gives both the same job id; that the engines received weights shows that both ends have the same name."""
    (killed,), (resumed,) = (ended.jobs for ended in resumed_run[1:])
    assert killed != resumed
    for name in (killed, resumed):
        assert re.fullmatch("01000000-[0-9a-f]{32}", name)


def test_a_finished_run_says_so_and_keeps_its_results(resumed_run):
    run_dir = resumed_run[0]
    before = (run_dir / "summary.json").read_text()
    result = run(run_dir, *OVERRIDES)
    assert result.returncode == 0
    assert "This run is already complete" in result.stdout
    other = run(run_dir, *OVERRIDES, "data.seed=7")
    assert other.returncode == 1
    assert "holds a finished run of other settings (data.seed was 0 and is 7)" in other.stderr
    assert (run_dir / "summary.json").read_text() == before
