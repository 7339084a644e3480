"""A run that only validates leaves a summary, and the training command after it still trains."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from verl_ext.launch import train
from verl_ext.launch.recipe import PROJECT_ROOT, recipes

RECIPES = {recipe.name: recipe for recipe in recipes()}
CHECKS = (
    "check_versions",
    "check_engine",
    "check_settings",
    "check_data",
    "apply_prompt_format",
    "prepare_resume",
    "print_summary",
)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(("steps_done", "trains"), [(0, True), (3, True), (5, False)])
def test_a_run_of_val_only_is_not_a_finished_one(
    name: str, steps_done: int, trains: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing but the decision is looked at: no check of data, no model, no Ray."""
    for check in CHECKS:
        monkeypatch.setattr(train, check, lambda *_: {})
    started: list[Any] = []
    monkeypatch.setattr(train.launch, "adopt_environment", lambda _: None)
    monkeypatch.setattr(train.launch, "run", lambda *_: started.append(1))
    for check in ("check_names", "check_options", "check_with_verl"):
        monkeypatch.setattr(train.checks, check, lambda _: None)
    monkeypatch.setattr(train.checks, "check_rest", lambda _, **__: train.checks.Findings())
    monkeypatch.setattr("verl_ext.run.run_folder.RunFolder.write_versions", lambda *_: None)
    with initialize_config_dir(str(PROJECT_ROOT / "configs"), version_base=None):
        config = compose(
            name, overrides=[f"run_dir={tmp_path}", "trainer.total_training_steps=5", "critic.enable=false"]
        )
    (tmp_path / "summary.json").write_text(json.dumps({"global_steps": steps_done}))
    train.train(config, RECIPES[name])
    assert bool(started) == trains
