"""Describes golden redaction to the shared code."""

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig

from recipe.golden_redaction.checks import check_config
from recipe.golden_redaction.metric_glossary import METRICS
from recipe.golden_redaction.run_files import FILES
from verl_ext.cluster.pools import num_ranks
from verl_ext.launch.compatibility import MANAGER, OWN_MANAGER, Unsupported, is_none_of, is_set
from verl_ext.launch.recipe import Recipe


def dry_run_rows(config: DictConfig) -> Iterator[tuple[str, str]]:
    """The plan of a step (states, actions, rollouts) and of the run."""
    golden, ranks = config.golden, num_ranks(config)
    states = golden.entries_per_update * golden.sync_every
    most = states * golden.credit.max_actions * golden.credit.rollouts_per_action
    yield "a step", f"{states} states, at most {golden.credit.max_actions} actions each, {most:,} rollouts in all"
    yield (
        "",
        f"{golden.sync_every} x {golden.entries_per_update} per update, at most "
        f"{-(-golden.entries_per_update // ranks)} on each of {ranks} ranks",
    )
    steps = config.trainer.total_training_steps
    yield "the run", f"{steps:,} steps, {steps * golden.sync_every:,} updates, {steps * states:,} states"


def _nothing_of_it(key: str, default: Any, instead: str = "") -> Unsupported:
    """An option without effect here, with its replacement."""
    sentence = f"golden redaction has its own step, in which this has no effect. Leave it at {_yaml(default)}{instead}"
    return Unsupported(key, is_set if default in (None, False, 0) else is_none_of(default), sentence)


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_JUDGE, _PROBES = ": golden.verifier judges", ": golden_probes.jsonl has the probes"

UNSUPPORTED = (
    _nothing_of_it("data.train_batch_size", 1, ": golden.entries_per_update is the number of states per update"),
    _nothing_of_it("data.gen_batch_size", None, ": golden.entries_per_update is the number of states per update"),
    _nothing_of_it("data.sampler.class_path", None, ": golden.redaction.order is the order of the problems"),
    _nothing_of_it("data.custom_cls.path", None, ": golden.verifier decides how rows are read"),
    _nothing_of_it("data.val_max_samples", -1, _PROBES),
    _nothing_of_it(f"{_ROLLOUT}.n", 1, ": golden.credit.rollouts_per_action is the number of rollouts"),
    _nothing_of_it(f"{_ROLLOUT}.val_kwargs.n", 1, ": golden.probe.rollouts is the number of a probe's rollouts"),
    _nothing_of_it(f"{_ROLLOUT}.val_kwargs.temperature", 0, ": probes sample as training does"),
    _nothing_of_it(f"{_ROLLOUT}.multi_turn.enable", False),
    _nothing_of_it(f"{_ROLLOUT}.multi_turn.tool_config_path", None),
    _nothing_of_it(f"{_ROLLOUT}.multi_turn.function_tool_path", None),
    _nothing_of_it(f"{_ROLLOUT}.agent.default_agent_loop", "single_turn_agent"),
    _nothing_of_it(f"{_ROLLOUT}.agent.agent_loop_config_path", None),
    _nothing_of_it("trainer.v1.trainer_mode", "sync"),
    Unsupported(
        "model_engine",
        is_none_of("dp"),
        "single tokens are trained inside verl's FSDP2 engine. Leave it at dp",
    ),
    Unsupported(
        f"{_ACTOR}.strategy",
        lambda value, config: config.model_engine == "dp" and value != "fsdp2",
        "single tokens are trained inside verl's FSDP2 engine. Leave it at fsdp2",
    ),
    Unsupported(
        f"{_ROLLOUT}.name",
        is_none_of("vllm"),
        "only vLLM returns the log-probs of tokens that it did not sample. Leave it at vllm",
    ),
    Unsupported(
        MANAGER,
        lambda value, _: bool(value) and value != OWN_MANAGER,
        f"golden redaction has its own step, in which this has no effect. Leave it at {OWN_MANAGER}",
    ),
    _nothing_of_it("trainer.v1.sampler.custom_sampler.path", None),
    _nothing_of_it("trainer.v1.sampler.sync_refill_failed_groups", False),
    _nothing_of_it("trainer.v1.sync.parameter_sync_step", 1, ": golden.sync_every is the number of updates per step"),
    _nothing_of_it("skip.rollout_tq.enable", False),
    _nothing_of_it(f"{_ACTOR}.ppo_epochs", 1),
    _nothing_of_it(f"{_ACTOR}.clip_ratio", 0.2),
    _nothing_of_it(f"{_ACTOR}.clip_ratio_low", 0.2),
    _nothing_of_it(f"{_ACTOR}.clip_ratio_high", 0.2),
    _nothing_of_it(f"{_ACTOR}.clip_ratio_c", 3.0),
    _nothing_of_it(f"{_ACTOR}.loss_agg_mode", "token-mean", ": golden.targets.reduction is the reduction of the loss"),
    _nothing_of_it(f"{_ACTOR}.policy_loss.loss_mode", "vanilla"),
    _nothing_of_it(f"{_ACTOR}.entropy_coeff", 0),
    _nothing_of_it(f"{_ACTOR}.kl_loss_coef", 0.001),
    _nothing_of_it("algorithm.adv_estimator", "grpo"),
    _nothing_of_it("algorithm.gamma", 1.0),
    _nothing_of_it("algorithm.lam", 1.0),
    _nothing_of_it("algorithm.norm_adv_by_std_in_grpo", True),
    _nothing_of_it("algorithm.use_kl_in_reward", False),
    _nothing_of_it("algorithm.filter_groups.enable", False),
    _nothing_of_it("algorithm.rollout_correction.bypass_mode", False),
    _nothing_of_it("algorithm.rollout_correction.rollout_is", None),
    _nothing_of_it("algorithm.rollout_correction.rollout_rs", None),
    _nothing_of_it("critic.enable", False),
    _nothing_of_it("distillation.enabled", False),
    Unsupported(
        "reward.custom_reward_function.path",
        lambda value, config: bool(value) and config.golden.verifier == "sandbox",
        "the sandbox judges programs. Leave it at null, or set golden.verifier=reward",
    ),
    _nothing_of_it("reward.reward_manager.name", "naive", _JUDGE),
    _nothing_of_it("reward.reward_model.enable", False, _JUDGE),
    _nothing_of_it("trainer.rollout_data_dir", None, ": `python -m verl_ext.report trace` shows all rollouts"),
    _nothing_of_it("trainer.validation_data_dir", None, _PROBES),
    _nothing_of_it("trainer.log_val_generations", 0, _PROBES),
)


RECIPE = Recipe(
    name="golden_redaction",
    title="Golden redaction",
    node="golden",
    check_settings=check_config,
    paths=("golden.records.warm_start", "golden.reward.fresh_pairs"),
    # The prompts include the beginning of the answer, and golden.limits skips long ones: check_config measures them.
    scores_rollouts=False,
    dry_run_rows=dry_run_rows,
    phases={
        "sandbox": ("sandbox",),
        "log-probs": ("log_prob_after", "settle", "engine_before", "engine_after"),
        "waiting for visits": ("wait_for_visits",),
    },
    glossary=METRICS,
    files=FILES,
    unsupported=UNSUPPORTED,
    pages="recipe.golden_redaction.pages",
)
