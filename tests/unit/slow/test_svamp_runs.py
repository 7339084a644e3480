"""tests/benchmarks/svamp_runs.py: every arm's command passes all checks, and arms differ in what they are named for."""

import json
import os
import sys
from pathlib import Path

import pytest
from finished_runs import end
from hydra import compose, initialize_config_dir
from stand_ins import make_data, make_model

from recipe.fast_dapo.recipe import RECIPE
from verl_ext.launch.preflight import machine
from verl_ext.launch.train import train

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import svamp_runs
from svamp_report import ACCURACY, LOOK_SAMPLES
from svamp_runs import ARMS, LOOKS, Run, evaluate, main
from whole_runs import RunError

ROOT = Path(__file__).resolve().parents[3]

BATCHES = {
    "two_phase": "8 prompts x 8 rollouts = 64 rollouts",
    "two_phase_long": "8 prompts x 8 rollouts = 64 rollouts",
    "two_phase_chosen": "8 prompts x 8 rollouts = 64 rollouts",
    "choose": "128 prompts x 4 rollouts = 512 rollouts",  # at most
    "uniform_4": "64 prompts x 4 rollouts = 256 rollouts",
    "uniform_8": "32 prompts x 8 rollouts = 256 rollouts",
    "uniform_16": "16 prompts x 16 rollouts = 256 rollouts",
    "uniform_8_small": "8 prompts x 8 rollouts = 64 rollouts",
    "filter_groups": "8 prompts x 8 rollouts = 64 rollouts",
    "filter_groups_4": "8 prompts x 4 rollouts = 32 rollouts",
}


def composed(run, *overrides):
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("fast_dapo", overrides=[*run.overrides(), *overrides])


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Overrides for what the experiment reads."""
    folder = tmp_path_factory.mktemp("svamp")
    make_model(folder / "model")
    make_data(folder / "svamp.parquet", range(128), "svamp")
    make_data(folder / "svamp_test.parquet", range(128, 144), "svamp")
    return [
        f"data.train_files={folder}/svamp.parquet",
        f"data.val_files={folder}/svamp_test.parquet",
        f"actor_rollout_ref.model.path={folder}/model",
    ]


@pytest.mark.parametrize("arm", ARMS)
def test_every_arms_command_passes_all_checks_before_ray(arm, stand_ins, tmp_path, capsys):
    environment = dict(os.environ)
    try:
        train(composed(Run(arm, 2, ARMS[arm].steps, tmp_path), "dry_run=true", *stand_ins), RECIPE)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    printed = capsys.readouterr().out
    assert BATCHES[arm] in printed
    assert "= 2 updates" in printed


@pytest.mark.parametrize(
    ("has_it", "float32", "precision"),
    [(True, False, ("bfloat16", "bf16")), (True, True, ("float32", "fp32")), (False, False, ("float32", "fp32"))],
)
def test_runs_compute_in_float32_without_bfloat16_or_when_asked(has_it, float32, precision, tmp_path, monkeypatch):
    monkeypatch.setattr(svamp_runs, "has_bfloat16", lambda: has_it)
    config = composed(Run("two_phase", 0, 12, tmp_path, float32=float32))
    actor = config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype
    assert (config.actor_rollout_ref.rollout.dtype, actor) == precision
    assert config.run_dir == str(tmp_path / f"runs/two_phase_seed0{'_float32' if float32 else ''}")


def test_bfloat16_on_a_processor_without_it_is_warned_of_before_ray(stand_ins, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(svamp_runs, "has_bfloat16", lambda: True)
    monkeypatch.setattr(machine, "has_bfloat16", lambda: False)
    environment = dict(os.environ)
    try:
        train(composed(Run("two_phase", 2, 20, tmp_path), "dry_run=true", *stand_ins), RECIPE)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    assert "this processor has no instructions for it" in " ".join(capsys.readouterr().out.split())


def test_arms_differ_in_their_method_only(tmp_path):
    configs = {arm: composed(Run(arm, 1, 12, tmp_path)) for arm in ARMS}
    for arm, config in configs.items():
        assert config.curriculum.enable == (arm.startswith("two_phase") or arm == "choose")
        assert config.algorithm.filter_groups.enable == arm.startswith("filter_groups")
        chooses = arm in ("two_phase_chosen", "choose")
        assert config.curriculum.predictor == ("posterior" if chooses else "none") or not config.curriculum.enable
        assert config.algorithm.adv_estimator == ("posterior" if arm == "choose" else "rloo")
        assert (config.data.seed, config.trainer.total_training_steps) == (1, 12)
        assert config.trainer.test_freq == config.trainer.save_freq == 12 // LOOKS
        assert config.actor_rollout_ref.actor.optim.lr == 3e-4
        assert config.actor_rollout_ref.rollout.temperature == 0.7
        assert config.actor_rollout_ref.rollout.val_kwargs.n == LOOK_SAMPLES
        assert config.run_dir == str(tmp_path / f"runs/{arm}_seed1")


def test_a_run_with_another_rate_has_its_own_folder(tmp_path):
    run = Run("two_phase", 1, 20, tmp_path, rate=1.5e-4)
    config = composed(run)
    assert config.actor_rollout_ref.actor.optim.lr == 1.5e-4
    assert config.run_dir == str(tmp_path / "runs/two_phase_seed1_rate0.00015")


def test_uniform_arms_generate_the_same_budget(tmp_path):
    for arm in ("uniform_4", "uniform_8", "uniform_16", "uniform_8_small"):
        config = composed(Run(arm, 0, ARMS[arm].steps, tmp_path))
        rollouts = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
        assert rollouts * config.trainer.total_training_steps == pytest.approx(5_000, rel=0.05)


def write_result(folder, shares):
    """A finished evaluation of problems with these shares of right answers."""
    folder.mkdir(parents=True)
    prompts = [{"index": f"svamp/{n}", "avg@8": share, "pass@8": float(share > 0)} for n, share in enumerate(shares)]
    (folder / "result.json").write_text(json.dumps({"data_sets": [{"prompts": prompts}]}))


def write_run(run, accuracy):
    """A finished run with one look at its end, evaluated."""
    end(run, run.steps, rollouts_trained=640)
    record = {ACCURACY: accuracy, "training/global_step": run.steps, "training/total/seconds": 50.0}
    record["training/total/rollouts_generated"] = 1024
    (run.folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    write_result(run.evaluation, [accuracy, accuracy])


def test_a_report_of_what_is_finished_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(svamp_runs, "execute", None)
    monkeypatch.setattr(svamp_runs, "finish", None)
    options = ["--steps", "8", "--output", str(tmp_path), "--report"]
    with pytest.raises(SystemExit, match=r"no run in .* is finished and evaluated"):
        main(options)
    write_result(tmp_path / "untrained", [0.0, 0.1])
    write_run(Run("uniform_8", 0, 8, tmp_path), 0.2)
    main(options)
    printed = capsys.readouterr().out
    assert "| uniform_8 | 8 | 1,024 | 640 | 50 | 0.200" in printed
    assert "two_phase |" not in printed
    assert (tmp_path / "curves.svg").exists()
    main([*options, "--level", "0.3"])
    assert "not reached | not reached |" in capsys.readouterr().out


def test_a_report_names_seeds_and_rates_where_runs_differ(tmp_path, capsys):
    write_result(tmp_path / "untrained", [0.0, 0.1])
    for seed, rate, accuracy in ((0, None, 0.2), (1, None, 0.3), (1, 1.5e-4, 0.4)):
        write_run(Run("two_phase", seed, 8, tmp_path, rate), accuracy)
    options = ["--arms", "two_phase", "--steps", "8", "--output", str(tmp_path), "--report"]
    main([*options, "--seed", "0", "1", "--rate", "default", "1.5e-4"])
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()[4:]]
    assert rows == ["| two_phase", "| two_phase, seed 1", "| two_phase, seed 1, rate 0.00015"]
    main([*options, "--seed", "1", "--rate", "1.5e-4", "default"])
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()[4:]]
    assert rows == ["| two_phase", "| two_phase, rate default"]


def test_a_dry_run_prints_commands_and_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(svamp_runs, "finish", None)
    options = ["--arms", "uniform_16", "--seed", "3", "--rate", "6e-4", "--float32", "--output", str(tmp_path)]
    main([*options, "--dry-run"])
    title, command = capsys.readouterr().out.splitlines()
    assert title == "# uniform_16_seed3_rate0.0006_float32: to do"
    assert command.startswith(
        "python -m recipe.fast_dapo.main +backend=cpu +experiment=smollm2_svamp_cpu +signal=plain"
    )
    assert command.endswith("mixed_precision.param_dtype=fp32")


def test_runs_are_evaluated_at_their_last_step_after_the_untrained_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(svamp_runs, "missing_files", lambda *arguments: None)
    monkeypatch.setattr(svamp_runs, "finish", lambda runs: [end(run, run.steps) for run in runs])
    calls = []

    def execute(command, log):
        calls.append(command[command.index("--model") + 1])
        return 7 * ("global_step" in calls[-1])

    monkeypatch.setattr(svamp_runs, "execute", execute)
    with pytest.raises(SystemExit, match=r"evaluation of .* ended with status 7: .*evaluation\.log says why"):
        main(["--arms", "two_phase", "--steps", "8", "--output", str(tmp_path)])
    assert calls == ["outputs/models/smollm2_135m", f"{tmp_path}/runs/two_phase_seed0/checkpoints/global_step_8"]


def test_an_evaluation_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(svamp_runs, "execute", lambda command, log: 1)
    write_result(tmp_path / "made", [0.5])
    evaluate("model", tmp_path / "made")
    with pytest.raises(RunError, match="evaluation of model ended with status 1"):
        evaluate("model", tmp_path / "missing")


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(svamp_runs, "ROOT", tmp_path)
    with pytest.raises(
        SystemExit, match=r"data_preprocess\.svamp, data_preprocess\.prompt_states, as this script's --help"
    ):
        main(["--output", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"data_preprocess\.svamp, as this script's --help"):
        main(["--output", str(tmp_path), "--arms", "two_phase"])
