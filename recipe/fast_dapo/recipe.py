"""Describes Fast DAPO to the shared code."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from omegaconf import DictConfig

from recipe.fast_dapo.metric_glossary import METRICS
from recipe.fast_dapo.run_files import FILES
from verl_ext.launch.compatibility import (
    MANAGER,
    OWN_MANAGER,
    Unsupported,
    is_colocated,
    is_no_manager_of_ours,
    is_none_of,
    is_set,
)
from verl_ext.launch.dry_run import step_rows
from verl_ext.launch.model_backend import TORCHTITAN
from verl_ext.launch.preflight.verdicts import Success
from verl_ext.launch.recipe import Recipe

# Updates per batch of single rollouts that did not collapse in an asynchronous trainer (docs/benchmarks/
# fast_dapo_safety.md).
MOST_LATE_UPDATES = 2

# verl's estimators that give a group of equal rewards no advantage: without such groups they learn the same.
CENTRED_IN_GROUPS = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized")


def check_settings(config: DictConfig) -> None:
    """Give verl the group size; reject wrong curriculum settings.

    Raises:
        ConfigError: names every problem, with what to change.
    """
    # Not imported above: pages and docs read this module and would load SciPy.
    from recipe.fast_dapo.settings import read_settings, resolve_group_size

    resolve_group_size(config)
    read_settings(config)


def adapt(config: DictConfig, given: Collection[str]) -> Iterator[str]:
    """Train on mixed prompts only if a script for verl names an estimator that learns nothing from the others."""
    node, data = config.curriculum, config.data
    chosen = any(name in given for name in ("curriculum.baseline", "curriculum.train_on"))
    if not node.enable or node.baseline != "posterior" or chosen:
        return
    estimator = config.algorithm.adv_estimator
    if estimator not in CENTRED_IN_GROUPS:
        return
    node.baseline, node.train_on = "estimator", "qualified"
    # Some of the screened prompts are dropped: with fewer in screening than a batch has, it would take many rounds.
    if data.gen_batch_size is not None:
        data.gen_batch_size = max(data.gen_batch_size, data.train_batch_size)
    yield (
        f"algorithm.adv_estimator={estimator}: Fast DAPO keeps it and trains in two phases, on prompts with mixed "
        "results (curriculum.baseline=estimator curriculum.train_on=qualified). Without adv_estimator it trains on all "
        "prompts, with its own estimator"
    )


def notes(config: DictConfig) -> Iterator[str]:
    """What `rollout.n` is here: in verl, the size of a group."""
    node = config.curriculum
    if not node.enable or not node.n_continue:
        return
    screening = f"up to {node.n}" if node.screening == "sequential" else node.n
    if node.train_on == "all":
        others = "the others are trained on as well, with those of their screening"
    elif node.correction == "continuation_only":
        others = f"only the last {node.n_continue} are trained on, and the others are dropped"
    else:
        others = "the others are dropped"
    yield (
        f"rollout.n={node.n}: {screening} rollouts screen each prompt, and one with mixed results gets "
        f"{node.n + node.n_continue} in all (rollout.n_continue={node.n_continue}); {others}"
    )


def dry_run_rows(config: DictConfig) -> Iterator[tuple[str, str]]:
    """A round of screening, then the step."""
    curriculum, data = config.curriculum, config.data
    if curriculum.enable:
        screened = data.gen_batch_size or data.train_batch_size
        if curriculum.train_on == "all":  # a round fetches only the prompts that the batch lacks
            screened = min(screened, data.train_batch_size)
        yield "a round", f"{screened:,} prompts x {curriculum.n} = {screened * curriculum.n:,} screening rollouts"
    yield from step_rows(config)
    if curriculum.enable and curriculum.train_on == "all" and curriculum.n_continue:
        yield "", f"at most: prompts whose screening is not mixed are trained on with {curriculum.n} rollouts"


def warnings(config: DictConfig) -> Iterator[str]:
    """Single rollouts with many updates on late batches, which collapsed in the safety suite."""
    mode, actor = config.trainer.v1.trainer_mode, config.actor_rollout_ref.actor
    updates = actor.ppo_epochs * max(1, config.data.train_batch_size // actor.ppo_mini_batch_size)
    node = config.curriculum
    is_single = node.enable and (node.get("n"), node.get("n_continue")) == (1, 0)
    if mode != "sync" and is_single and updates > MOST_LATE_UPDATES:
        yield (
            f"{updates} updates per batch of single rollouts with trainer.v1.trainer_mode={mode}: with 4, one of two "
            f"runs of the safety suite collapsed on late rollouts, with {MOST_LATE_UPDATES} none of four. Lower "
            "actor_rollout_ref.actor.ppo_epochs, or set actor_rollout_ref.rollout.n=2"
        )


def success(config: DictConfig) -> Success | None:
    """The curriculum's success metric and threshold."""
    node = config.curriculum
    if not node.enable:
        return None
    return Success(
        node.success_metric, node.success_threshold, "curriculum.success_metric", "curriculum.success_threshold"
    )


def _with_curriculum(is_asked: Callable[[Any, DictConfig], bool]) -> Callable[[Any, DictConfig], bool]:
    return lambda value, config: bool(config.curriculum.enable) and is_asked(value, config)


def _with_posterior(is_asked: Callable[[Any, DictConfig], bool]) -> Callable[[Any, DictConfig], bool]:
    return _with_curriculum(
        lambda value, config: config.curriculum.predictor == "posterior" and is_asked(value, config)
    )


UNSUPPORTED = (
    Unsupported(
        MANAGER,
        _with_curriculum(is_no_manager_of_ours),
        f"the curriculum asks for reports of finished prompts. Extend {OWN_MANAGER}, or set curriculum.enable=false",
    ),
    Unsupported(
        "reward.reward_model.enable",
        _with_curriculum(is_colocated),
        "a reward model on the actor's devices computes rewards only after the curriculum needs them. Give it its own "
        "devices: reward.reward_model.enable_resource_pool=true with n_gpus_per_node and nnodes; or set "
        "curriculum.enable=false",
    ),
    Unsupported(
        "trainer.v1.sync.parameter_sync_step",
        _with_curriculum(is_none_of(1)),
        "the curriculum collects a whole batch. Leave it at 1: data.train_batch_size / actor.ppo_mini_batch_size is "
        "the number of updates per batch",
    ),
    Unsupported(
        "trainer.v1.separate_async.hybrid_rollout.enable_switch",
        # Without engines on the trainer's devices verl ignores it, with a warning.
        _with_curriculum(lambda value, config: bool(value) and bool(config.actor_rollout_ref.hybrid_engine)),
        "verl lends the trainer's devices by its own count of finished prompts, which the curriculum does not update. "
        "Set it to false, or curriculum.enable=false",
    ),
    Unsupported(
        "skip.rollout_tq.enable",
        _with_curriculum(is_set),
        "the curriculum decides what is generated. Set skip.rollout_tq.enable=false, or curriculum.enable=false",
    ),
    Unsupported(
        "trainer.v1.sampler.max_off_policy_threshold",
        _with_curriculum(is_none_of(8)),
        "curriculum.max_staleness limits the age of trained rollouts. Leave it at verl's default, 8",
    ),
    Unsupported(
        "trainer.v1.sampler.sync_refill_failed_groups",
        _with_curriculum(is_set),
        "the curriculum repeats prompts whose generation failed. Leave it at false",
    ),
    Unsupported(
        "curriculum.max_num_gen_batches",
        _with_curriculum(lambda value, config: bool(value) and config.model_engine == TORCHTITAN.name),
        "at this limit a checkpoint is written, without weights for verl's torchtitan engine. Leave it at 0",
    ),
    Unsupported(
        "data.sampler.class_path",
        _with_posterior(is_set),
        "curriculum.predictor=posterior chooses the prompts. Leave out data.sampler, or set curriculum.predictor=none",
    ),
    Unsupported(
        "data.shuffle",
        _with_posterior(is_none_of(True)),
        "curriculum.predictor=posterior chooses the prompts. Leave it at true, or set curriculum.predictor=none",
    ),
)


RECIPE = Recipe(
    name="fast_dapo",
    title="Fast DAPO",
    node="curriculum",
    check_settings=check_settings,
    warnings=warnings,
    notes=notes,
    adapt=adapt,
    dry_run_rows=dry_run_rows,
    success=success,
    figures={"qualified": ("curriculum/qualified_share", ".0%")},
    glossary=METRICS,
    files=FILES,
    unsupported=UNSUPPORTED,
    pages="recipe.fast_dapo.pages",
)
