"""What surrounds a run: the environment of its processes, and how errors reach the person who started it."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from verl.trainer import main_ppo

from verl_ext.cluster.engine_resources import RUN_VARIABLE
from verl_ext.core.errors import ConfigError, StaleEngineError
from verl_ext.launch import launch
from verl_ext.launch.own_version import own_version
from verl_ext.launch.quiet import without_lines
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch):
    """Undoes whatever a test adopts."""
    for name in ("VERL_USE_EXTERNAL_MODULES", "SIGNAL_TEST", RUN_VARIABLE, "RAY_OVERRIDE_JOB_RUNTIME_ENV"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def _config(**env_vars: str):
    return OmegaConf.create({"ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": env_vars}}}, "path": None})


def test_the_driver_takes_over_the_workers_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    config = _config(SIGNAL_TEST="from config")
    launch.adopt_environment(config)
    env_vars = config.ray_kwargs.ray_init.runtime_env.env_vars
    assert os.environ["SIGNAL_TEST"] == "from config"
    assert "verl_ext.plugin" in env_vars.VERL_USE_EXTERNAL_MODULES.split(",")
    assert env_vars.PYTHONPATH.split(os.pathsep) == ["/elsewhere", str(launch.PROJECT_ROOT)]


def test_what_the_user_has_set_wins_over_the_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIGNAL_TEST", "from user")
    config = _config(SIGNAL_TEST="from config")
    launch.adopt_environment(config)
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.SIGNAL_TEST == "from user"


def test_every_run_has_a_mark_of_its_own_also_one_that_a_run_has_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(RUN_VARIABLE, "of another")
    marks = []
    for _ in range(2):
        config = _config()
        launch.adopt_environment(config)
        marks.append(config.ray_kwargs.ray_init.runtime_env.env_vars[RUN_VARIABLE])
        assert os.environ[RUN_VARIABLE] == marks[-1]
    assert len({*marks, "of another"}) == 3


def test_the_run_folder_is_absolute_before_it_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Workers on other nodes have another working directory."""
    monkeypatch.chdir(tmp_path)
    config = OmegaConf.create({"run_dir": "outputs/run", "checkpoints": "${run_dir}/checkpoints"})
    launch.resolve_paths(config)
    assert config.checkpoints == f"{tmp_path}/outputs/run/checkpoints"


def test_local_paths_become_absolute_and_names_on_a_hub_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    Path("train.parquet").touch()
    config = OmegaConf.create({"files": ["train.parquet", "s3://bucket/a.parquet"], "model": "Qwen/Qwen2.5-1.5B"})
    launch.resolve_paths(config, "files", "model")
    assert config.files == [str(tmp_path / "train.parquet"), "s3://bucket/a.parquet"]
    assert config.model == "Qwen/Qwen2.5-1.5B"


def test_an_error_for_people_ends_with_its_message_also_as_the_cause_of_rays(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught, launch.people_errors():
        raise RuntimeError("ray wraps it") from StaleEngineError("the engine is stale")
    assert caught.value.code == 1
    assert "error: the engine is stale" in capsys.readouterr().err


def test_other_errors_keep_their_traceback():
    with pytest.raises(ZeroDivisionError), launch.people_errors():
        _ = 1 / 0


def test_an_interrupted_run_says_how_to_go_on(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught, launch.people_errors():
        raise KeyboardInterrupt
    assert caught.value.code == 130
    assert "the same command resumes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ended", "code", "first"),
    [
        (StaleEngineError("the engine is stale"), 1, "error: the engine is stale"),
        (KeyboardInterrupt(), 130, "interrupted: the same command resumes from the newest checkpoint"),
        (SystemExit("ended by SIGTERM"), 1, "ended by SIGTERM"),
    ],
)
def test_a_run_that_ends_early_names_the_command_that_shows_where_and_the_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ended: BaseException, code: int, first: str
):
    folder = RunFolder(tmp_path / "my run")
    folder.path.mkdir()
    StatusFile(folder.status).begin()
    command = f"where it stopped: python -m verl_ext.report run '{folder.path}'"
    for logs, line in ((None, command), ("/tmp/ray/logs", f"{command}; logs of workers and engines: /tmp/ray/logs")):
        StatusFile(folder.status).change(logs=logs)
        ended.__notes__ = []
        with pytest.raises(SystemExit) as caught, launch.people_errors(), launch.pointing_to(folder):
            raise ended
        assert caught.value.code == code
        assert capsys.readouterr().err.strip().splitlines() == [first, line]


def test_an_unexpected_error_keeps_its_traceback_and_names_the_command(tmp_path: Path):
    with pytest.raises(ZeroDivisionError) as caught, launch.people_errors(), launch.pointing_to(RunFolder(tmp_path)):
        _ = 1 / 0
    assert caught.value.__notes__ == [f"where it stopped: python -m verl_ext.report run {tmp_path}"]


def test_what_a_ray_that_was_still_starting_has_begun_is_ended():
    """In its own process, because all children of the caller are ended."""
    code = (
        "import subprocess; from verl_ext.launch import launch; child = subprocess.Popen(['sleep', '60']); "
        "launch._end_children(); print(child.wait(timeout=10))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "-9", done.stderr


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (KeyboardInterrupt(), ("interrupted", "Ctrl-C")),
        (SystemExit("ended by SIGTERM"), ("interrupted", "ended by SIGTERM")),
        (ConfigError("lower it"), ("failed", "lower it")),
        (RuntimeError("trace\n  of a worker\n\nCUDA out of memory \n"), ("failed", "RuntimeError: CUDA out of memory")),
        (ValueError(), ("failed", "ValueError")),
    ],
)
def test_how_a_run_ended_is_said_in_one_line(error: BaseException, end: tuple[str, str]):
    assert launch.explain_end(error) == end


def test_the_commit_is_known_in_a_checkout_alone(tmp_path: Path):
    assert "commit" not in own_version(tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    commit = own_version(tmp_path)["commit"]
    assert re.fullmatch("[0-9a-f]{12}", commit)
    (tmp_path / "file").write_text("2")
    assert own_version(tmp_path)["commit"] == f"{commit}, with changes"


def test_verls_list_of_ray_arguments_is_not_printed(capsys: pytest.CaptureFixture[str]):
    """It holds every variable of the workers, passwords included."""
    assert 'print(f"ray init kwargs: {' in inspect.getsource(main_ppo.run_ppo)
    with without_lines(main_ppo, "ray init kwargs:"):
        printing = vars(main_ppo)["print"]
        printing("ray init kwargs: {'env_vars': {'WANDB_API_KEY': 'secret'}}")
        printing("something", "else", end=".")
    assert capsys.readouterr().out == "something else."
    assert "print" not in vars(main_ppo)
