"""Runs of tests/benchmarks/tracin_toxicity_runs.py: commands pass all checks; finished runs are skipped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from stand_ins import make_model, make_toxicity_classifier

from data_preprocess.real_toxicity_prompts import ScoredPrompt, to_rows
from recipe.tracin.recipe import RECIPE
from verl_ext.data.schema import write_parquet
from verl_ext.launch.train import train

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import toxicity_report
import tracin_toxicity_runs
from tracin_toxicity_runs import ARMS, HELD_OUT, Run, RunError, finish, main, missing_files, plan, tuned_rates

ROOT = Path(__file__).resolve().parents[3]
RATE = tracin_toxicity_runs.RATES[0]


def composed(run, *overrides):
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("tracin", overrides=[*run.overrides(), *overrides])


def end(run, steps):
    """Write the summary of a run that has ended."""
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / "summary.json").write_text(json.dumps({"global_steps": steps}))


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
        assert config.data.val_files == [HELD_OUT] * toxicity_report.PER_PROMPT
        assert config.actor_rollout_ref.rollout.val_kwargs.n == 1
        assert config.critic.strategy == config.actor_rollout_ref.actor.strategy == "fsdp2"
        config.tracin.enable, config.run_dir = False, ""
    for kind in ("grpo", "ppo"):
        assert configs[kind] == configs[f"{kind}_tracin"]


def test_what_is_finished_is_skipped_and_what_is_not_is_run(tmp_path):
    runs = plan({"grpo": RATE, "ppo": 1e-3}, 2, 8, tmp_path)
    assert [(run.arm, run.seed) for run in runs] == [("grpo", 0), ("ppo", 0), ("grpo", 1), ("ppo", 1)]
    end(runs[0], 8)
    end(runs[1], 4)  # of a shorter call: continued
    end(runs[2], 12)  # of a longer one
    started = []

    def train(run):
        started.append(run)
        end(run, run.steps)
        return 0

    finish(runs, train)
    assert started == [runs[1], runs[3]]
    finish(runs, train)
    assert len(started) == 2


@pytest.mark.parametrize("status", [0, 1])
def test_a_run_that_does_not_come_to_its_end_stops_the_others(tmp_path, status):
    started = []

    def train(run):
        started.append(run)
        return status

    with pytest.raises(RunError, match=f"grpo_lr0.002_seed0 ended with status {status}: .*0.log says why"):
        finish(plan({"grpo": RATE}, 2, 8, tmp_path), train)
    assert len(started) == 1


def test_the_command_gets_the_overrides_and_its_output_is_kept(tmp_path, monkeypatch):
    (tmp_path / "echo_run.py").write_text("import sys\nprint(*sys.argv[1:], sep='\\n')\nsys.exit(3)\n")
    monkeypatch.setattr(tracin_toxicity_runs, "PROGRAM", "echo_run")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = Run("ppo", 0, 8, tmp_path, RATE)
    assert tracin_toxicity_runs.train(run) == 3
    assert run.log.read_text().splitlines() == run.overrides()


def test_ctrl_c_is_left_to_the_command(tmp_path):
    """It ends its engines; killing it after a moment would leave them running."""
    (tmp_path / "slow_run.py").write_text(
        "import sys, time\n"
        "print('started', flush=True)\n"
        "try:\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1)\n    print('ended', flush=True)\n    sys.exit(5)\n"
    )
    code = (
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(ROOT / 'tests/benchmarks')!r})\n"
        "import tracin_toxicity_runs as runs\n"
        "runs.PROGRAM = 'slow_run'\n"
        f"sys.exit(runs.train(runs.Run('grpo', 0, 8, pathlib.Path({str(tmp_path)!r}), {RATE})))\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        start_new_session=True,
        # A shell's background jobs ignore SIGINT, and so would this process if the tests run in one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    log = Run("grpo", 0, 8, tmp_path, RATE).log
    deadline = time.monotonic() + 60
    while not (log.exists() and "started" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 5
    assert log.read_text().split() == ["started", "ended"]


def test_a_dry_run_prints_commands_and_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tracin_toxicity_runs, "finish", None)
    end(Run("grpo", 0, 8, tmp_path, RATE), 8)
    main(["--arms", "grpo", "ppo_tracin", "--seeds", "1", "--steps", "8", "--output", str(tmp_path), "--dry-run"])
    first, command, second, other = capsys.readouterr().out.splitlines()
    assert (first, second) == ("# grpo_lr0.002_seed0: finished", "# ppo_tracin_lr0.002_seed0: to do")
    assert command.startswith("python -m recipe.tracin.main +backend=cpu +experiment=tracin_toxicity run_dir=")
    assert command.endswith("tracin.enable=false")
    assert "algorithm.adv_estimator=gae" in other


def test_what_is_missing_is_named_with_its_script(tmp_path, capsys):
    sentence = missing_files(tmp_path)
    assert "data_preprocess.toxicity_model" in sentence
    assert "outputs/data/toxicity/train.parquet" in sentence
    for name in tracin_toxicity_runs.NEEDED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert missing_files(tmp_path) is None
    with pytest.raises(SystemExit):
        main(["--steps", "1"])
    assert "--steps of at least 5" in capsys.readouterr().err


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
    monkeypatch.setattr(tracin_toxicity_runs, "missing_files", lambda root: None)
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
