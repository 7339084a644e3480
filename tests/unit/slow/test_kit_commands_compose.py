"""The GPU kit's commands of the real stack: every setting is one that verl and the recipes know, on a GPU and a CPU."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

sys.path += [str(Path(__file__).resolve().parents[2] / "gpu/kit")]

import job_faults
import job_gpu_tests
import job_training
from command_server import CommandServer
from each import check_each
from toy_assets import make_toy_assets
from training_commands import METHODS, training_command

ROOT = Path(__file__).resolve().parents[3]
# The arguments of each command in addition to the places of its files.
RUNS = {name: [*own, *job_training.COMMON] for name, own in METHODS.items()} | {"faults": [*job_faults.SHORT]}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("run", RUNS)
def test_a_command_composes_into_what_it_says(device: str, run: str, tmp_path: Path):
    words = training_command(device, tmp_path, tmp_path / "run", RUNS[run])
    assert words[:2] == ["-m", "recipe.fast_dapo.main"]
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        config = compose("fast_dapo", overrides=words[2:])
    rollout = config.actor_rollout_ref.rollout
    assert config.run_dir == str(tmp_path / "run")
    assert rollout.free_cache_engine == (device == "cuda")
    assert config.curriculum.enable == (run in ("fast_dapo", "faults"))
    assert config.algorithm.filter_groups.enable == (run == "filter_groups")
    # Rollouts trained on per step, and updates.
    rollouts = config.data.train_batch_size * (rollout.n + rollout.get("n_continue", 0))
    updates = config.data.train_batch_size // config.actor_rollout_ref.actor.ppo_mini_batch_size
    assert (rollouts, updates) == ((256, 4) if run.startswith("uniform") else (64, 2))
    if run.startswith("uniform"):
        assert config.data.gen_batch_size is None  # else a step would train on another number of rollouts
        assert run == f"uniform_{config.data.train_batch_size}x{rollout.n}"
    steps = config.trainer.total_training_steps
    if run == "faults":
        assert steps == job_faults.STEPS
    else:
        assert steps % config.trainer.test_freq == 0  # the last step is validated once
    if device == "cuda":
        assert config.trainer.device != "cpu"
        assert rollout.engine_kwargs.vllm.kv_cache_memory_bytes == 4 * 2**30  # of 80
        assert config.actor_rollout_ref.model.override_config.attn_implementation == "sdpa"


def test_every_test_function_of_tests_gpu_is_run():
    found = {
        f"{path.name}::{function.name}"
        for path in (ROOT / "tests/gpu").glob("test_*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
    }
    assert {test.split("[")[0] for test in job_gpu_tests.TESTS} == found


@pytest.mark.release
def test_the_tests_that_are_run_one_by_one_are_those_that_pytest_collects():
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/gpu"]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {line.removeprefix("tests/gpu/") for line in printed.splitlines() if line.startswith("tests/gpu/")}
    assert found == set(job_gpu_tests.TESTS)


@pytest.mark.parametrize(
    ("code", "printed", "expected"),
    [
        (0, "...\n3 passed in 2.1s\n", "3 passed"),
        (0, "s\nSKIPPED [1] no CUDA device\n1 skipped in 0.5s", "1 skipped"),
        (1, "F\n1 failed, 2 passed in 3s", "1 failed, 2 passed"),
        (3, "", "exit code 3"),
    ],
)
def test_a_test_that_was_skipped_has_not_passed(code: int, printed: str, expected: str):
    assert job_gpu_tests.outcome(code, printed) == expected


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(["fast_dapo"], id="one"),
        pytest.param([run for run in RUNS if run != "fast_dapo"], id="others", marks=pytest.mark.release),
    ],
)
def test_the_commands_pass_a_dry_run(runs: list[str], tmp_path: Path):
    model, data = make_toy_assets(tmp_path / "toy")
    outputs = tmp_path / "root/outputs"
    shutil.copytree(model, outputs / "models/smollm2_135m")
    shutil.copytree(data, outputs / "data/svamp")
    server = CommandServer()

    def check(run: str) -> None:
        words = training_command("cuda", tmp_path / "root", tmp_path / run, RUNS[run])
        # The toy data has twelve questions, which limits its batches.
        small = ["data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4"]
        small += ["data.gen_batch_size=4"] if run in ("fast_dapo", "faults") else []
        ended = server.run([*words[1:], *small, "dry_run=true"])
        assert ended.code == 0, ended.printed
        assert "nothing was started" in ended.printed

    try:
        check_each(runs, check)
    finally:
        server.close()
