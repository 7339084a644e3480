"""The settings of a Fast DAPO run: read from the configuration once, checked once, before Ray starts.

Pure: needs no verl. `resolve_group_size` is where this plugin's two numbers of rollouts become verl's one.
"""

import difflib
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from recipe.fast_dapo.curriculum_records import CurriculumSettings
from verl_ext.errors import ConfigError

SCHEDULES = ("merged",)
CURRICULUM_KEYS = (
    "enable",
    "schedule",
    "max_num_gen_batches",
    "max_buffer_prompts",
    "max_staleness",
    "success_metric",
    "success_threshold",
    "record_prompts",
    # Written by resolve_group_size.
    "n",
    "n_continue",
)


@dataclass(frozen=True)
class FastDapoSettings:
    """What the trainer needs to know beyond verl's configuration."""

    enable: bool
    schedule: str
    success_metric: str
    controller: CurriculumSettings


def resolve_group_size(config: DictConfig) -> None:
    """Give verl the one number of rollouts a prompt that it knows, N = n + n_continue.

    verl uses `rollout.n` in the arithmetic of mini-batches and advantages, where a group has N rollouts; how a group
    comes about, n and then n_continue, is kept under `curriculum`. Idempotent; changes `config`.
    """
    rollout = config.actor_rollout_ref.rollout
    if "n_continue" not in rollout:
        return
    with open_dict(config):
        config.curriculum.n = rollout.n
        config.curriculum.n_continue = rollout.pop("n_continue")
        if isinstance(config.curriculum.n, int) and isinstance(config.curriculum.n_continue, int):
            rollout.n = config.curriculum.n + config.curriculum.n_continue


def read_settings(config: DictConfig) -> FastDapoSettings:
    """Read and check the settings of a configuration that `resolve_group_size` has seen.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    problems: list[str] = []
    curriculum, data = config.curriculum, config.data
    problems += _unknown_keys(curriculum)
    if curriculum.schedule not in SCHEDULES:
        problems.append(f"curriculum.schedule must be one of {', '.join(SCHEDULES)}; got {curriculum.schedule!r}")
    problems += _check_batch_arithmetic(config)
    if curriculum.enable:
        problems += _check_curriculum(config)
    controller = None
    try:
        controller = CurriculumSettings(
            n=curriculum.n,
            n_continue=curriculum.n_continue,
            train_batch_size=data.train_batch_size,
            gen_batch_size=data.train_batch_size if data.gen_batch_size is None else data.gen_batch_size,
            max_num_gen_batches=curriculum.max_num_gen_batches,
            max_buffer_prompts=curriculum.max_buffer_prompts,
            max_staleness=curriculum.max_staleness,
            success_threshold=curriculum.success_threshold,
        )
    except (ValueError, TypeError) as error:
        problems.append(f"{error} (actor_rollout_ref.rollout.n and .n_continue, data.*, curriculum.*)")
    if problems or controller is None:
        raise ConfigError("The configuration cannot be run:\n  - " + "\n  - ".join(problems))
    return FastDapoSettings(curriculum.enable, curriculum.schedule, curriculum.success_metric, controller)


def _unknown_keys(curriculum: DictConfig) -> list[str]:
    problems = []
    for key in curriculum:
        if key not in CURRICULUM_KEYS:
            near = difflib.get_close_matches(str(key), CURRICULUM_KEYS, n=1)
            hint = f"; did you mean curriculum.{near[0]}?" if near else f"; known: {', '.join(CURRICULUM_KEYS[:-2])}"
            problems.append(f"curriculum.{key} does not exist{hint}")
    return problems


def _check_batch_arithmetic(config: DictConfig) -> list[str]:
    problems = []
    batch, mini_batch = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    if batch % mini_batch != 0:
        problems.append(
            f"data.train_batch_size={batch} must be a multiple of actor_rollout_ref.actor.ppo_mini_batch_size="
            f"{mini_batch}: both count prompts"
        )
    ranks, group = config.trainer.nnodes * config.trainer.n_gpus_per_node, config.actor_rollout_ref.rollout.n
    if isinstance(group, int) and (mini_batch * group) % ranks != 0:
        problems.append(
            f"ppo_mini_batch_size x (n + n_continue) = {mini_batch} x {group} = {mini_batch * group} rollouts must be "
            f"a multiple of the {ranks} ranks (trainer.nnodes x trainer.n_gpus_per_node)"
        )
    return problems


def _check_curriculum(config: DictConfig) -> list[str]:
    """What contradicts a curriculum, with the option that resolves it."""
    problems = []
    if OmegaConf.select(config, "algorithm.filter_groups.enable"):
        problems.append(
            "algorithm.filter_groups.enable (verl's dynamic sampling) and curriculum.enable both filter prompts: set "
            "one of them to false"
        )
    if OmegaConf.select(config, "trainer.v1.sampler.custom_sampler.path"):
        problems.append("trainer.v1.sampler.custom_sampler has no say while curriculum.enable=true: unset one of them")
    if config.data.dataloader_num_workers != 0:
        problems.append(
            f"data.dataloader_num_workers must be 0, got {config.data.dataloader_num_workers}: workers fetch ahead of "
            "the controller, and a resumed run would skip those prompts"
        )
    if not config.actor_rollout_ref.rollout.calculate_log_probs and _needs_rollout_log_probs(config):
        problems.append(
            "actor_rollout_ref.rollout.calculate_log_probs must be true for engine_guard and rollout_correction; or "
            "set engine_guard.max_probs_diff=null and algorithm.rollout_correction.rollout_is=null"
        )
    return problems


def _needs_rollout_log_probs(config: DictConfig) -> bool:
    selected: list[Any] = [
        OmegaConf.select(config, "engine_guard.max_probs_diff"),
        OmegaConf.select(config, "algorithm.rollout_correction.rollout_is"),
    ]
    return any(value is not None for value in selected)
