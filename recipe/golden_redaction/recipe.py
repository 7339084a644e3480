"""What golden redaction is to the code that recipes share."""

from collections.abc import Callable, Iterator
from typing import Any

from omegaconf import DictConfig

from recipe.golden_redaction.checks import check_config
from recipe.golden_redaction.metric_glossary import METRICS
from recipe.golden_redaction.run_files import FILES
from verl_ext.launch.compatibility import Unsupported, is_none_of, is_one_of, is_set
from verl_ext.launch.dry_run import num_ranks
from verl_ext.launch.recipe import Recipe


def dry_run_rows(config: DictConfig) -> Iterator[tuple[str, str]]:
    """A step in states, actions and rollouts, and the run."""
    golden, ranks = config.golden, num_ranks(config)
    states = golden.entries_per_update * golden.sync_every
    most = states * golden.credit.max_actions * golden.credit.rollouts_per_action
    yield "a step", f"{states} states, at most {golden.credit.max_actions} actions each, {most:,} rollouts in all"
    yield (
        "",
        f"{golden.sync_every} x {golden.entries_per_update} of them to an update, at most "
        f"{-(-golden.entries_per_update // ranks)} on each of {ranks} ranks",
    )
    steps = config.trainer.total_training_steps
    yield "the run", f"{steps:,} steps, {steps * golden.sync_every:,} updates, {steps * states:,} states"


def _nothing_of_it(key: str, is_asked: Callable[[Any, DictConfig], bool], default: str) -> Unsupported:
    sentence = f"golden redaction makes its own steps, in which this does nothing. Leave it at {default}"
    return Unsupported(key, is_asked, sentence)


UNSUPPORTED = (
    _nothing_of_it("actor_rollout_ref.actor.ppo_epochs", is_none_of(1), "1"),
    _nothing_of_it("actor_rollout_ref.actor.entropy_coeff", is_set, "0"),
    _nothing_of_it("algorithm.adv_estimator", is_one_of("gae"), "grpo"),
    _nothing_of_it("algorithm.use_kl_in_reward", is_set, "false"),
    _nothing_of_it("algorithm.filter_groups.enable", is_set, "false"),
    _nothing_of_it("critic.enable", is_set, "false"),
    _nothing_of_it("reward.custom_reward_function.path", is_set, "null: the sandbox judges"),
    _nothing_of_it("reward.reward_model.enable", is_set, "false: the sandbox judges"),
    _nothing_of_it("trainer.rollout_data_dir", is_set, "null: `python -m verl_ext.report trace` shows all rollouts"),
    _nothing_of_it("trainer.validation_data_dir", is_set, "null: golden_probes.jsonl has the probes"),
    _nothing_of_it("trainer.log_val_generations", is_set, "0: golden_probes.jsonl has the probes"),
)


RECIPE = Recipe(
    name="golden_redaction",
    title="Golden redaction",
    node="golden",
    check_settings=check_config,
    paths=("golden.records.warm_start",),
    # Its prompts begin the answer, and golden.limits leaves long ones out: check_config measures them.
    scores_rollouts=False,
    dry_run_rows=dry_run_rows,
    phases={
        "sandbox": ("sandbox",),
        "log-probs": ("log_prob_after", "settle", "engine_before", "engine_after"),
    },
    glossary=METRICS,
    files=FILES,
    unsupported=UNSUPPORTED,
    pages="recipe.golden_redaction.pages",
)
