"""Every configuration composes, and passes our checks and verl's."""

import itertools
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.fast_dapo.settings import CURRICULUM_KEYS, read_settings, resolve_group_size
from recipe.golden_redaction.settings import read_settings as read_golden_settings
from recipe.tracin.settings import read_settings as read_tracin_settings

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "configs/experiment").glob("*.yaml"))


def _compose(*overrides: str, recipe: str = "fast_dapo") -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(recipe, overrides=list(overrides))


def _recipe_of(experiment: str) -> str:
    return "tracin" if experiment.startswith("tracin_") else "fast_dapo"


def _validate(config: DictConfig) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    if "curriculum" in config:
        resolve_group_size(config)
        read_settings(config)
    read_tracin_settings(config)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    # verl's actor wants a micro-batch size, which depends on the user's GPUs.
    if not config.actor_rollout_ref.actor.use_dynamic_bsz:
        config.actor_rollout_ref.actor.use_dynamic_bsz = True
    validate_config(config, need_reference_policy(config), need_critic(config))


@pytest.mark.parametrize("backend", [[], ["+backend=cpu"]], ids=["accelerator", "cpu"])
@pytest.mark.parametrize("recipe", ["fast_dapo", "tracin"])
def test_every_recipe_composes_and_validates(recipe: str, backend: list[str]):
    _validate(_compose(*backend, "tracin.validation_files=influence.parquet", recipe=recipe))


@pytest.mark.parametrize("name", ["golden_redaction", "golden_redaction_cpu"])
def test_golden_redaction_composes_and_validates(name: str):
    config = _compose("data.train_files=tasks.parquet", "actor_rollout_ref.model.path=model", recipe=name)
    assert read_golden_settings(config).entries_per_update == 4
    assert config.trainer.v1.trainer_mode == "golden_redaction"
    assert config.trainer.device == ("cpu" if name.endswith("_cpu") else "cuda")
    assert config.actor_rollout_ref.actor.optim.optimizer == "SGD"
    _validate(config)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_validates(experiment: str):
    _validate(_compose("+backend=cpu", f"+experiment={experiment}", recipe=_recipe_of(experiment)))


def test_there_are_experiments_to_check():
    assert {"arithmetic_demo", "tracin_arithmetic", "tracin_toxicity"} <= set(EXPERIMENTS)


def test_the_cpu_backend_is_one_group_and_nothing_else():
    config = _compose("+backend=cpu")
    assert config.trainer.device == "cpu"
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.VERL_PLATFORM == "cpu"
    assert config.actor_rollout_ref.actor.strategy == "fsdp2"
    assert config.actor_rollout_ref.rollout.dtype == "float32"


def test_the_curriculums_keys_are_those_that_the_settings_know():
    assert set(_compose().curriculum) == set(CURRICULUM_KEYS) - {"n", "n_continue"}


def test_every_key_of_ours_has_a_comment_above_it():
    lines = (ROOT / "configs/fast_dapo.yaml").read_text().splitlines()
    curriculum = lines[lines.index("curriculum:") + 1 : lines.index("data:")]
    tracin = (ROOT / "configs/signal/tracin.yaml").read_text().splitlines()
    for previous, line in [*itertools.pairwise(curriculum), *itertools.pairwise(tracin)]:
        is_key = ":" in line and not line.strip().startswith("#")
        if is_key and line.strip() not in ("selection:", "validation:"):
            assert previous.strip().startswith("#"), f"no comment above {line.strip()!r}"
