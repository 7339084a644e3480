"""The GPU tests' code on the CPU at toy size: what a machine without a GPU can check of it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

import test_gpu_run
from command_server import CommandServer
from each import check_each
from gpu_cases import golden_at_size, influence_at_size, sharded_scores

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_sharded_bfloat16_scores_of_packed_rows(tmp_path: Path, checkpointing: bool):
    found = sharded_scores("cpu", tmp_path, checkpointing)
    assert found.error < 0.05
    assert found.identity_error < 1e-2
    assert found.is_undisturbed


@pytest.mark.release
def test_scores_and_memory_of_a_model():
    errors, peaks = influence_at_size("cpu", "toy", seq_len=16)
    assert errors["scoring"] < 1e-5
    assert peaks["scoring"][32] <= 1.02 * peaks["scoring"][8]


def test_one_forward_for_all_tokens():
    difference, gradient_error = golden_at_size("cpu", "toy", state_tokens=32)
    assert difference < 1e-5
    assert gradient_error < 1e-6


@pytest.mark.release
def test_the_commands_of_the_tiny_runs_pass_a_dry_run(tmp_path: Path):
    if not (ROOT / "outputs/models/arithmetic_base/config.json").exists():
        pytest.skip("the demo's base model is missing: make demo-data")
    server = CommandServer()

    def check(run: tuple[str, str]) -> None:
        recipe, kernels = run
        words = test_gpu_run.command(recipe, kernels, tmp_path / recipe / kernels)
        ended = server.run([*words, "dry_run=true"], VERL_SIGNAL_SKIP_VERSION_CHECK="1")  # SGLang is not installed
        assert ended.code == 0, ended.printed
        assert "nothing was started" in ended.printed

    try:
        runs = [(recipe, "as shipped") for recipe in test_gpu_run.RECIPES]
        check_each([*runs, *((recipe, test_gpu_run.SGLANG) for recipe in test_gpu_run.WITH_SGLANG)], check)
    finally:
        server.close()
