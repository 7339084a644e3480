"""Tiny runs of every recipe on one GPU: verl's own FSDP2 workers and vLLM, nothing of the CPU backend."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_preprocess import arc, arc_made, arc_model
from data_preprocess.arithmetic import PoolSettings, build_rows
from verl_ext.data.schema import write_parquet
from verl_ext.run.metrics_stream import STEP, read_metrics

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3

ONE_GPU = [
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
    "trainer.n_gpus_per_node=1",
    f"trainer.total_training_steps={STEPS}",
    "trainer.test_freq=-1",
    "trainer.save_freq=2",
]
KERNELS = {
    # As in the configurations in configs/experiment/.
    "as shipped": [
        "+actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2",
        "actor_rollout_ref.model.use_remove_padding=true",
    ],
    "without flash-attn": [
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.model.use_remove_padding=false",
        "actor_rollout_ref.rollout.enforce_eager=true",
    ],
}
SGLANG = "with SGLang"
RUNS = {**KERNELS, SGLANG: [*KERNELS["without flash-attn"], "actor_rollout_ref.rollout.name=sglang"]}
# AdamW's direction is read from moments that are in the host's memory between updates.
OFFLOADED = [f"actor_rollout_ref.actor.fsdp_config.{what}_offload=true" for what in ("param", "optimizer")]
BATCHES = ["data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8"]


def arithmetic_files(folder: Path) -> list[str]:
    """Data of the demo's task, and its model: `python -m data_preprocess.arithmetic_model`."""
    for name, rows in build_rows(PoolSettings(train_size=256, val_size=32, influence_size=128)).items():
        write_parquet(rows, folder / f"{name}.parquet")
    return [
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet",
        f"actor_rollout_ref.model.path={ROOT}/outputs/models/arithmetic_base",
    ]


def arc_files(folder: Path) -> list[str]:
    """Three tasks, and a model that has hardly learned them."""
    arc_made.main(["--local_save_dir", str(folder)])
    made, model = folder / arc_made.FILE, folder / "model"
    arc_model.main(
        ["--input", str(made), "--local_save_dir", str(model), "--num_tasks", "3", "--steps", "1", "--samples", "0"]
    )
    tasks = json.loads((model / "settings.json").read_text(encoding="utf-8"))["settings"]["tasks"]
    arc.main(["--arc1_training", str(made), "--local_save_dir", str(folder), "--tasks", tasks])
    return [
        f"data.train_files={folder}/arc_agi_1_training.parquet",
        f"actor_rollout_ref.model.path={folder}/model",
        *("golden.entries_per_update=2", "golden.credit.rollouts_per_action=16", "golden.probe.rollouts=8"),
        *("golden.max_new_tokens=192", "golden.redaction.growth=1.0"),
    ]


def command(recipe: str, kernels: str, folder: Path) -> list[str]:
    """The words after `python -m`."""
    if recipe == "fast_dapo":
        own = ["+experiment=arithmetic_demo", *arithmetic_files(folder), *BATCHES, "data.gen_batch_size=24"]
    elif recipe == "tracin":
        own = ["+experiment=tracin_arithmetic", *arithmetic_files(folder), *BATCHES]
        own += [f"tracin.validation_files={folder}/influence.parquet", *OFFLOADED]
    else:
        own = arc_files(folder)
    return [f"recipe.{recipe}.main", *own, *ONE_GPU, *RUNS[kernels], f"run_dir={folder}/run"]


RECIPES = ("fast_dapo", "tracin", "golden_redaction")
WITH_SGLANG = ("fast_dapo", "tracin")  # golden redaction needs vLLM


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_tiny_run_trains_to_its_end(recipe: str, kernels: str, tmp_path: Path):
    if kernels == "as shipped" and importlib.util.find_spec("flash_attn") is None:
        pytest.skip("flash-attn is not installed")
    _train(recipe, kernels, tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="SGLang is not installed")
@pytest.mark.parametrize("recipe", WITH_SGLANG)
def test_a_tiny_run_trains_with_sglang(recipe: str, tmp_path: Path):
    _train(recipe, SGLANG, tmp_path)


def _train(recipe: str, kernels: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", *command(recipe, kernels, tmp_path)]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    records = read_metrics(tmp_path / "run/metrics.jsonl")
    assert [record[STEP] for record in records] == [1, 2, 3]
    assert json.loads((tmp_path / "run/summary.json").read_text())["global_steps"] == STEPS
    for record in records:
        assert record["golden/k/mean" if recipe == "golden_redaction" else "actor/grad_norm"] > 0
        if recipe == "fast_dapo":
            assert 8 * 2 <= record["curriculum/trained_rollouts"] <= 8 * 4
            assert record["engine_guard/probs_diff_max"] < 0.1
