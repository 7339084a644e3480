"""What verl has and a recipe does not go with is refused, row by row; the documented matrix has the same rows."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from verl_ext.core.errors import ConfigError
from verl_ext.launch.compatibility import SHARED, check_compatibility
from verl_ext.launch.recipe import recipes

ROOT = Path(__file__).resolve().parents[2]
RECIPES = {recipe.name: recipe for recipe in recipes()}
VERLS_MANAGER = "verl.trainer.ppo.v1.AgentLoopManagerTQ"
MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
POSTERIOR = "curriculum.schedule=streaming curriculum.predictor=posterior"
WITH_TRACIN = "tracin.enable=true tracin.validation.strategy=fixed"

# (recipe, overrides, how the sentence begins, what it says to do)
REFUSED = [
    *((name, f"trainer.v1.trainer_mode={mode}", "trainer.v1.trainer_mode", "Leave it out")
      for name in RECIPES for mode in ("sync", "colocate_async", "separate_async")),
    *((name, *case) for name in RECIPES for case in (
        ("trainer.use_v1=false", "trainer.use_v1=False", "trainer.use_v1=true"),
        ("actor_rollout_ref.hybrid_engine=false", "actor_rollout_ref.hybrid_engine", "hybrid_engine=true"),
        ("actor_rollout_ref.rollout.name=sglang", "actor_rollout_ref.rollout.name=sglang", "rollout.name=vllm"),
        ("actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.strategy=fsdp", "strategy=fsdp2"),
        ("actor_rollout_ref.actor.checkpoint.async_save=true", "actor_rollout_ref.actor.checkpoint", "async_save"),
        ("algorithm.rollout_correction.bypass_mode=true", "algorithm.rollout_correction", "max_probs_diff=null"),
        ("reward.reward_model.enable=true", "reward.reward_model.enable=True", "enable_resource_pool=true"),
    )),
    ("fast_dapo", f"{MANAGER}={VERLS_MANAGER}", MANAGER, "SignalAgentLoopManager"),
    ("fast_dapo", f"{MANAGER}=null", MANAGER, "SignalAgentLoopManager"),
    ("fast_dapo", "+trainer.v1.sync.parameter_sync_step=2", "trainer.v1.sync", "ppo_mini_batch_size"),
    ("fast_dapo", "skip.rollout_tq.enable=true", "skip.rollout_tq.enable", "curriculum.enable=false"),
    ("fast_dapo", "trainer.v1.sampler.max_off_policy_threshold=2", "trainer.v1.sampler", "curriculum.max_staleness"),
    ("fast_dapo", "trainer.v1.sampler.max_off_policy_strategy=wait", "trainer.v1.sampler", "max_staleness"),
    ("fast_dapo", "trainer.v1.sampler.sync_refill_failed_groups=true", "trainer.v1.sampler", "Leave it at false"),
    ("fast_dapo", f"{POSTERIOR} data.shuffle=false", "data.shuffle=False", "curriculum.predictor=none"),
    ("fast_dapo", f"{POSTERIOR} +data.sampler.class_path=mine.py", "data.sampler", "curriculum.predictor=none"),
    ("tracin", f"{WITH_TRACIN} {MANAGER}={VERLS_MANAGER}", MANAGER, "strategy=in_batch"),
    ("golden_redaction", "actor_rollout_ref.actor.ppo_epochs=2", "actor_rollout_ref.actor.ppo_epochs=2", "at 1"),
    ("golden_redaction", "actor_rollout_ref.actor.entropy_coeff=0.01", "actor_rollout_ref.actor.entropy", "at 0"),
    ("golden_redaction", "algorithm.adv_estimator=gae", "algorithm.adv_estimator=gae", "at grpo"),
    ("golden_redaction", "algorithm.use_kl_in_reward=true", "algorithm.use_kl_in_reward", "at false"),
    ("golden_redaction", "algorithm.filter_groups.enable=true", "algorithm.filter_groups.enable", "at false"),
    ("golden_redaction", "critic.enable=true", "critic.enable", "at false"),
    ("golden_redaction", "reward.custom_reward_function.path=mine.py", "reward.custom_reward_function", "the sandbox"),
    ("golden_redaction", "reward.reward_model.enable=true", "reward.reward_model.enable", "the sandbox judges"),
    ("golden_redaction", "trainer.rollout_data_dir=dumps", "trainer.rollout_data_dir=dumps", "verl_ext.report trace"),
    ("golden_redaction", "trainer.validation_data_dir=dumps", "trainer.validation_data_dir", "golden_probes.jsonl"),
    ("golden_redaction", "trainer.log_val_generations=4", "trainer.log_val_generations=4", "golden_probes.jsonl"),
]  # fmt: skip
ACCEPTED = [
    *((name, "") for name in RECIPES),
    *((name, "algorithm.rollout_correction.bypass_mode=true engine_guard.max_probs_diff=null") for name in RECIPES),
    ("fast_dapo", "reward.reward_model.enable=true reward.reward_model.enable_resource_pool=true"),
    ("fast_dapo", f"curriculum.enable=false {MANAGER}={VERLS_MANAGER}"),
    ("fast_dapo", f"{MANAGER}=verl_ext.serving.agent_loop.SignalAgentLoopManager"),
    ("fast_dapo", "curriculum.enable=false +trainer.v1.sync.parameter_sync_step=2"),
    ("fast_dapo", "data.shuffle=false"),
    ("fast_dapo", "trainer.v1.trainer_mode=half_first"),
    ("tracin", f"tracin.enable=true tracin.validation.strategy=in_batch {MANAGER}={VERLS_MANAGER}"),
]


def _check(name: str, overrides: str) -> None:
    config = _compose(name, overrides)
    joined = [recipe for recipe in RECIPES.values() if recipe.name == name or recipe.node in config]
    check_compatibility(config, [row for recipe in joined for row in recipe.unsupported])


def _compose(name: str, overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(name, overrides=overrides.split())


@pytest.mark.parametrize(("name", "overrides", "key", "remedy"), REFUSED)
def test_what_does_not_go_with_a_recipe_is_refused(name: str, overrides: str, key: str, remedy: str):
    with pytest.raises(ConfigError) as caught:
        _check(name, overrides)
    lines = [line for line in str(caught.value).splitlines() if line.startswith(f"  - {key}")]
    assert any(remedy in line for line in lines), caught.value


@pytest.mark.parametrize(("name", "overrides"), ACCEPTED)
def test_what_goes_with_it_is_not(name: str, overrides: str):
    _check(name, overrides)


def test_every_row_is_tried():
    tried = {(name, key) for name, _, key, _ in REFUSED}
    for name, recipe in RECIPES.items():
        for row in (*SHARED, *recipe.unsupported):
            assert any(row.key.startswith(key.partition("=")[0]) for who, key in tried if who == name), row.key


def test_every_problem_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        _check("fast_dapo", "trainer.v1.trainer_mode=sync actor_rollout_ref.rollout.name=sglang")
    assert str(caught.value).count("\n  - ") == 2


def test_every_row_is_documented():
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = [*SHARED, *(row for recipe in RECIPES.values() for row in recipe.unsupported)]
    assert [row.key for row in rows if f"`{row.key}" not in text] == []
