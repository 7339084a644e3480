"""Whole runs of golden_baselines.py with a toy model, for every arm, and what runs start from."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from transformers import Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from golden_baselines_protocol import ARMS, SFT_FIRST, Cost, Job
from golden_runs import CONFIG, ROOM, Material, Run, read_material
from test_golden_lab import GOLDEN, PROBLEMS, SETTINGS, TOKENIZER, Sevens

from data_preprocess import arc
from data_preprocess.arc_made import make_tasks
from data_preprocess.demo_models.small_model import build_model
from recipe.golden_redaction.settings import GoldenSettings
from verl_ext.arc.solutions import read_solution, solution_names
from verl_ext.sandbox.pool import SandboxPool


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    return build_model(SETTINGS, TOKENIZER, max_position_embeddings=128).eval()  # pyright: ignore


RUN_SETTINGS = {
    "sft": (("sft.rate", 1e-2), ("sft.share", 0.5)),
    "grpo": (("grpo.rate", 1e-3), ("grpo.updates", 1.0)),
    "prefix_grpo": (("prefix_grpo.rate", 1e-3), ("prefix_grpo.updates", 1.0)),
    "redaction": (("redaction.rate", 0.1),),
}


def make_run(model: Qwen2ForCausalLM, arm: str, seed: int = 0) -> tuple[Run, dict]:
    settings = tuple(pair for method in ARMS[arm] for pair in RUN_SETTINGS[method])
    material = Material(model, TOKENIZER, PROBLEMS, GOLDEN, {p.id: p.pairs for p in PROBLEMS})
    made = Run(Job(arm, 3, seed, settings, 8_000, samples=4), material, Sevens())  # pyright: ignore
    return made, made.make()


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_learns_until_its_budget_is_spent(model: Qwen2ForCausalLM, arm: str):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = make_run(model, arm)[1]
    looks = result["looks"]
    assert looks[0]["share"] == 0.0
    assert looks[0]["drift"] == looks[0]["drift_prompts"] == 0.0
    end = {"none": 0.0, "sft": 0.5}.get(arm, 1.0)
    assert end <= looks[-1]["share"] < end + 0.5
    assert [look["share"] for look in looks] == sorted({look["share"] for look in looks})
    assert Cost(**{k: v for k, v in looks[-1]["cost"].items() if k != "passes"}).passes == looks[-1]["cost"]["passes"]
    assert set(result["ladder"]) == {
        f"{rung}{more}"
        for rung in ("same states", "whole solution", "fresh pairs", "unseen tasks")
        for more in ("", ", solved")
    }
    assert len(result["trained"]) == 3
    if "sft" in arm:
        assert looks[1]["golden"] > looks[0]["golden"]
        assert looks[1]["drift"] > 0
    if arm in ("redaction", "sft_then_redaction"):
        assert looks[-1]["cost"]["updates"] > 0
    if arm == "grpo":  # nothing passes, so there is nothing to learn
        assert looks[-1]["cost"]["updates"] == 0 < looks[-1]["cost"]["rollouts"]
    if arm.startswith("sft_then"):
        assert looks[1]["share"] >= SFT_FIRST
        assert looks[1]["cost"]["rollouts"] == 0 < looks[-1]["cost"]["rollouts"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_equal_jobs_give_equal_results(model: Qwen2ForCausalLM):
    def timeless(result: dict) -> dict:
        for look in result["looks"]:
            del look["cost"]["seconds"]
        return result

    first, again, other = (timeless(make_run(model, "redaction", seed)[1]) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_the_visited_states_are_those_whose_token_the_base_model_has_not_decided(model: Qwen2ForCausalLM):
    made, _ = make_run(model, "none")
    name = made.trained[0]
    length = len(made.by_id[name].golden_ids)
    made.base[name][-length:] = -1e-6
    made.base[name][[-3, -5]] = np.log([0.9, 0.98])
    assert made._undecided()[name] == {3, 5}


def test_what_runs_start_from_is_the_demos(model: Qwen2ForCausalLM, tmp_path: Path):
    names = solution_names()[:12]
    tasks = make_tasks(names, 0)
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    arc.main(
        ["--arc1_training", str(tmp_path / "tasks.json"), "--local_save_dir", str(tmp_path), "--grid_format", "spaced"]
    )
    model.save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    material = read_material(tmp_path / "model", tmp_path / "arc_agi_1_training.parquet")
    assert {p.id for p in material.problems} == tasks.keys()
    demo = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["golden"]
    longest = max(len(p.golden_ids) for p in material.problems)
    assert material.golden == GoldenSettings.model_validate({**demo, "max_new_tokens": longest + ROOM})
    assert (material.golden.targets.steps, material.golden.redaction.growth) == (4, 1.0)
    assert all(p.held_out == p.test_pairs for p in material.problems)
    assert material.fresh.keys() <= tasks.keys()
    for p in material.problems:
        shown = {pair.input for pair in (*p.pairs, *p.test_pairs)}
        assert not shown & {pair.input for pair in material.fresh[p.id]}
    with SandboxPool(workers=1) as pool:
        assert all(pool.check(read_solution(name), pairs).solved for name, pairs in material.fresh.items())
