"""`python -m recipe.fast_dapo.evaluate` on the real vLLM, and what the demo's base model must look like."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lab import DATA, MODEL, ROOT

pytestmark = pytest.mark.release


def _evaluate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "recipe.fast_dapo.evaluate", "--model", str(MODEL), "--max_response_length", "10"]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)


TRAIN_POOL = ("--data", f"{DATA}/train.parquet", "--n", "16", "--by", "kind")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluate") / "train"


@pytest.fixture(scope="module")
def train_pool(demo_assets: None, output: Path) -> tuple[str, dict]:
    """Pass rates of the base model on the training prompts, 16 samples each: the printed text and the JSON file."""
    result = _evaluate(*TRAIN_POOL, "--output", str(output))
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout, json.loads((output / "result.json").read_text())


def test_the_base_models_pass_rates_are_heavy_tailed(train_pool: tuple[str, dict]):
    histogram = train_pool[1]["data_sets"][0]["summary"]["histogram"]
    assert histogram["zeros"] >= 0.40
    assert histogram["ones"] >= 0.15
    assert histogram["zeros"] + histogram["ones"] + sum(histogram["bins"]) == pytest.approx(1)


def test_pass_at_k_grows_with_k(train_pool: tuple[str, dict]):
    (data_set,) = train_pool[1]["data_sets"]
    pass_at = data_set["summary"]["pass_at"]
    assert pass_at["1"] < pass_at["4"] < pass_at["16"]
    assert pass_at["1"] == pytest.approx(data_set["summary"]["pass_rate"])
    assert pass_at["1"] == pytest.approx(data_set["estimates"]["pass@1"]["value"])


def test_a_killed_and_resumed_evaluation_equals_an_uninterrupted_one(train_pool: tuple[str, dict], output: Path):
    samples, result = output / "samples.jsonl", output / "result.json"
    whole, report = samples.read_bytes(), result.read_bytes()
    samples.write_bytes(whole[: -len(whole) // 20])  # killed in the middle of a line of the last chunk
    result.unlink()
    resumed = _evaluate(*TRAIN_POOL, "--output", str(output))
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert samples.read_bytes() == whole
    assert result.read_bytes() == report


def test_resuming_with_other_settings_is_an_error_for_people(train_pool: tuple[str, dict], output: Path):
    result = _evaluate(*TRAIN_POOL, "--temperature", "0.5", "--output", str(output))
    assert result.returncode != 0
    assert "temperature was 1.0, is 0.5" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_printed_report_shows_the_ends_apart_from_the_bins(train_pool: tuple[str, dict]):
    text = train_pool[0]
    for label in ("pass@1", "pass@16", "maj@16", "95 % interval", "0/n", "n/n", "[0.9, 1.0)"):
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
