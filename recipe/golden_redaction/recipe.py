"""What golden redaction is to the code that recipes share."""

from collections.abc import Iterator

from omegaconf import DictConfig

from recipe.golden_redaction.checks import check_config
from recipe.golden_redaction.metric_glossary import METRICS
from recipe.golden_redaction.run_files import FILES
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


RECIPE = Recipe(
    name="golden_redaction",
    title="Golden redaction",
    node="golden",
    check_settings=check_config,
    paths=("golden.records.warm_start",),
    # Its prompts begin the answer, and golden.limits leaves long ones out: check_config measures them.
    check_lengths=False,
    dry_run_rows=dry_run_rows,
    phases={
        "sandbox": ("sandbox",),
        "log-probs": ("log_prob_after", "settle", "engine_before", "engine_after"),
    },
    glossary=METRICS,
    files=FILES,
    pages="recipe.golden_redaction.pages",
)
