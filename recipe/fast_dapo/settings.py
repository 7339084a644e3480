"""The settings of a Fast DAPO run: read from the configuration once, checked once, before Ray starts.

Pure: needs no verl. `resolve_group_size` is where this plugin's two numbers of rollouts become verl's one.
"""

import difflib
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from recipe.fast_dapo.correction import CORRECTIONS
from recipe.fast_dapo.curriculum_records import SCHEDULES, CurriculumSettings
from recipe.fast_dapo.predictor import PredictorSettings
from recipe.fast_dapo.screening import SCREENINGS
from verl_ext.errors import ConfigError

PREDICTORS = ("none", "posterior")
CURRICULUM_KEYS = (
    "enable",
    "schedule",
    "screening",
    "screening_chunk",
    "predictor",
    "posterior",
    "correction",
    "correction_clip",
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
    success_metric: str
    controller: CurriculumSettings
    predictor: PredictorSettings | None  # None: epochs in the data loader's order
    screening_chunk: int | None  # rollouts a stage of sequential screening; None: all n at once
    correction_clip: float | None  # largest Horvitz-Thompson weight


def resolve_group_size(config: DictConfig) -> None:
    """Give verl the one number of rollouts a prompt that it knows, N = n + n_continue.

    verl uses `rollout.n` in the arithmetic of mini-batches and advantages, where a group has N rollouts (n_continue,
    if only these are trained on); how a group comes about is kept under `curriculum`. Idempotent; changes `config`.
    """
    rollout = config.actor_rollout_ref.rollout
    if "n_continue" not in rollout:
        return
    with open_dict(config):
        config.curriculum.n = rollout.n
        config.curriculum.n_continue = rollout.pop("n_continue")
        if isinstance(config.curriculum.n, int) and isinstance(config.curriculum.n_continue, int):
            only_continuation = config.curriculum.enable and config.curriculum.correction == "continuation_only"
            rollout.n = config.curriculum.n_continue + (0 if only_continuation else config.curriculum.n)


def read_settings(config: DictConfig) -> FastDapoSettings:
    """Read and check the settings of a configuration that `resolve_group_size` has seen.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    problems: list[str] = []
    curriculum, data = config.curriculum, config.data
    problems += _unknown_keys(curriculum)
    for name, known in (
        ("schedule", SCHEDULES),
        ("screening", SCREENINGS),
        ("predictor", PREDICTORS),
        ("correction", CORRECTIONS),
    ):
        if curriculum[name] not in known:
            problems.append(f"curriculum.{name} must be one of {', '.join(known)}; got {curriculum[name]!r}")
    problems += _check_batch_arithmetic(config)
    if curriculum.enable:
        problems += _check_curriculum(config)
    controller = predictor = None
    try:
        predictor = PredictorSettings(**curriculum.posterior)
    except (ValueError, TypeError) as error:
        problems.append(f"curriculum.posterior: {error}")
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
            # A wrong name is reported above.
            schedule=curriculum.schedule if curriculum.schedule in SCHEDULES else "merged",
            correction=curriculum.correction if curriculum.correction in CORRECTIONS else "none",
        )
    except (ValueError, TypeError) as error:
        problems.append(f"{error} (actor_rollout_ref.rollout.n and .n_continue, data.*, curriculum.*)")
    if problems or controller is None:
        raise ConfigError("The configuration cannot be run:\n  - " + "\n  - ".join(problems))
    return FastDapoSettings(
        enable=curriculum.enable,
        success_metric=curriculum.success_metric,
        controller=controller,
        predictor=predictor if curriculum.predictor == "posterior" else None,
        screening_chunk=curriculum.screening_chunk if curriculum.screening == "sequential" else None,
        correction_clip=curriculum.correction_clip,
    )


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
    problems, curriculum = [], config.curriculum
    if curriculum.screening == "sequential":
        for name, needed in (("schedule", "streaming"), ("predictor", "posterior")):
            if curriculum[name] != needed:
                problems.append(
                    f"curriculum.screening=sequential needs curriculum.{name}={needed}, got {curriculum[name]}: it "
                    "stops by each prompt's posterior, and all stages must come from the same weights"
                )
    if not isinstance(curriculum.screening_chunk, int) or curriculum.screening_chunk < 1:
        problems.append(f"curriculum.screening_chunk must be an int >= 1, got {curriculum.screening_chunk!r}: try 2")
    if curriculum.correction_clip is not None and not curriculum.correction_clip >= 1:
        problems.append(
            f"curriculum.correction_clip must be at least 1 or null, got {curriculum.correction_clip}: a weight is "
            "never smaller"
        )
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
