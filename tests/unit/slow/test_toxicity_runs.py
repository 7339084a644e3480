"""Runs of tests/benchmarks/tracin_toxicity_runs.py: commands pass all checks; tuning, and the report."""

import json
import os
import sys
from pathlib import Path

import pytest
from finished_runs import end
from hydra import compose, initialize_config_dir
from stand_ins import make_model, make_toxicity_classifier

from data_preprocess.real_toxicity_prompts import ScoredPrompt, to_rows
from recipe.tracin.recipe import RECIPE
from verl_ext.data.schema import write_parquet
from verl_ext.launch.train import train

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import toxicity_report
import tracin_toxicity_runs
from tracin_toxicity_runs import ARMS, DATA, TASKS, Run, main, plan, tuned_rates

ROOT = Path(__file__).resolve().parents[3]
RATE = TASKS["small"].rates[0]


def composed(run, *overrides):
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("tracin", overrides=[*run.overrides(), *overrides])


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Overrides for what the experiment reads."""
    folder = tmp_path_factory.mktemp("toxicity")
    make_model(folder / "base")
    make_toxicity_classifier(folder / "classifier")
    for name, first in (("train", 0), ("influence", 32), ("val", 64)):
        prompts = [ScoredPrompt(f"{name}/{n}", f"Sentence {n} is", 0.5, False) for n in range(first, first + 32)]
        write_parquet(to_rows(prompts, name), folder / f"{name}.parquet")
    return [
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/val.parquet",
        f"tracin.validation_files={folder}/influence.parquet",
        f"actor_rollout_ref.model.path={folder}/base",
        f"reward.custom_reward_function.reward_kwargs.model_path={folder}/classifier",
    ]


@pytest.mark.parametrize("arm", ARMS)
def test_every_arms_command_passes_all_checks_before_ray(arm, stand_ins, tmp_path, capsys):
    run = Run(arm, 2, 8, tmp_path, RATE)
    critic = ["critic.model.path=" + stand_ins[3].partition("=")[2]] if arm.startswith("ppo") else []
    environment = dict(os.environ)
    try:
        train(composed(run, "dry_run=true", *stand_ins, *critic), RECIPE)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    printed = capsys.readouterr().out
    assert ("influence" in printed) == arm.endswith("_tracin")
    assert ("the critic comes on top" in printed) == arm.startswith("ppo")
    assert "16 prompts x 8 rollouts = 128 rollouts" in printed


def test_a_pretrained_models_command_passes_all_checks_before_ray(stand_ins, tmp_path, capsys):
    run = Run("grpo_tracin", 0, 40, tmp_path, 2e-4, "smollm2")
    # Its reward needs a package that not every machine has.
    reward = ("reward.custom_reward_function.path=pkg://verl_ext.rewards.toxicity", f"+{stand_ins[-1]}")
    environment = dict(os.environ)
    try:
        train(composed(run, "dry_run=true", *stand_ins[:-1], *reward), RECIPE)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    printed = capsys.readouterr().out
    assert "8 prompts x 8 rollouts = 64 rollouts" in printed
    assert "the run          40 steps" in printed
    assert "influence" in printed


def test_a_pretrained_model_has_no_ppo(tmp_path, capsys):
    options = ["--task", "smollm2", "--output", str(tmp_path), "--dry-run"]
    main(["--seeds", "1", *options])
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert titles == ["# grpo_lr0.000125_seed0: to do", "# grpo_tracin_lr0.000125_seed0: to do"]
    with pytest.raises(SystemExit):
        main(["--arms", "ppo", *options])
    assert "smollm2 has no ppo: its arms are grpo, grpo_tracin" in capsys.readouterr().err


def test_arms_differ_in_the_estimator_and_in_tracin_only(tmp_path):
    from verl.trainer.ppo.utils import need_critic

    configs = {arm: composed(Run(arm, 1, 8, tmp_path, RATE)) for arm in ARMS}
    for arm, config in configs.items():
        assert config.tracin.enable == arm.endswith("_tracin")
        assert need_critic(config) == arm.startswith("ppo")
        assert config.algorithm.adv_estimator == ("gae" if arm.startswith("ppo") else "grpo")
        assert (config.data.seed, config.trainer.total_training_steps) == (1, 8)
        assert config.run_dir == str(tmp_path / f"runs/{arm}_lr0.002_seed1")
        assert config.actor_rollout_ref.actor.optim.lr == RATE
        assert config.data.val_files == [f"{DATA}/val.parquet"] * 4
        assert config.actor_rollout_ref.rollout.val_kwargs.n == 1
        assert config.critic.strategy == config.actor_rollout_ref.actor.strategy == "fsdp2"
        config.tracin.enable, config.run_dir = False, ""
    for kind in ("grpo", "ppo"):
        assert configs[kind] == configs[f"{kind}_tracin"]


def test_arms_take_turns_within_a_seed(tmp_path):
    runs = plan({"grpo": RATE, "ppo": 1e-3}, 2, 8, tmp_path)
    assert [(run.arm, run.seed) for run in runs] == [("grpo", 0), ("ppo", 0), ("grpo", 1), ("ppo", 1)]


def test_a_dry_run_prints_commands_and_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tracin_toxicity_runs, "finish", None)
    end(Run("grpo", 0, 8, tmp_path, RATE), 8)
    main(["--arms", "grpo", "ppo_tracin", "--seeds", "1", "--steps", "8", "--output", str(tmp_path), "--dry-run"])
    first, command, second, other = capsys.readouterr().out.splitlines()
    assert (first, second) == ("# grpo_lr0.002_seed0: finished", "# ppo_tracin_lr0.002_seed0: to do")
    assert command.startswith("python -m recipe.tracin.main +backend=cpu +experiment=tracin_toxicity run_dir=")
    assert command.endswith("tracin.enable=false")
    assert "algorithm.adv_estimator=gae" in other


def test_too_short_a_run_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--steps", "1"])
    assert "--steps of at least 5" in capsys.readouterr().err


def test_what_is_missing_is_named_with_its_script(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tracin_toxicity_runs, "ROOT", tmp_path)
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path)])
    assert "data_preprocess.toxicity_model" in capsys.readouterr().err.replace("\n", " ")


def write_results(run, reward):
    """Write the results of a finished run with two looks."""
    end(run, run.steps)
    (run.folder / "validation_before.json").write_text(json.dumps({"metrics": {toxicity_report.REWARD: 0.7}}))
    record = {toxicity_report.REWARD: reward, "training/global_step": run.steps, "training/total/seconds": 50.0}
    record["training/total/rollouts_generated"] = 1024
    (run.folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")


def test_an_arms_rate_is_that_of_the_arm_without_tracin(tmp_path):
    tried = []

    def train(run):
        tried.append((run.arm, run.rate, run.seed))
        # Best at twice the grid's last rate for PPO.
        write_results(run, 0.7 + 10 * (run.rate if run.rate <= {"grpo": 4e-3, "ppo": 16e-3}[run.arm] else 0))
        return 0

    rates = tuned_rates(["grpo", "grpo_tracin", "ppo_tracin"], 8, tmp_path, train)
    assert rates == {"grpo": 4e-3, "grpo_tracin": 4e-3, "ppo_tracin": 16e-3}
    grid = {"grpo": (2e-3, 4e-3, 8e-3), "ppo": (2e-3, 4e-3, 8e-3, 16e-3, 32e-3)}
    assert tried == [(arm, rate, 100) for arm, own in grid.items() for rate in own]


@pytest.mark.parametrize("report", [[], ["--report"]])
def test_finished_runs_end_in_a_report(tmp_path, capsys, monkeypatch, report):
    monkeypatch.setattr(tracin_toxicity_runs, "missing_files", lambda *arguments: None)
    for run in plan({"grpo": 1e-3, "grpo_tracin": 1e-3}, 2, 8, tmp_path):
        write_results(run, {"grpo": 0.75, "grpo_tracin": 0.8}[run.arm])
    options = ["--seeds", "2", "--steps", "8", "--output", str(tmp_path), "--rate", "1e-3", *report]
    main(["--arms", "grpo", "grpo_tracin", *options])
    assert "| grpo_tracin | 2 | 0.300 |" in capsys.readouterr().out
    assert (tmp_path / "results.json").exists()


def test_a_report_of_what_is_finished_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tracin_toxicity_runs, "finish", None)
    options = ["--steps", "8", "--output", str(tmp_path), "--report"]
    with pytest.raises(SystemExit):
        main(options)
    assert "--report needs --rate" in capsys.readouterr().err
    options += ["--rate", str(RATE)]
    with pytest.raises(SystemExit, match=r"no run in .* is finished"):
        main(options)
    write_results(Run("ppo", 1, 8, tmp_path, RATE), 0.8)
    main(options)
    printed = capsys.readouterr().out
    assert "| ppo | 1 | 0.300 |" in printed
    assert "grpo" not in printed
