"""`golden.verifier=reward` as a user runs it: sums as golden solutions, judged by the run's reward function."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lab import ROOT

from recipe.golden_redaction.records.schema import find_problems
from verl_ext.data.schema import write_parquet

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.timeout(900)]

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}
PROBLEMS = 32


def test_tokens_of_worked_solutions_move_as_intended(demo_assets: None, tmp_path: Path):
    rows = pq.read_table(ROOT / "outputs/data/arithmetic/train.parquet").to_pylist()
    learnable = [row for row in rows if row["extra_info"]["kind"] == "core"][:PROBLEMS]
    solved = [row | {"golden_solution": row["reward_model"]["ground_truth"]} for row in learnable]
    write_parquet(solved, tmp_path / "worked.parquet")
    command = [sys.executable, "-m", "recipe.golden_redaction.main", "--config-name", "golden_redaction_cpu"]
    overrides = [
        "golden.verifier=reward",
        "golden.prompt.grid=compact",  # the default; the demo's model has its own
        "golden.max_new_tokens=8",
        f"data.train_files={tmp_path}/worked.parquet",
        "actor_rollout_ref.model.path=outputs/models/arithmetic_base",
        "trainer.total_training_steps=4",
        "trainer.save_freq=4",
        f"run_dir={tmp_path}/run",
    ]
    result = subprocess.run([*command, *overrides], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    assert f"{PROBLEMS} problems" in result.stdout
    entries = [json.loads(line) for line in (tmp_path / "run/golden_entries.jsonl").read_text().splitlines()]
    assert all(not find_problems(entry) for entry in entries)
    truth = {str(row["extra_info"]["index"]): row["reward_model"]["ground_truth"] for row in solved}
    moved = []
    for entry in entries:
        for action in entry["actions"]:
            if action["advantage"]:
                change = action["log_prob_after_engine"] - action["log_prob_before"]
                moved.append(change * action["advantage"] > 0)
            for rollout in action["rollouts"]:
                # With one token hidden, the reward is known from the rollout's text.
                if entry["k"] == 1:
                    whole = truth[entry["problem"]][:-1] + rollout["text"]
                    assert rollout["reward"] == float(whole == truth[entry["problem"]])
    assert len(moved) >= 10
    assert sum(moved) >= 0.8 * len(moved)
