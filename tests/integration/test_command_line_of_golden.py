"""`python -m recipe.golden_redaction.main` as a user runs it, with a learning rate of 0 as the control."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from golden_assets import GoldenAssets
from lab import ROOT, compose_config

from recipe.golden_redaction.checks import check_config
from recipe.golden_redaction.records.schema import find_problems
from verl_ext.core.errors import ConfigError
from verl_ext.run.metrics_stream import STEP, read_metrics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}


def _run(*overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "recipe.golden_redaction.main", "--config-name", "golden_redaction_cpu"]
    return subprocess.run([*command, *overrides], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def control(golden_assets: GoldenAssets, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run with LoRA, so that the reference is the actor without its adapter."""
    folder = tmp_path_factory.mktemp("golden_control") / "run"
    result = _run(
        *golden_assets.overrides(),
        f"run_dir={folder}",
        "actor_rollout_ref.actor.optim.lr=0.0",
        "actor_rollout_ref.model.lora_rank=4",
        "trainer.total_training_steps=4",
        "trainer.test_freq=4",
        "trainer.save_freq=2",
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    return folder, result.stdout


def _entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "golden_entries.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.release
def test_without_a_learning_rate_nothing_moves(control: tuple[Path, str]):
    entries = _entries(control[0])
    assert all(not find_problems(entry) for entry in entries)
    actions = [action for entry in entries for action in entry["actions"]]
    assert any(action["advantage"] for action in actions)
    for action in actions:
        for name in ("log_prob_after_trainer", "log_prob_after_engine", "log_prob_reference"):
            assert action[name] == pytest.approx(action["log_prob_before"], abs=1e-4)
    summary = json.loads((control[0] / "summary.json").read_text(encoding="utf-8"))
    assert summary["golden"]["labelled_tokens"] > 0
    assert summary["golden"]["intended_way"] == 0


@pytest.mark.release
def test_every_step_is_in_the_stream_and_the_last_line_says_what_was_found(control: tuple[Path, str]):
    folder, printed = control
    assert [record[STEP] for record in read_metrics(folder / "metrics.jsonl")] == [1, 2, 3, 4]
    for text in ("Golden redaction", "redaction length", "labelled tokens", "state rewards", "% hidden"):
        assert text in printed
    assert (folder / "checkpoints" / "global_step_4" / "signal.json").exists()
    probes = [json.loads(line) for line in (folder / "golden_probes.jsonl").read_text().splitlines()]
    assert {row["step"] for row in probes} == {0, 4}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("actor_rollout_ref.rollout.temperature=0.7", ["temperature=1.0"]),
        ("golden.reference=false actor_rollout_ref.actor.use_kl_loss=true", ["actor.use_kl_loss", "golden.reference"]),
        ("golden.max_new_tokens=100000", ["engine's context", "max_new_tokens"]),
        ("golden.records.warm_start=/nowhere.jsonl", ["golden.records.warm_start", "no such file"]),
        ("golden.limits.max_prompt_tokens=5", ["none of the", "golden.limits"]),
        (
            "actor_rollout_ref.rollout.enable_chunked_prefill=false",
            ["log-probs of whole texts", "chunked_prefill=true"],
        ),
        (
            "golden.visit_ahead=true actor_rollout_ref.rollout.free_cache_engine=true",
            ["golden.visit_ahead=true", "free_cache_engine=false"],
        ),
        ("golden.visit_ahead=true", ["visits 2 problems while 2 others", "there are 3"]),
        ("golden.prompt.grid=compact", ["was trained on prompts with grid=spaced", "--grid_format spaced"]),
        ("selectors=[my.Selector]", ["for a selector to choose from", "unset selectors"]),
        ("+signal=tracin tracin.enable=true", ["for a selector to choose from", "unset tracin.enable"]),
    ],
)
def test_what_cannot_work_is_refused(golden_assets: GoldenAssets, override: str, words: list[str]):
    config = compose_config(*golden_assets.overrides(), *override.split(), recipe="golden_redaction_cpu")
    with pytest.raises(ConfigError) as caught:
        check_config(config)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.release
def test_prompts_are_limited_by_the_recipe_and_not_by_verl(golden_assets: GoldenAssets, tmp_path: Path):
    result = _run(*golden_assets.overrides(), f"run_dir={tmp_path}/run", "data.max_prompt_length=10", "dry_run=true")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "nothing was started" in result.stdout


@pytest.mark.release
def test_a_refusal_is_a_sentence_before_ray_starts(golden_assets: GoldenAssets):
    result = _run(*golden_assets.overrides(), "golden.redaction.growth=0.5")
    assert result.returncode == 1
    assert result.stderr.strip().startswith("error: ")
    assert "golden.redaction.growth must be a number >= 1, got 0.5" in result.stderr
    assert "Traceback" not in result.stderr
