"""Whether a run folder has the run that a command asks for: a summary is not enough."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from verl_ext.core.errors import ConfigError
from verl_ext.launch import train
from verl_ext.launch.recipe import PROJECT_ROOT, recipes

# Without what they print of settings, which nothing has checked here.
RECIPES = {recipe.name: replace(recipe, notes=None) for recipe in recipes()}
CHECKS = (
    "check_versions",
    "check_engine",
    "check_settings",
    "check_data",
    "apply_prompt_format",
    "prepare_resume",
    "print_summary",
    "write_page",
)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by each run that would start. Only the decision is made: no check of data, no model, no Ray."""
    for check in CHECKS:
        monkeypatch.setattr(train, check, lambda *_: {})
    started: list[Any] = []
    monkeypatch.setattr(train.launch, "adopt_environment", lambda _: None)
    monkeypatch.setattr(train.launch, "run", lambda *_: started.append(1))
    for check in ("check_names", "check_options", "check_with_verl"):
        monkeypatch.setattr(train.checks, check, lambda _, **__: None)
    monkeypatch.setattr(train.checks, "check_rest", lambda _, **__: train.checks.Findings())
    monkeypatch.setattr("verl_ext.run.run_folder.RunFolder.write_versions", lambda *_: None)
    return started


def _composed(name: str, folder: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(PROJECT_ROOT / "configs"), version_base=None):
        own = [f"run_dir={folder}", "trainer.total_training_steps=5", "critic.enable=false", *overrides]
        return compose(name, overrides=own)


def _write_summary(folder: Path, steps_done: int) -> None:
    (folder / "summary.json").write_text(json.dumps({"global_steps": steps_done}))


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(("steps_done", "trains"), [(0, True), (3, True), (5, False)])
def test_a_run_of_val_only_is_not_a_finished_one(
    name: str, steps_done: int, trains: bool, tmp_path: Path, started: list[Any]
):
    _write_summary(tmp_path, steps_done)
    train.train(_composed(name, tmp_path), RECIPES[name])
    assert bool(started) == trains


def test_a_finished_run_of_another_seed_is_not_this_one(tmp_path: Path, started: list[Any]):
    train.train(_composed("tracin", tmp_path), RECIPES["tracin"])
    _write_summary(tmp_path, 5)
    train.train(_composed("tracin", tmp_path, "trainer.test_freq=1"), RECIPES["tracin"])
    assert len(started) == 1
    with pytest.raises(ConfigError, match=r"finished run of other settings \(data.seed was null and is 7\).*run_dir"):
        train.train(_composed("tracin", tmp_path, "data.seed=7"), RECIPES["tracin"])
