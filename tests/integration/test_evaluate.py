"""`python -m recipe.fast_dapo.evaluate` on the real vLLM, and what the demo's base model must look like."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DATA, MODEL, ROOT


def _evaluate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "recipe.fast_dapo.evaluate", "--model", str(MODEL), "--max_response_length", "10"]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)


@pytest.fixture(scope="module")
def train_pool(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    """Pass rates of the base model on the training prompts, 16 samples each: the printed text and the JSON file."""
    output = tmp_path_factory.mktemp("evaluate") / "result.json"
    result = _evaluate("--data", f"{DATA}/train.parquet", "--n", "16", "--by", "kind", "--output", str(output))
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout, json.loads(output.read_text())


def test_the_base_models_pass_rates_are_heavy_tailed(train_pool: tuple[str, dict]):
    histogram = train_pool[1]["summary"]["histogram"]
    assert histogram["zeros"] >= 0.40
    assert histogram["ones"] >= 0.15
    assert histogram["zeros"] + histogram["ones"] + sum(histogram["bins"]) == pytest.approx(1)


def test_pass_at_k_grows_with_k(train_pool: tuple[str, dict]):
    pass_at = train_pool[1]["summary"]["pass_at"]
    assert pass_at["1"] < pass_at["4"] < pass_at["16"]
    assert pass_at["1"] == pytest.approx(train_pool[1]["summary"]["pass_rate"])


def test_the_printed_report_shows_the_ends_apart_from_the_bins(train_pool: tuple[str, dict]):
    text = train_pool[0]
    for label in ("pass@1", "pass@16", "0/n", "n/n", "[0.9, 1.0)"):
        assert label in text


def test_a_missing_model_is_an_error_for_people(demo_assets: None):
    result = subprocess.run(
        [sys.executable, "-m", "recipe.fast_dapo.evaluate", "--model", "nowhere", "--data", f"{DATA}/val.parquet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_an_error_for_people(demo_assets: None, tmp_path: Path):
    result = _evaluate("--data", str(tmp_path / "none.parquet"))
    assert result.returncode != 0
    assert "none.parquet" in result.stderr
    assert "Traceback" not in result.stderr
