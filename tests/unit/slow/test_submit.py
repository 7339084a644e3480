"""What would be submitted: scripts that the shell understands, and errors before anything is sent."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from verl_ext.core.errors import ConfigError
from verl_ext.submit import targets
from verl_ext.submit.__main__ import _parser, main
from verl_ext.submit.composing import compose, describe

ROOT = Path(__file__).resolve().parents[3]
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
GPU = ["-m", "recipe.fast_dapo.main", "+experiment=dapo17k_qwen2_5_1_5b", "trainer.nnodes=2", "run_dir=/shared/run"]
BUILD = {"slurm": targets.slurm, "ray": targets.ray_job, "sky": targets.sky}


@pytest.fixture(scope="module", autouse=True)
def _in_the_checkout():
    before = Path.cwd()
    os.chdir(ROOT)
    yield
    os.chdir(before)


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    return compose(GPU)


@pytest.fixture
def config(composed: DictConfig) -> DictConfig:
    return OmegaConf.create(OmegaConf.to_container(composed))


def _on_cpu(config: DictConfig) -> DictConfig:
    return OmegaConf.merge(config, {"trainer": {"device": "cpu", "n_gpus_per_node": 1}})


def _options(target: str, *arguments: str, command: list[str] = GPU) -> argparse.Namespace:
    options = _parser().parse_args([target, "--dry-run", *arguments])
    options.command = command
    return options


def _submission(config: DictConfig, target: str, *arguments: str, command: list[str] = GPU) -> targets.Submission:
    return BUILD[target](_options(target, *arguments, command=command), config)


def _shellcheck(text: str, *arguments: str) -> str:
    """What shellcheck says about a script; empty for a good one."""
    command = [SHELLCHECK, "--norc", *arguments, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stdout


# ------------------------------ Slurm ------------------------------


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--container=registry/image name:1", "--mount=/a:/a", "--mount=/b:/b"],
        ["--partition=gpu", "--sbatch=--mem=0", "--setup=module load cuda", "--setup=source ~/env/bin/activate"],
    ],
    ids=["plain", "container", "options"],
)
def test_the_script_for_slurm_passes_shellcheck(config: DictConfig, device: str, arguments: list[str]):
    config = _on_cpu(config) if device == "cpu" else config
    command = [*GPU, "data.prompt_key=it's a $PATH", 'trainer.logger=["console","wandb"]']
    script = _submission(config, "slurm", *arguments, command=command).text
    # A file that `source` names is on the cluster; what a user gave is quoted so that it does not expand (SC2016).
    assert not _shellcheck(script, "--exclude=SC1090,SC1091,SC2016")


def test_the_script_asks_for_what_the_run_needs(config: DictConfig):
    submission = _submission(config, "slurm", "--partition=gpu", "--time=1:00:00", "--sbatch=--mem=0")
    lines = submission.text.splitlines()
    for option in ("nodes=2", "gpus-per-node=8", "partition=gpu", "time=1:00:00", "mem=0", "requeue"):
        assert f"#SBATCH --{option}" in lines
    # Slurm reads options up to the first command.
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first_command:] if line.startswith("#SBATCH")]
    assert submission.command == ["sbatch", "/shared/run/slurm.sbatch"]


def test_a_machine_without_gpus_gets_logical_slots_and_no_gpus(config: DictConfig):
    script = _submission(_on_cpu(config), "slurm").text
    assert "gpus-per-node" not in script
    assert "--num-gpus=1" in script
    assert "--num-gpus" not in _submission(config, "slurm").text


# Quotes, variables, spaces and brackets.
OVERRIDES = ["data.prompt_key=it's a $HOME", 'trainer.logger=["console","wandb"]', "x='[1, 2]'"]


def _words(line: str) -> list[str]:
    """The arguments of a program that the shell calls with `line`."""
    return subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True).stdout.splitlines()


def _after(script: str, start: str) -> str:
    """The rest of the one line that begins with `start`."""
    (line,) = (line.strip() for line in script.splitlines() if line.strip().startswith(start))
    return line.removeprefix(start)


def test_the_shell_of_slurm_changes_nothing(config: DictConfig, tmp_path: Path):
    folder = str(tmp_path / "it's a $HOME")
    environment = {"ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": {"NOTE": "it's a $HOME"}}}}}
    config = OmegaConf.merge(config, environment, {"run_dir": "run"})
    arguments = [f"--working-dir={folder}", "--container=an image"]
    script = _submission(config, "slurm", *arguments, command=[*GPU, *OVERRIDES]).text
    assert _words(_after(script, "cd ")) == [folder]
    assert _words(_after(script, "test -f ").partition(" || ")[0]) == [f"{folder}/run/summary.json"]
    assert _words(_after(script, "export NOTE=")) == ["it's a $HOME"]
    assert _words("'--container-image=" + _after(script, "'--container-image=").rstrip("\\")) == [
        "--container-image=an image"
    ]
    assert _words(_after(script, '-- env RAY_ADDRESS="$head_address" python ')) == [*GPU, *OVERRIDES]


# ------------------------------ Ray jobs and SkyPilot ------------------------------


def test_a_ray_job_carries_the_package_and_the_plugins_variables(config: DictConfig):
    submission = _submission(config, "ray", "--address=http://head:8265", "--env=WANDB_MODE=offline")
    runtime_env = yaml.safe_load(submission.text)
    assert runtime_env["working_dir"] == str(ROOT)
    assert {".venv", ".git", "outputs"} <= set(runtime_env["excludes"])
    assert runtime_env["env_vars"] == {"VERL_USE_EXTERNAL_MODULES": "verl_ext.plugin", "WANDB_MODE": "offline"}
    assert submission.command[:4] == ["ray", "job", "submit", "--address=http://head:8265"]
    assert submission.command[-len(GPU) - 2 :] == ["--", "python", *GPU]


def test_skypilot_gets_a_task_whose_scripts_pass_shellcheck(config: DictConfig):
    submission = _submission(config, "sky", "--accelerator=H100", "--storage=s3://runs", "--infra=aws")
    task = yaml.safe_load(submission.text)
    assert task["num_nodes"] == 2
    assert task["resources"] == {"accelerators": "H100:8", "infra": "aws"}
    assert task["file_mounts"] == {"/storage": {"source": "s3://runs", "mode": "MOUNT_CACHED"}}
    for part in ("setup", "run"):
        assert not _shellcheck(task[part], "--shell=bash", "--exclude=SC1090,SC1091")
    assert " ".join(GPU) in task["run"]


def test_the_shell_of_skypilot_changes_nothing(config: DictConfig):
    submission = _submission(config, "sky", "--accelerator=H100", command=[*GPU, *OVERRIDES])
    assert _words(_after(yaml.safe_load(submission.text)["run"], "python ")) == [*GPU, *OVERRIDES]


# ------------------------------ errors ------------------------------


def test_a_dry_run_prints_everything_and_submits_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(targets.Submission, "submit", lambda self: pytest.fail("submitted"))
    command = ["-m", "recipe.fast_dapo.main", "+backend=cpu", f"run_dir={tmp_path}/run", "trainer.nnodes=2"]
    assert main(["slurm", "--dry-run", "--", *command]) == 0
    out = capsys.readouterr().out
    assert "ray symmetric-run" in out
    assert f"sbatch {tmp_path}/run/slurm.sbatch" in out
    # What the CPU backend sets for Ray's workers; the trainer's configuration was composed with it.
    assert "export VERL_PLATFORM=cpu" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["python", "train.py"], "expected the recipe's command after `--`"),
        ([], "expected the recipe's command after `--`"),
        (["-m", "recipe.fastdapo.main"], "no module 'recipe.fastdapo.main'; the recipes are recipe.fast_dapo.main"),
        (["-m", "recipe.fast_dapo.main", "trainer.nodes=2"], "does not compose"),
    ],
)
def test_a_command_that_cannot_run_is_not_submitted(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["slurm", "--", *command]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("value", [0, -1, None, "two"])
@pytest.mark.parametrize("key", ["nnodes", "n_gpus_per_node"])
def test_sizes_below_one_are_refused(config: DictConfig, key: str, value: object):
    config.trainer[key] = value
    with pytest.raises(ConfigError, match=rf"expected trainer\.{key} of at least 1, got {value!r}"):
        describe(config)


def test_engines_with_devices_of_their_own_get_nodes_of_their_own(config: DictConfig):
    config.trainer.nnodes, config.trainer.n_gpus_per_node = 2, 4
    config.actor_rollout_ref.rollout.nnodes, config.actor_rollout_ref.rollout.n_gpus_per_node = 3, 8
    assert (describe(config)["nodes"], describe(config)["slots"]) == (2, 4)
    config.trainer.v1.trainer_mode = "separate_async"
    assert (describe(config)["nodes"], describe(config)["slots"]) == (5, 8)


@pytest.mark.parametrize(("key", "value"), [("run_dir", "/a b"), ("trainer.experiment_name", "x$(id)\n#SBATCH")])
def test_names_that_slurm_would_read_otherwise_are_refused(config: DictConfig, key: str, value: str):
    OmegaConf.update(config, key, value)
    with pytest.raises(ConfigError, match=f"expected {key} without spaces"):
        describe(config)


@pytest.mark.parametrize("target", [["ray", "--address=http://head:8265"], ["sky", "--accelerator=H100"]])
def test_paths_of_this_machine_are_refused_where_only_the_package_goes_along(config: DictConfig, target: list[str]):
    config.run_dir = "outputs/run"
    config.data.val_files = ["/shared/val.parquet", "setup.py"]
    with pytest.raises(ConfigError, match=r"relative ones: run_dir, data\.val_files\. Data, models"):
        _submission(config, *target)
    with pytest.raises(ConfigError, match="expected a checkout"):
        _submission(config, *target, "--working-dir=/tmp")


def test_a_machine_without_the_scheduler_says_so(config: DictConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    config.run_dir = str(tmp_path / "run")
    with pytest.raises(ConfigError, match="sbatch is not on this machine: submit from one that has it"):
        _submission(config, "slurm").submit()
    assert not (tmp_path / "run").exists()


def test_what_the_scheduler_answers_is_the_exit_status(
    config: DictConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A real process in place of sbatch: it gets the whole script."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/usr/bin/env bash\ncp "$1" "$(dirname "$0")/received"; exit 3\n', encoding="utf-8")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config.run_dir = str(tmp_path / "run")
    submission = _submission(config, "slurm")
    assert submission.submit() == 3
    assert (tmp_path / "received").read_text() == submission.text


@pytest.mark.parametrize(
    ("address", "message"), [("head:6379", "expected the address of Ray's dashboard"), ("http://127.0.0.1:9", "no Ray")]
)
def test_an_address_where_no_dashboard_answers_is_named(config: DictConfig, address: str, message: str):
    options = _options("ray", f"--address={address}")
    options.dry_run = False
    with pytest.raises(ConfigError, match=message):
        targets.ray_job(options, config)


def test_skypilot_wants_to_know_the_accelerator(config: DictConfig):
    with pytest.raises(ConfigError, match="expected --accelerator"):
        _submission(config, "sky")
    with pytest.raises(ConfigError, match="expected --env NAME=VALUE, got 'WANDB'"):
        _submission(config, "sky", "--accelerator=H100", "--env=WANDB")
