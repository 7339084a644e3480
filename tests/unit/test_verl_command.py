"""verl's command with `+recipe=NAME`: when the recipe takes over, and how it ends."""

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from verl_ext.core.errors import ConfigError
from verl_ext.launch import verl_command
from verl_ext.launch.verl_command import VerlCommand, is_verls

SETTINGS = {"data": {"seed": 8}, "curriculum": {"enable": False}, "tracin": {"enable": False}}


def composed(*overrides: str, mode: RunMode = RunMode.RUN) -> DictConfig:
    return OmegaConf.create(SETTINGS | {"hydra": {"overrides": {"task": list(overrides)}, "mode": mode}})


CONFIG = composed("+recipe=fast_dapo")


def main_in(file: Path) -> Callable[[Any], Any]:
    file.parent.mkdir(parents=True)
    file.write_text("def main(config):\n    pass\n")
    spec = importlib.util.spec_from_file_location("__its_main__", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture
def verls_main(tmp_path: Path) -> Callable[[Any], Any]:
    return main_in(tmp_path / "site-packages/verl/trainer/main_ppo.py")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DictConfig, str]]:
    """What `train` was called with."""
    calls: list[tuple[DictConfig, str]] = []
    monkeypatch.setattr(verl_command, "train", lambda config, recipe: calls.append((config, recipe.name)))
    return calls


def test_verls_command_is_told_by_its_file(verls_main, tmp_path: Path):
    assert is_verls(verls_main)
    assert not is_verls(main_in(tmp_path / "mine/trainer/main_ppo.py"))
    assert not is_verls(main_in(tmp_path / "recipe/fast_dapo/main.py"))


def test_the_recipe_trains_in_place_of_verls_main_without_hydras_node(verls_main, trained):
    with pytest.raises(SystemExit) as end:
        VerlCommand("tracin").on_job_start(CONFIG, task_function=verls_main)
    assert end.value.code == 0
    assert trained == [(SETTINGS, "tracin")]
    assert "hydra" in CONFIG


def test_every_other_command_goes_on(verls_main, trained, tmp_path: Path):
    VerlCommand("tracin").on_job_start(CONFIG, task_function=main_in(tmp_path / "recipe/tracin/main.py"))
    VerlCommand().on_job_start(CONFIG, task_function=verls_main)
    assert trained == []


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (ConfigError("set n to 2"), "error: set n to 2\n"),
        (RuntimeError("out of memory"), "RuntimeError: out of memory\n"),
    ],
)
def test_no_error_lets_verls_main_begin(error, printed, verls_main, trained, monkeypatch, capsys):
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(verl_command, "train", fail)
    with pytest.raises(SystemExit) as end:
        VerlCommand("fast_dapo").on_job_start(CONFIG, task_function=verls_main)
    assert end.value.code == 1
    assert capsys.readouterr().err.endswith(printed)


def test_what_a_recipe_changes_is_said_and_recorded(verls_main, trained, monkeypatch, tmp_path: Path, capsys):
    def adapt(config: DictConfig, given: Any) -> list[str]:
        config.data.seed += len(given)
        return ["data.seed is not yours"]

    recipe = dataclasses.replace(verl_command.find_recipe("tracin"), adapt=adapt)
    monkeypatch.setattr(verl_command, "find_recipe", {"tracin": recipe}.__getitem__)
    config = composed("+recipe=tracin", "data.seed=8")
    config.hydra.update({"runtime": {"output_dir": str(tmp_path)}, "output_subdir": "hydra"})
    (tmp_path / "hydra").mkdir()
    with pytest.raises(SystemExit):
        VerlCommand("tracin").on_job_start(config, task_function=verls_main)
    assert trained == [(SETTINGS | {"data": {"seed": 10}}, "tracin")]
    assert capsys.readouterr().out == "data.seed is not yours\n"
    assert OmegaConf.load(tmp_path / "hydra/config.yaml") == SETTINGS | {"data": {"seed": 10}}


def test_a_recipe_that_is_not_there_is_named(verls_main, trained, capsys):
    with pytest.raises(SystemExit):
        VerlCommand("fats_dapo").on_job_start(CONFIG, task_function=verls_main)
    assert "there is no recipe 'fats_dapo': one of fast_dapo, golden_redaction, tracin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "printed"),
    [
        (composed("+recipe=[fast_dapo,tracin]"), "names several recipes"),
        (composed("+backend=cpu", "data.seed=1", "+recipe=fast_dapo"), "would replace what +backend sets"),
        (composed("+recipe=fast_dapo", mode=RunMode.MULTIRUN), "python -m recipe.fast_dapo.main --multirun"),
    ],
)
def test_what_would_do_something_else_is_refused(config, printed, verls_main, trained, capsys):
    with pytest.raises(SystemExit) as end:
        VerlCommand("fast_dapo").on_job_start(config, task_function=verls_main)
    assert (end.value.code, trained) == (1, [])
    assert printed in capsys.readouterr().err


def test_what_comes_after_the_recipe_or_is_no_file_of_ours_is_taken(verls_main, trained):
    config = composed("data.seed=1", "+recipe=fast_dapo", "+signal=two_phase", "+experiment=arithmetic_demo")
    with pytest.raises(SystemExit):
        VerlCommand("fast_dapo").on_job_start(config, task_function=verls_main)
    assert len(trained) == 1
