"""Reports what a run would do, without weights, Ray or a GPU: `dry_run=true`.

    python -m recipe.NAME.main … dry_run=true

All checks of a run come first (`verl_ext.launch.train`); this report is printed after them. `estimate.py` has the
arithmetic.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.cluster.pools import num_ranks
from verl_ext.core.errors import ConfigError
from verl_ext.data.data_files import open_file
from verl_ext.data.raw_prompt import load_tokenizer
from verl_ext.launch.data_checks import custom_dataset, find_files, makes_own_rows, prompt_lengths
from verl_ext.launch.estimate import (
    BYTES,
    OPTIMIZER_STATES,
    BatchArithmetic,
    memory_estimate,
    num_lora_parameters,
    num_parameters,
    size,
)
from verl_ext.launch.model_backend import FSDP, MEGATRON, TORCHTITAN, layout, model_engine
from verl_ext.launch.preflight.checks import Findings
from verl_ext.launch.recipe import Recipe


def report(config: DictConfig, versions: Mapping[str, str], recipe: Recipe, found: Findings) -> str:
    """The text of a dry run.

    Args:
        config: Configuration of a run of `recipe` that passed all checks.
        versions: Distribution name to installed version.
        recipe: The recipe that would run.
        found: Messages of the checks before Ray's start.
    """
    rows = [("checked", "versions (" + ", ".join(f"{name} {version}" for name, version in versions.items()) + ")")]
    rows += [("", "settings of the recipe, data, model files, reward function, verl's configuration")]
    for name in ("train_files", "val_files"):
        rows += _file_rows(config, name)
    if recipe.scores_rollouts:
        rows += _prompt_lengths(config)
    rows += (recipe.dry_run_rows or step_rows)(config)
    rows += _memory(config)
    rows += found.rows
    rows += [("warning", warning) for warning in found.warnings]
    rows += [("", "nothing was started: without dry_run=true the same command trains")]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def _file_rows(config: DictConfig, name: str) -> Iterator[tuple[str, str]]:
    if makes_own_rows(custom_dataset(config.data)):
        yield name, f"read by {config.data.custom_cls.name}"
        return
    files = find_files(config.data, config.data[name])
    for file in files.local:
        with open_file(file) as opened:
            yield name, f"{file}: {opened.num_rows:,} rows"
    for address in files.remote:
        yield name, f"{address}: not read before the run starts"


def _files(config: DictConfig) -> list[str]:
    """Local files of training and validation."""
    if makes_own_rows(custom_dataset(config.data)):
        return []
    found = [find_files(config.data, config.data[name]).local for name in ("train_files", "val_files")]
    return list(dict.fromkeys(file for files in found for file in files))


def _prompt_lengths(config: DictConfig) -> Iterator[tuple[str, str]]:
    """The longest prompt of every file, and the number of prompts over the limit."""
    data, limit = config.data, config.data.max_prompt_length
    try:
        tokenizer = load_tokenizer(config)
    except ConfigError as error:
        yield "longest prompt", f"not known: {str(error).splitlines()[0]}"
        return
    what_happens = "left out" if data.filter_overlong_prompts else f"cut ({data.truncation})"
    for file in _files(config):
        lengths = prompt_lengths(file, config, tokenizer)
        if lengths is None:
            yield "longest prompt", f"not known in {file}: prompts are more than text"
            continue
        too_long = int((lengths > limit).sum())
        over = f", {too_long:,} over data.max_prompt_length={limit} are {what_happens}" if too_long else ""
        yield "longest prompt", f"{lengths.max()} tokens in {file}{over}"


def step_rows(config: DictConfig) -> Iterator[tuple[str, str]]:
    """The plan of a step that trains on rollouts of `data.train_batch_size` prompts, and of the run."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    batch = BatchArithmetic(
        config.data.train_batch_size,
        rollout.n,
        actor.ppo_mini_batch_size,
        actor.ppo_epochs,
        layout(config).data_parallel,
    )
    yield "a step", f"{batch.prompts:,} prompts x {batch.group_size} rollouts = {batch.rollouts:,} rollouts"
    yield (
        "",
        f"{batch.mini_batches} mini-batches of {batch.mini_batch_prompts:,} prompts x {batch.epochs} "
        f"(ppo_epochs) = {batch.updates} updates",
    )
    yield (
        "",
        f"{batch.rows_per_rank:,} rows on each of {batch.ranks} {_groups(config, batch.ranks)}, "
        f"{batch.update_rows_per_rank:,} of an update",
    )
    steps = config.trainer.total_training_steps
    if steps is not None:
        yield (
            "the run",
            f"{steps:,} steps, {steps * batch.updates:,} updates, {steps * batch.rollouts:,} rows trained on",
        )


def _groups(config: DictConfig, count: int) -> str:
    """The units that get separate rows."""
    each = num_ranks(config) // count
    return "ranks" if each == 1 else f"groups of {each} ranks"


def _memory(config: DictConfig) -> Iterator[tuple[str, str]]:
    model, rollout = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    actor, engine = config.actor_rollout_ref.actor, model_engine(config)
    rank = OmegaConf.select(config, engine.lora_rank) if engine.lora_rank else 0
    path = model.get("hf_config_path") or model.path
    try:
        model_config = _local_model_config(path, bool(model.get("trust_remote_code", False)))
        parameters = num_parameters(model_config)
        # Megatron's modules have other names, and its single factor for query, key and value counts as three.
        targets = "all-linear" if engine is MEGATRON else _targets(model)
        lora = num_lora_parameters(model_config, rank, targets) if rank else 0
    except (OSError, ValueError) as error:
        yield (
            "memory",
            f"not estimated: the configuration of {path} is neither local nor cached, or not a language model's",
        )
        yield "", f"({str(error).splitlines()[0]})"
        return
    node, optimizer = actor[engine.node], actor.optim
    name = optimizer.get("optimizer") or optimizer.get("name")
    states = {**OPTIMIZER_STATES, **engine.optimizer_states}.get(name.lower(), 2)
    if name == "SGD" and (optimizer.get("override_optimizer_config") or {}).get("momentum"):
        states = 1
    gpu_bytes = _gpu_bytes(config)
    estimate = memory_estimate(
        parameters + lora,
        num_trained=lora or None,
        storage=layout(config).storage,
        tensor_parallel=rollout.tensor_model_parallel_size,
        serving_bytes=BYTES.get(str(rollout.dtype), 2),
        optimizer_states=states,
        is_offloaded=(node.param_offload, node.optimizer_offload),
        utilization=rollout.gpu_memory_utilization,
        gpu_bytes=gpu_bytes,
    )
    trained = f", {lora:,} of LoRA are trained" if lora else ""
    yield "model", f"{path}: {parameters:,} parameters{trained}"
    where = "rank" if config.trainer.device == "cpu" else "GPU"
    yield (
        f"memory per {where}",
        f"update {size(estimate['update'])}: weights {size(estimate['weights'])}, gradients "
        f"{size(estimate['gradients'])}, {name} {size(estimate['optimizer'])}; and activations",
    )
    engine = f"generation {size(estimate['generation'])}, and the engine's weights {size(estimate['serving'])}"
    if config.trainer.device == "cpu":
        fixed = (rollout.engine_kwargs.get("vllm") or {}).get("kv_cache_memory_bytes")
        yield "", engine + (f", KV cache {size(fixed)}" if fixed else "")
    elif "kv_cache" in estimate:
        yield "", f"{engine}, KV cache at most {size(estimate['kv_cache'])} of this machine's {size(gpu_bytes or 0)}"
    else:
        yield "", engine
    if config.trainer.device != "cpu":
        share = f"gpu_memory_utilization={rollout.gpu_memory_utilization}"
        yield "", f"at {share}: more than {size(estimate['smallest_gpu'])} per GPU"
    if actor.use_kl_loss and not lora:
        yield "", _reference(config, size(estimate["weights"]))
    if config.critic.get("enable") or config.algorithm.adv_estimator == "gae":
        yield "", "the critic comes on top, about as much as the actor's update"


def _reference(config: DictConfig, weights: str) -> str:
    """Where the weights of the reference policy are while it is not used."""
    engine = model_engine(config)
    # FSDPEngine._build_fsdp_module and TorchTitanEngine: CPUOffloadPolicy for forward_only models.
    if engine in (FSDP, TORCHTITAN) or config.actor_rollout_ref.ref[engine.node].param_offload:
        return f"the reference policy waits in the host's memory: {weights} per rank"
    return f"the reference policy comes on top: {weights}, unless ref.{engine.node}.param_offload=true"


def _targets(model: DictConfig) -> str | list[str]:
    return model.target_modules if isinstance(model.target_modules, str) else list(model.target_modules)


def _local_model_config(path: str, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=trust_remote_code)


def _gpu_bytes(config: DictConfig) -> int | None:
    import torch

    if config.trainer.device != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_properties(0).total_memory
