"""TracIn's requirements on the configuration and data, checked before Ray starts."""

from typing import Any

from omegaconf import DictConfig

from recipe.tracin.method.disjoint import check_disjoint
from recipe.tracin.method.selection import CENTRED_BY_GROUP
from recipe.tracin.settings import LORA, TracInSettings, read_settings
from verl_ext.core.errors import ConfigError
from verl_ext.data.data_files import open_file
from verl_ext.data.prompt_identity import text_identity
from verl_ext.influence.method.denominators import loss_problem
from verl_ext.launch.data_checks import (
    DataError,
    Files,
    check_rows,
    custom_dataset,
    find_files,
    makes_own_rows,
)

# Optimizers whose state `tracin.preconditioner=adam` reads.
ADAM = ("torch.optim.AdamW", "torch.optim.Adam")


def check_config(config: DictConfig) -> TracInSettings:
    """Read `config.tracin` and reject settings that cannot work with it.

    Raises:
        ConfigError: names every problem found, with what to change.
        ValidationOverlapError: validation prompts are in the training files.
    """
    settings = read_settings(config)
    if not settings.enable:
        return settings
    problems = _problems(config, settings)
    if problems:
        raise ConfigError("tracin.enable=true does not work with this configuration:\n  - " + "\n  - ".join(problems))
    if settings.validation.strategy != "in_batch":
        _check_validation_files(config)
    # Not imported above: pages and docs read this module and would load torch.
    from recipe.tracin.model_check import check_layers

    check_layers(config, settings.parameters, one_pass=settings.one_pass)
    return settings


def _check_validation_files(config: DictConfig) -> None:
    data = config.data
    try:
        if makes_own_rows(custom_dataset(data)):
            return  # the selector compares the prompts that it creates
        validation = find_files(data, config.tracin.validation_files)
        check_rows("tracin.validation_files", validation, config)
        train = find_files(data, data.train_files)
        check_rows("data.train_files", train, config)
    except DataError as error:
        raise ConfigError(str(error)) from None
    prompts = _prompts(validation, data.prompt_key)
    check_disjoint(
        [text_identity(prompt) for prompt in _prompts(train, data.prompt_key)],
        [text_identity(prompt) for prompt in prompts],
        [prompt[-1]["content"] for prompt in prompts],
    )


def _prompts(files: Files, column: str) -> list[list[dict[str, Any]]]:
    """Prompts of the local files; the selector compares all files once they are available."""
    prompts = []
    for file in files.local:
        with open_file(file) as opened:
            prompts += [prompt for chunk in opened.prompts(column) for prompt in chunk]
    return prompts


def _problems(config: DictConfig, settings: TracInSettings) -> list[str]:
    actor, model = config.actor_rollout_ref.actor, config.actor_rollout_ref.model
    problems = []
    sequence_parallel = max(
        actor.get("ulysses_sequence_parallel_size") or 1, actor.fsdp_config.get("ulysses_sequence_parallel_size") or 1
    )
    if sequence_parallel > 1:
        problems.append("a rank must see whole sequences: set actor.ulysses_sequence_parallel_size=1")
    has_lora = model.lora_rank > 0 or model.get("lora_adapter_path") is not None
    if settings.parameters == LORA and not has_lora:
        problems.append(
            "tracin.parameters=lora, but the model has no LoRA: set actor_rollout_ref.model.lora_rank, or "
            "tracin.parameters to a regular expression over module names"
        )
    if settings.one_pass and actor.ppo_epochs != 1:
        problems.append(
            "tracin.one_pass=true updates with the very gradients that were scored, once per rollout and step, but "
            f"actor_rollout_ref.actor.ppo_epochs={actor.ppo_epochs}: set it to 1, or tracin.one_pass=false"
        )
    correction = actor.policy_loss.get("rollout_correction") or {}
    loss = loss_problem(
        actor.policy_loss.get("loss_mode", "vanilla"),
        actor.loss_agg_mode,
        is_batch_normalized=bool(correction.get("rollout_is_batch_normalize", False)),
    )
    problems += [loss] if loss else []
    problems += _half_precision(actor.fsdp_config)
    optimizer = f"{actor.optim.get('optimizer_impl', 'torch.optim')}.{actor.optim.get('optimizer', 'AdamW')}"
    if settings.preconditioner == "adam" and optimizer not in ADAM:
        problems.append(
            f"tracin.preconditioner=adam reads the second moments of {' or '.join(ADAM)}, got {optimizer}: set "
            "tracin.preconditioner=none, or actor_rollout_ref.actor.optim.optimizer=AdamW"
        )
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        problems.append("validation rollouts are weighted by their log-probs: set rollout.calculate_log_probs=true")
    if actor.shuffle:
        problems.append("actor.shuffle=true hides which mini-batch a sample is updated in: set it to false")
    estimator = config.algorithm.adv_estimator
    if settings.selection.baseline == "after" and estimator not in CENTRED_BY_GROUP:
        problems.append(
            f"tracin.selection.baseline=after recentres a group's rewards, but advantages of "
            f"algorithm.adv_estimator={estimator} are not (reward - group's mean) x a factor: use baseline=before, or "
            f"one of {', '.join(CENTRED_BY_GROUP)}"
        )
    if config.get("distillation") and config.distillation.get("enabled", False):
        problems.append("distillation losses are not scored: set distillation.enabled=false")
    return problems


def _half_precision(fsdp_config: DictConfig) -> list[str]:
    from verl.utils.torch_dtypes import PrecisionType

    values = {name: fsdp_config.get(name) for name in ("dtype", "model_dtype")}
    values["mixed_precision.param_dtype"] = (fsdp_config.get("mixed_precision") or {}).get("param_dtype")
    return [
        f"float16 gradients are scaled, and G overflows its range: set actor.fsdp_config.{name}=bfloat16, got {value}"
        for name, value in values.items()
        if PrecisionType.is_fp16(value)
    ]
