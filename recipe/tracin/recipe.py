"""Describes TracIn to the shared code."""

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from recipe.tracin.checks import check_config
from recipe.tracin.metric_glossary import METRICS
from recipe.tracin.run_files import FILES
from recipe.tracin.settings import share_text
from verl_ext.cluster.pools import num_ranks
from verl_ext.launch.compatibility import (
    MANAGER,
    OWN_MANAGER,
    Unsupported,
    is_colocated,
    is_no_manager_of_ours,
    is_none_of,
)
from verl_ext.launch.dry_run import step_rows
from verl_ext.launch.estimate import size
from verl_ext.launch.recipe import Recipe

NO_IMAGES = (
    "scores of prompts with images, videos or sounds are not supported: the validation gradient would be taken without "
    "them. Set tracin.enable=false, or use a text-only model"
)


_GRADIENT_BYTES = 4  # float32


def _enabled(is_asked: Callable[[Any, DictConfig], bool]) -> Callable[[Any, DictConfig], bool]:
    return lambda value, config: bool(config.tracin.enable) and is_asked(value, config)


def _with_rollouts(is_asked: Callable[[Any, DictConfig], bool]) -> Callable[[Any, DictConfig], bool]:
    """Whether validation rollouts are made."""
    return _enabled(lambda value, config: config.tracin.validation.strategy != "in_batch" and is_asked(value, config))


def _is_of_images(value: Any, _: DictConfig) -> bool:
    """Whether the model is local and its configuration has a part for images, videos or audio."""
    try:
        model = json.loads((Path(str(value)) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # on a hub, or missing: the selector checks again when the model is available
        return False
    return any(name in model for name in ("vision_config", "audio_config"))


def _leaves_a_remainder(value: Any, config: DictConfig) -> bool:
    """Whether verl's own collector fetches prompts: Fast DAPO's fetch size always fits."""
    algorithm, sampler = config.algorithm, config.trainer.v1.sampler
    one_by_one = algorithm.filter_groups.enable or sampler.get("sync_refill_failed_groups", False)
    return bool(value) and "curriculum" not in config and not one_by_one and config.data.train_batch_size % value != 0


def adapt(config: DictConfig, given: Collection[str]) -> Iterator[str]:
    """Without a validation set, score samples within their batch; say that all weights of a script are now LoRA."""
    node = config.tracin
    if not node.enable:
        return
    asked = node.validation.strategy != "quality" or "tracin.validation.strategy" in given
    if not node.validation_files and not asked:
        node.validation.strategy = "in_batch"
        yield (
            "tracin.validation_files is not set: each sample is scored against the rest of its batch "
            "(tracin.validation.strategy=in_batch), which finds reversed rewards but has not improved training. To "
            "compare with a validation set, name the file of its prompts: tracin.validation_files=FILE.parquet"
        )
    of_lora = ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora_adapter_path", "tracin.parameters")
    rank = config.actor_rollout_ref.model.lora_rank
    if rank and not any(name in given for name in of_lora):
        yield (
            f"actor_rollout_ref.model.lora_rank={rank}: TracIn trains LoRA unless told otherwise, which usually "
            "needs a larger learning rate than all weights. For these, set actor_rollout_ref.model.lora_rank=0, and "
            "tracin.parameters to a regular expression over names of layers"
        )


def dry_run_rows(config: DictConfig) -> Iterator[tuple[str, str]]:
    """The plan of a step, and the parameters that its scores cover."""
    yield from step_rows(config)
    if not config.tracin.enable:
        return
    # Not imported above: pages and docs read this module and would load torch.
    from recipe.tracin.model_check import scored

    found = scored(config, config.tracin.parameters)
    if found is None:
        yield "influence", "known only when the run starts"
        return
    yield "influence", share_text(found.share)
    shards = _num_shards(config)
    gradient = size(_GRADIENT_BYTES * found.count / shards)
    at_a_time = ", and one layer's at a time" if shards > 1 else ""
    yield "", f"validation gradient: {gradient} per rank from validation to update, twice that when computed{at_a_time}"


def _num_shards(config: DictConfig) -> int:
    """Into how many shards the validation gradient is divided: that of LoRA's factors is stored whole."""
    if "lora" in config.tracin.parameters:
        return 1
    fsdp_size = config.actor_rollout_ref.actor.fsdp_config.fsdp_size
    return fsdp_size if fsdp_size > 0 else num_ranks(config)


UNSUPPORTED = (
    Unsupported(
        MANAGER,
        _with_rollouts(is_no_manager_of_ours),
        f"validation rollouts come with reports. Extend {OWN_MANAGER}, or set tracin.validation.strategy=in_batch",
    ),
    Unsupported(
        "reward.reward_model.enable",
        _with_rollouts(is_colocated),
        "a reward model on the actor's devices does not score validation rollouts, so none would ever be chosen. Give "
        "it its own devices: reward.reward_model.enable_resource_pool=true with n_gpus_per_node and nnodes; or "
        "set tracin.validation.strategy=in_batch",
    ),
    Unsupported("actor_rollout_ref.model.path", _enabled(_is_of_images), NO_IMAGES),
    Unsupported(
        "model_engine",
        _enabled(is_none_of("dp")),
        "scores are computed inside FSDP2's modules, which other engines do not have. Leave model_engine at dp, or set "
        "tracin.enable=false",
    ),
    Unsupported(
        "actor_rollout_ref.actor.strategy",
        _enabled(lambda value, _: value == "fsdp"),
        "FSDP1 flattens the weights, but scores need each weight separately. Leave it at fsdp2, or set "
        "tracin.enable=false",
    ),
    Unsupported(
        "actor_rollout_ref.model.use_fused_kernels",
        _enabled(lambda value, config: bool(value) and config.tracin.parameters != "lora"),
        "fused kernels bypass the output layer, whose part of the scores would be missing. Set it to false, or "
        "tracin.parameters=lora",
    ),
    Unsupported(
        "actor_rollout_ref.actor.fsdp_config.offload_policy",
        _enabled(lambda value, config: bool(value) and config.tracin.one_pass),
        "one_pass gives the optimizer gradients on the device, and offload_policy keeps the weights on the CPU. Set "
        "tracin.one_pass=false, or use fsdp_config.param_offload and optimizer_offload",
    ),
    Unsupported(
        "data.gen_batch_size",
        _leaves_a_remainder,
        "verl fetches this many prompts at a time, and data.train_batch_size must be a multiple of it. Leave it out",
    ),
)


RECIPE = Recipe(
    name="tracin",
    title="TracIn",
    node="tracin",
    check_settings=check_config,
    paths=("tracin.validation_files",),
    adapt=adapt,
    dry_run_rows=dry_run_rows,
    phases={
        "generation": ("tracin_rollouts",),
        "influence": ("tracin_validation", "tracin_scoring"),
    },
    glossary=METRICS,
    files=FILES,
    unsupported=UNSUPPORTED,
    pages="recipe.tracin.pages",
)
