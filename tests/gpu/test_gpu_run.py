"""A whole tiny run of Fast DAPO on one GPU: verl's own FSDP2 workers and vLLM, nothing of the CPU backend."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_preprocess.arithmetic import PoolSettings, build_rows
from verl_ext.data.schema import write_parquet
from verl_ext.run.metrics_stream import STEP, read_metrics

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3

ONE_GPU = [
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
    "actor_rollout_ref.rollout.enforce_eager=true",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=false",
    "trainer.n_gpus_per_node=1",
    "data.train_batch_size=8",
    "data.gen_batch_size=24",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    f"trainer.total_training_steps={STEPS}",
    "trainer.test_freq=-1",
    "trainer.save_freq=2",
]


def command(folder: Path) -> list[str]:
    """The demo's task on verl's GPU path. Needs `python -m data_preprocess.arithmetic_model`."""
    for name, rows in build_rows(PoolSettings(train_size=256, val_size=32, influence_size=32)).items():
        write_parquet(rows, folder / f"{name}.parquet")
    return [
        *(sys.executable, "-m", "recipe.fast_dapo.main", "+experiment=arithmetic_demo", *ONE_GPU),
        f"run_dir={folder}/run",
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet",
        f"actor_rollout_ref.model.path={ROOT}/outputs/models/arithmetic_base",
    ]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_a_tiny_run_trains_to_its_end_on_informative_prompts(tmp_path: Path):
    result = subprocess.run(command(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    records = read_metrics(tmp_path / "run/metrics.jsonl")
    assert [record[STEP] for record in records] == [1, 2, 3]
    for record in records:
        assert record["curriculum/trained_rollouts"] == 8 * 16
        assert record["engine_guard/probs_diff_max"] < 0.1
        assert record["actor/grad_norm"] > 0
    assert json.loads((tmp_path / "run/summary.json").read_text())["global_steps"] == STEPS
