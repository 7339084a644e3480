"""Checks that a model exists and is complete, and that its context fits a prompt with its response."""

import json
import math
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_ext.launch.estimate import BYTES

# The files that transformers looks for: a list of shards, or a single file.
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")


def check_models(config: DictConfig, *, has_critic: bool) -> list[str]:
    """Problems with the files of the models that a run loads.

    Args:
        config: Configuration of the run.
        has_critic: Whether it trains a critic, whose model has its own path.

    Returns:
        One sentence each; none about a model that is on a hub or on a remote file system.
    """
    model = config.actor_rollout_ref.model
    paths = {"actor_rollout_ref.model.path": model.path}
    if model.get("lora_adapter_path"):
        paths["actor_rollout_ref.model.lora_adapter_path"] = model.lora_adapter_path
    if has_critic:
        paths["critic.model.path"] = config.critic.model.path
    if config.reward.reward_model.enable:
        paths["reward.reward_model.model_path"] = config.reward.reward_model.model_path
    return [f"{key}={path}: {problem}" for key, path in paths.items() if (problem := model_problem(path))]


def model_problem(path: str | None) -> str | None:
    """The problem with the files of one model, or None."""
    if not path:
        return "expected a folder or the name of a model on the hub"
    folder = Path(path).expanduser()
    if folder.is_dir():
        return next(_folder_problems(folder), None)
    if "://" in path:  # verl copies it to a local folder first
        return None
    if folder.is_file():
        return "expected a folder with a model, got a file"
    return None if path.count("/") == 1 and not path.startswith((".", "~", "/")) else "no such folder"


def _folder_problems(folder: Path) -> Iterator[str]:
    is_adapter = (folder / "adapter_config.json").is_file()
    if not is_adapter and not (folder / "config.json").is_file():
        yield "there is no config.json" + _hint(folder)
        return
    for name in _INDICES:
        if (folder / name).is_file():
            yield from _shard_problems(folder, name)
            return
    for name in _SINGLE:
        if (folder / name).is_file():
            yield from _weight_problems(folder / name)
            return
    yield f"there are no weights: expected {_SINGLE[0]}, or {_INDICES[0]} with its files"


def _hint(folder: Path) -> str:
    """What to do with a verl checkpoint that was given instead of a model."""
    if any(folder.glob("model_world_size_*.pt")):
        return (
            ": these are a checkpoint's shards. Merge them: python -m verl.model_merger merge --backend fsdp "
            f"--local_dir {folder} --target_dir DIR"
        )
    megatrons = [each / "model/huggingface" for each in (folder, folder / "actor")]
    there = next((each for each in megatrons if (each / "config.json").is_file()), None)
    return f": this is a Megatron checkpoint. Give its weights: {there}" if there else ""


def _shard_problems(folder: Path, index: str) -> Iterator[str]:
    try:
        names = sorted(set(json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        yield f"{index} is not readable ({error!r}): copy the model again"
        return
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        yield f"{len(missing)} of {len(names)} files of weights are missing, such as {missing[0]}: copy the model again"
        return
    for name in names:
        yield from _weight_problems(folder / name)


def _weight_problems(file: Path) -> Iterator[str]:
    """A header that announces more than the file holds: an interrupted copy."""
    from safetensors import SafetensorError, safe_open

    try:
        if file.suffix == ".safetensors":
            with safe_open(os.fspath(file), framework="pt"):
                pass
        elif not zipfile.is_zipfile(file):
            yield f"{file.name} is truncated, or not a torch file: copy the model again"
    except (SafetensorError, OSError) as error:
        yield f"{file.name} is incomplete ({str(error).splitlines()[0]}): copy the model again"


def bucket_problem(config: DictConfig) -> str | None:
    """Why a weight cannot be sent to the CPU backend's engine, or None.

    verl copies weights into a bucket of shared memory there, and one weight cannot be split; between GPUs a weight
    beyond the bucket is sent by itself.
    """
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    if config.trainer.device != "cpu" or rollout.name != "vllm":
        return None
    sizes = dict(_weight_sizes(Path(config.actor_rollout_ref.model.path).expanduser()))
    if not sizes:
        return None
    largest = max(sizes, key=sizes.__getitem__)
    bytes_each = BYTES.get(str(actor.fsdp_config.get("model_dtype") or "fp32"), BYTES["fp32"])
    name, megabytes = "checkpoint_engine.update_weights_bucket_megabytes", sizes[largest] * bytes_each / 2**20
    if megabytes <= rollout.checkpoint_engine.update_weights_bucket_megabytes:
        return None
    return (
        f"actor_rollout_ref.rollout.{name}={rollout.checkpoint_engine.update_weights_bucket_megabytes}, but the weight "
        f"{largest} takes {megabytes:,.1f} MB: set it to {math.ceil(megabytes)} or more"
    )


def _weight_sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Names and sizes of the weights in local safetensors files; others are unknown."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(os.fspath(file), framework="pt") as weights:
            for name in [*weights.keys()]:
                yield name, math.prod(weights.get_slice(name).get_shape())


def context_problem(config: DictConfig, model_config: Any) -> str | None:
    """Why the engine's context is too short for a full response, or None.

    Args:
        config: Configuration of a run whose prompts and responses have the lengths in `data`.
        model_config: The model's configuration; None if unknown.
    """
    rollout, data = config.actor_rollout_ref.rollout, config.data
    needed = data.max_prompt_length + data.max_response_length
    text = getattr(model_config, "text_config", model_config)
    trained = getattr(text, "max_position_embeddings", None)
    given = rollout.max_model_len
    if given is not None and trained is not None and given > trained:
        return (
            f"actor_rollout_ref.rollout.max_model_len={given} is more than the model's context of {trained} tokens: "
            "lower it, or leave it out"
        )
    context = given if given is not None else trained
    if context is None or needed <= context:
        return None
    name = "actor_rollout_ref.rollout.max_model_len" if given is not None else "the model's context"
    return (
        f"data.max_prompt_length + data.max_response_length = {data.max_prompt_length} + {data.max_response_length} = "
        f"{needed} tokens, but {name} is {context}: the engine would cut responses short. Lower them"
        + (", or raise max_model_len" if given is not None and (trained or 0) >= needed else "")
    )
