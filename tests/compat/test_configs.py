"""Every configuration composes, and passes our checks and verl's."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.fast_dapo.settings import CurriculumNode, read_settings, resolve_group_size
from recipe.golden_redaction import checks as golden_checks
from recipe.golden_redaction.settings import read_settings as read_golden_settings
from recipe.tracin import checks as tracin_checks
from recipe.tracin.settings import read_settings as read_tracin_settings

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "configs/experiment").glob("*.yaml"))
ON_CPU = (
    "arithmetic_demo",
    "arithmetic_two_phase",
    "smollm2_golden_cpu",
    "smollm2_reasoning_gym_cpu",
    "smollm2_svamp_cpu",
    "smollm2_toxicity_cpu",
    "tracin_arithmetic",
    "tracin_toxicity",
)
# Combined with the configuration of a model.
BASELINES = ("dapo17k_dapo", "dapo17k_grpo", "dapo17k_rloo", "dapo17k_two_phase")
# Combined with any run for GPUs.
SMALLER = ("one_gpu",)
ON_GPU = tuple(name for name in EXPERIMENTS if name not in (*ON_CPU, *BASELINES, *SMALLER))
# Mappings that are passed to other libraries unchanged.
FREE_FORM = ("override_config", "reward_kwargs", "apply_chat_template_kwargs", "ray_init")


def _compose(*overrides: str, recipe: str = "fast_dapo") -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(recipe, overrides=list(overrides))


def _recipe_of(experiment: str) -> str:
    """The configuration that a command adds the experiment to."""
    by_prefix = {"tracin_": "tracin", "smollm2_toxicity": "tracin"}
    by_prefix |= {"golden_": "golden_redaction", "smollm2_golden": "golden_redaction"}
    return next((recipe for prefix, recipe in by_prefix.items() if experiment.startswith(prefix)), "fast_dapo")


def _resolved(config: DictConfig) -> DictConfig:
    resolve_group_size(config)
    return config


def _rollouts_and_updates(config: DictConfig) -> tuple[int, int]:
    """Rollouts and updates per step."""
    batch, mini_batch = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    return batch * config.actor_rollout_ref.rollout.n, batch // mini_batch


def _validate(config: DictConfig) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    if "curriculum" in config:
        resolve_group_size(config)
        read_settings(config)
    tracin = read_tracin_settings(config)
    if tracin.enable:
        assert not tracin_checks._problems(config, tracin)
    if "golden" in config:
        read_golden_settings(config)
        assert not golden_checks._problems(config)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    validate_config(config, need_reference_policy(config), need_critic(config))


@pytest.mark.parametrize("backend", [[], ["+backend=cpu"]], ids=["accelerator", "cpu"])
@pytest.mark.parametrize("recipe", ["fast_dapo", "tracin"])
def test_every_recipe_composes_and_validates(recipe: str, backend: list[str]):
    _validate(_compose(*backend, "tracin.validation_files=influence.parquet", recipe=recipe))


def test_the_default_is_choose():
    settings = read_settings(_resolved(_compose()))
    assert (settings.predictor, settings.baseline) == ("posterior", "posterior")
    assert (settings.controller.schedule, settings.controller.train_on) == ("streaming", "all")
    assert (settings.controller.n, settings.controller.n_continue) == (2, 2)


def test_two_phases_are_one_word_away():
    _validate(config := _compose("+signal=two_phase"))
    settings = read_settings(config)
    assert (settings.predictor, settings.baseline, config.algorithm.adv_estimator) == ("none", "estimator", "rloo")
    assert (settings.controller.schedule, settings.controller.train_on) == ("merged", "qualified")
    assert (settings.controller.n, settings.controller.n_continue) == (4, 12)


def test_plain_sampling_is_one_word_away():
    _validate(config := _compose("+signal=plain"))
    assert not read_settings(config).enable
    assert config.actor_rollout_ref.rollout.n == 16
    assert config.algorithm.adv_estimator == "rloo"


def test_graded_successes_compose_and_validate():
    config = _compose("curriculum.success_threshold=null", "curriculum.band=[0.05,0.95]")
    _validate(config)
    assert config.curriculum.success_threshold is None
    assert read_settings(config).controller.grading.is_graded


@pytest.mark.parametrize("name", ["golden_redaction", "golden_redaction_cpu"])
def test_golden_redaction_composes_and_validates(name: str):
    config = _compose("data.train_files=tasks.parquet", "actor_rollout_ref.model.path=model", recipe=name)
    assert read_golden_settings(config).entries_per_update == 4
    assert config.trainer_class == "recipe.golden_redaction.trainer.GoldenTrainer"
    assert config.trainer.device == ("cpu" if name.endswith("_cpu") else "cuda")
    assert config.actor_rollout_ref.actor.optim.optimizer == "SGD"
    _validate(config)


@pytest.mark.parametrize("experiment", ON_CPU)
def test_every_experiment_of_the_cpu_composes_and_validates(experiment: str):
    _validate(_compose("+backend=cpu", f"+experiment={experiment}", recipe=_recipe_of(experiment)))


@pytest.mark.parametrize("experiment", ON_GPU)
def test_every_experiment_of_a_gpu_composes_and_validates_as_it_is(experiment: str):
    config = _compose(f"+experiment={experiment}", recipe=_recipe_of(experiment))
    _validate(config)
    assert config.trainer.device == "cuda"
    # Its own run folder, and where the file says so, one per seed.
    assert config.trainer.experiment_name in (experiment, f"{experiment}_seed{config.data.seed}")
    actor, model, rollout = (config.actor_rollout_ref[name] for name in ("actor", "model", "rollout"))
    assert actor.strategy == config.actor_rollout_ref.ref.strategy == "fsdp2"
    assert model.override_config.attn_implementation == "flash_attention_2"
    assert (model.use_remove_padding, model.enable_gradient_checkpointing, rollout.free_cache_engine) == (True,) * 3
    # verl refuses a row that is longer than the budget of a micro-batch.
    if "golden" not in config:
        longest = config.data.max_prompt_length + config.data.max_response_length
        assert longest <= actor.ppo_max_token_len_per_gpu <= rollout.log_prob_max_token_len_per_gpu


@pytest.mark.parametrize("model", [name for name in ON_GPU if name.startswith("dapo17k_")])
@pytest.mark.parametrize("baseline", BASELINES)
def test_every_baseline_goes_over_every_model(baseline: str, model: str):
    fast, config = _compose(f"+experiment={model}"), _compose(f"+experiment=[{model},{baseline}]")
    _validate(config)
    assert config.curriculum.enable == (baseline == "dapo17k_two_phase")
    assert config.actor_rollout_ref.model.path == fast.actor_rollout_ref.model.path
    assert config.trainer.experiment_name == baseline
    assert config.algorithm.filter_groups.enable == (baseline == "dapo17k_dapo")
    assert config.algorithm.adv_estimator == ("grpo" if baseline in ("dapo17k_dapo", "dapo17k_grpo") else "rloo")
    # The same rollouts and updates per step as Fast DAPO has at most.
    assert _rollouts_and_updates(_resolved(config)) == _rollouts_and_updates(_resolved(fast))


@pytest.mark.parametrize("model", ON_GPU)
def test_every_run_goes_on_one_gpu(model: str):
    config = _compose(f"+experiment=[{model},one_gpu]", recipe=_recipe_of(model))
    _validate(config)
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (1, 1)
    assert config.actor_rollout_ref.actor.fsdp_config.optimizer_offload


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiments_set_only_keys_that_exist(experiment: str):
    """A key that nothing reads is silently added by a configuration file, unlike on the command line."""
    recipe = _compose(*(["+backend=cpu"] if experiment in ON_CPU else []), recipe=_recipe_of(experiment))

    def unknown(node: Mapping[str, Any], known: DictConfig, where: str) -> Iterator[str]:
        for key, value in node.items():
            if key in FREE_FORM:
                continue
            if key not in known:
                yield f"{where}{key}"
            elif isinstance(value, Mapping):
                yield from unknown(value, known[key], f"{where}{key}.")

    content = yaml.safe_load((ROOT / f"configs/experiment/{experiment}.yaml").read_text())
    content.pop("defaults", None)
    assert list(unknown(content, recipe, "")) == []


def test_there_are_experiments_to_check():
    assert {*ON_CPU, *BASELINES, *SMALLER} <= set(EXPERIMENTS)
    assert {"dapo17k_qwen2_5_1_5b", "golden_arc_qwen3_4b", "tracin_toxicity_qwen2_5_1_5b"} <= set(ON_GPU)


def test_the_cpu_backend_is_one_group_and_nothing_else():
    config = _compose("+backend=cpu")
    assert config.trainer.device == "cpu"
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.VERL_PLATFORM == "cpu"
    assert config.actor_rollout_ref.actor.strategy == "fsdp2"
    assert config.actor_rollout_ref.rollout.dtype == "float32"


def test_the_curriculums_keys_are_those_that_the_settings_know():
    settable = {name for name, field in CurriculumNode.model_fields.items() if not field.exclude}
    assert set(_compose().curriculum) == settable


def test_every_key_of_ours_has_a_comment_above_it():
    for name in ("curriculum", "golden", "tracin"):
        lines = (ROOT / f"configs/signal/{name}.yaml").read_text(encoding="utf-8").splitlines()
        for previous, line in itertools.pairwise(lines):
            is_key = ":" in line and not line.strip().startswith("#")
            if is_key and not line.endswith(":"):
                assert previous.strip().startswith("#"), f"{name}.yaml: no comment above {line.strip()!r}"


def test_blank_lines_of_a_configuration_stand_between_its_sections_only():
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        inside = [
            number
            for number, (line, below) in enumerate(itertools.pairwise(lines), start=1)
            if not line.strip() and (not below.strip() or below.startswith(" "))
        ]
        assert not inside, f"{path.relative_to(ROOT)}: blank lines inside of a section: {inside}"
