"""`python -m recipe.fast_dapo.evaluate` on real vLLM, and the pass rates that the demo's base model must have."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lab import DATA, MODEL, ROOT

pytestmark = pytest.mark.release


def _evaluate(*arguments: str, model: Path = MODEL, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "recipe.fast_dapo.evaluate", "--model", str(model), "--max_response_length", "10"]
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


TRAIN_POOL = ("--data", f"{DATA}/train.parquet", "--n", "16", "--by", "kind")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluate") / "train"


@pytest.fixture(scope="module")
def train_pool(demo_assets: None, output: Path) -> tuple[str, dict]:
    """Pass rates of the base model on the training prompts, 16 samples each: the printed text and the JSON file."""
    result = _evaluate(*TRAIN_POOL, "--output", str(output))
    assert result.returncode == 0, result.stderr[-3000:]
    assert "leaked" not in result.stderr
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
    for label in ("pass@1", "pass@16", "maj@16", "avg@16", "95 % interval", "error over repeats", "response_length"):
        assert label in text
    for label in ("truncated", "0/n", "n/n", "[0.9, 1.0)"):
        assert label in text


def test_the_average_of_exact_rewards_is_the_pass_rate(train_pool: tuple[str, dict]):
    (data_set,) = train_pool[1]["data_sets"]
    estimates, errors = data_set["estimates"], data_set["repeat_errors"]
    assert estimates["avg@16"]["value"] == pytest.approx(estimates["pass@1"]["value"])
    # 1024 prompts, most of them never or always right: repeats differ much less than prompts do.
    assert 0 < errors["avg@16"] < (estimates["avg@16"]["high"] - estimates["avg@16"]["low"]) / 8
    assert 1 <= estimates["response_length"]["value"] <= 10
    assert set(errors) == {"avg@16", "response_length", "truncated"}


def test_samples_are_judged_by_another_threshold_without_an_engine(train_pool: tuple[str, dict], output: Path):
    anew = output.parent / "anew"
    shutil.copytree(output, anew)
    result = _evaluate(*TRAIN_POOL, "--success_threshold", "0", "--output", str(anew))
    assert result.returncode == 0, result.stderr[-3000:]
    assert json.loads((anew / "result.json").read_text())["data_sets"][0]["estimates"]["pass@1"]["value"] == 1.0
    assert " of 1024 prompts" not in result.stderr


@pytest.fixture(scope="module")
def checkpoint(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base model as a run of one rank saves it; `test_evaluation_checkpoint.py` tests verl's own saving."""
    from transformers import AutoModelForCausalLM

    step = tmp_path_factory.mktemp("run") / "global_step_7"
    shutil.copytree(MODEL, step / "actor/huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
    weights = AutoModelForCausalLM.from_pretrained(MODEL).state_dict()
    torch.save(weights, step / "actor/model_world_size_1_rank_0.pt")
    (step / "actor/fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    return step


def test_a_checkpoint_is_evaluated_with_the_settings_of_a_validation(checkpoint: Path, tmp_path: Path):
    """With only the likeliest token left, all samples are the same; top-p and top-k are tested one after the other."""
    output = tmp_path / "out"
    common = ("--data", f"{DATA}/val.parquet", "--n", "4", "--limit", "64", "--output")
    first = _evaluate(*common, str(output), "--top_p", "0.001", model=checkpoint, cwd=tmp_path)
    assert first.returncode == 0, first.stderr[-3000:]
    assert "merging 1 shard(s)" in first.stderr
    again = _evaluate(*common, str(tmp_path / "k"), "--top_k", "1", model=checkpoint / "actor", cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "was merged before" in again.stderr
    by_top_p, by_top_k = (
        [
            [sample["response"] for sample in json.loads(line)["samples"]]
            for line in (folder / "samples.jsonl").read_text().splitlines()[1:]
        ]
        for folder in (output, tmp_path / "k")
    )
    assert by_top_p == by_top_k
    assert all(len(set(responses)) == 1 for responses in by_top_p)
    (data_set,) = json.loads((output / "result.json").read_text())["data_sets"]
    assert data_set["repeat_errors"]["avg@4"] == 0
    assert 0.1 < data_set["estimates"]["pass@1"]["value"] < 0.9
    refused = _evaluate(*common, str(output), "--top_p", "0.7", model=checkpoint, cwd=tmp_path)
    assert refused.returncode != 0
    assert "top_p was 0.001, is 0.7" in refused.stderr


def test_the_system_prompt_is_part_of_every_prompt(demo_assets: None, tmp_path: Path):
    """A sum in front of the sum: the base model no longer gives the right answers."""
    result = _evaluate(
        *("--data", f"{DATA}/train.parquet", "--n", "1", "--temperature", "0", "--limit", "64"),
        *("--system_prompt", "99+99=198\n99+99=", "--output", str(tmp_path / "out")),
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert json.loads((tmp_path / "out/result.json").read_text())["data_sets"][0]["summary"]["pass_rate"] < 0.1


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data_parallel_size", "2"), "needs a GPU per engine"),
        (("--reward", "nowhere.py:score"), "nowhere.py:score cannot be loaded"),
        (("--chat_template_kwargs", '{"enable_thinking": false}'), "does not read enable_thinking"),
    ],
)
def test_what_cannot_work_is_refused_before_the_engine_starts(demo_assets: None, arguments: tuple[str], message: str):
    result = _evaluate("--data", f"{DATA}/val.parquet", *arguments)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_an_error_for_people(demo_assets: None, tmp_path: Path):
    result = _evaluate("--data", str(tmp_path / "none.parquet"))
    assert result.returncode != 0
    assert "none.parquet" in result.stderr
    assert "Traceback" not in result.stderr
