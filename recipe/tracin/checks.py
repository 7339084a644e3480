"""What TracIn asks of the rest of a configuration and of its data; checked before Ray starts."""

from collections.abc import Sequence

import pyarrow.parquet as pq
from omegaconf import DictConfig

from recipe.tracin.method.disjoint import check_disjoint
from recipe.tracin.settings import LORA, TracInSettings, check_against_actor, read_settings
from verl_ext.core.errors import ConfigError
from verl_ext.data.prompt_identity import text_identity
from verl_ext.data.schema import ParquetError, check_parquets

# Policy losses in which one sample's loss depends on the others' tokens: there is no exact score.
NOT_ADDITIVE = ("clip_cov", "kl_cov")


def check_config(config: DictConfig) -> TracInSettings:
    """Read `config.tracin` and refuse what cannot work with it.

    Raises:
        ConfigError: names every problem found, with what to change.
        ValidationOverlapError: validation prompts are in the training files.
    """
    settings = read_settings(config)
    if not settings.enable:
        return settings
    problems = _problems(config, settings)
    if problems:
        raise ConfigError("tracin.enable=true does not go with this configuration:\n  - " + "\n  - ".join(problems))
    actor, data = config.actor_rollout_ref.actor, config.data
    check_against_actor(settings, actor.ppo_epochs, data.train_batch_size // actor.ppo_mini_batch_size)
    if settings.validation.strategy != "in_batch":
        _check_validation_files(config)
    # Not above: what pages and docs read of a recipe would load torch.
    from recipe.tracin.model_check import check_layers

    check_layers(config, settings.parameters)
    return settings


def _check_validation_files(config: DictConfig) -> None:
    data, files = config.data, _files(config.tracin.validation_files)
    try:
        check_parquets(files)
    except ParquetError as error:
        raise ConfigError(f"tracin.validation_files: {error}") from None
    train, validation = (_prompts(paths, data.prompt_key) for paths in (_files(data.train_files), files))
    check_disjoint(
        [text_identity(prompt) for prompt in train],
        [text_identity(prompt) for prompt in validation],
        [prompt[-1]["content"] for prompt in validation],
    )


def _files(entry: str | Sequence[str]) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry)


def _prompts(files: Sequence[str], column: str) -> list[list[dict[str, str]]]:
    try:
        return [prompt for file in files for prompt in pq.read_table(file, columns=[column])[column].to_pylist()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"data.train_files: {error}") from None


def _problems(config: DictConfig, settings: TracInSettings) -> list[str]:
    actor, model = config.actor_rollout_ref.actor, config.actor_rollout_ref.model
    problems = []
    if actor.strategy != "fsdp2":
        problems.append(f"actor_rollout_ref.actor.strategy must be fsdp2, got {actor.strategy}: set it to fsdp2")
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
    loss_mode = actor.policy_loss.get("loss_mode", "vanilla")
    if loss_mode in NOT_ADDITIVE:
        problems.append(
            f"actor.policy_loss.loss_mode={loss_mode} mixes the samples of a batch, which then have no gradient of "
            "their own: use vanilla, gspo or another loss that adds up over samples"
        )
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        problems.append("validation rollouts are weighted by their log-probs: set rollout.calculate_log_probs=true")
    if actor.shuffle:
        problems.append("actor.shuffle=true hides which mini-batch a sample is updated in: set it to false")
    if settings.selection.baseline == "after" and config.algorithm.adv_estimator == "gae":
        problems.append(
            "tracin.selection.baseline=after centres one advantage a sample, but adv_estimator=gae gives one a token: "
            "use baseline=before"
        )
    if config.get("distillation") and config.distillation.get("enabled", False):
        problems.append("distillation losses are not scored: set distillation.enabled=false")
    return problems
