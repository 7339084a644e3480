"""`python -m recipe.tracin.main` as a user runs it, and verl's own command: PPO with a critic and LoRA, and the files
of a run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab import MODEL, ROOT

from data_preprocess.arithmetic import PoolSettings, build_rows
from verl_ext.data.schema import write_parquet
from verl_ext.run.metrics_stream import STEP, read_metrics

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

# A user sets nothing: `+backend=cpu` must be enough.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}


# verl's command chooses its platform before it knows about the backend.
PROGRAMS = {
    "own": (("recipe.tracin.main",), {}),
    "verls": (("verl.trainer.main_ppo", "+recipe=tracin"), {"VERL_PLATFORM": "cpu"}),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def ppo_run(
    request: pytest.FixtureRequest, demo_assets: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    program, variables = PROGRAMS[request.param]
    folder = tmp_path_factory.mktemp("tracin_ppo")
    for name, rows in build_rows(PoolSettings(train_size=64, val_size=32, influence_size=48)).items():
        write_parquet(rows, folder / f"{name}.parquet")
    overrides = [
        f"run_dir={folder}/run",
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet",
        f"tracin.validation_files={folder}/influence.parquet",
        "tracin.validation.strategy=fixed",
        "tracin.validation.rollouts_per_prompt=2",
        "tracin.check_identity_every=1",
        f"actor_rollout_ref.model.path={MODEL}",
        "data.train_batch_size=8",
        "actor_rollout_ref.rollout.n=8",
        "algorithm.adv_estimator=gae",
        "critic.enable=true",
        f"critic.model.path={MODEL}",
        "+critic.ppo_infer_max_token_len_per_gpu=8192",
        # The reference is the actor without its adapter, which the critic does not have.
        "actor_rollout_ref.actor.use_kl_loss=true",
        "trainer.total_training_steps=2",
        "trainer.save_freq=2",
        "trainer.test_freq=2",
    ]
    result = subprocess.run(
        [sys.executable, "-m", *program, "+backend=cpu", "+experiment=tracin_arithmetic", *overrides],
        cwd=ROOT,
        env=ENVIRONMENT | variables,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return folder / "run", result.stdout


def test_the_command_ends_with_a_summary(ppo_run: tuple[Path, str]):
    run_dir, output = ppo_run
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["global_steps"] == 2
    assert summary["rollouts_trained"] == 2 * 8 * 8
    assert "TracIn" in output
    assert "influence" in output


def test_actor_and_critic_are_trained_on_scored_samples(ppo_run: tuple[Path, str]):
    records = read_metrics(ppo_run[0] / "metrics.jsonl")
    assert [record[STEP] for record in records] == [1, 2]
    for record in records:
        assert record["critic/vf_loss"] > 0
        assert record["tracin/identity_error"] < 1e-4
        assert record["tracin/validation/rollouts_generated"] == 96
        assert 0 < record["tracin/selection_ratio"] < 1
        assert record["actor/grad_norm"] > 0


def test_every_score_is_in_the_runs_records(ppo_run: tuple[Path, str]):
    lines = [json.loads(line) for line in (ppo_run[0] / "influence.jsonl").read_text().splitlines()]
    assert [sum(line["step"] == step for line in lines) for step in (1, 2)] == [64, 64]
    assert all(line["weight"] == (line["score"] > 0) for line in lines)


def test_the_checkpoint_has_the_validation_set(ppo_run: tuple[Path, str]):
    states = json.loads((ppo_run[0] / "checkpoints/global_step_2/signal.json").read_text())["parts"]
    state = states["recipe.tracin.selector.TracInSelector"]
    assert state["validation_rollouts"]["chooser"]["strategy"] == "fixed"
    assert state["validation_rollouts"]["keys"]
    assert state["influence_records_bytes"] == (ppo_run[0] / "influence.jsonl").stat().st_size
