"""What a run would do, as far as it is known without weights, without Ray and without a GPU: `dry_run=true`.

    python -m recipe.fast_dapo.main +backend=cpu +experiment=arithmetic_demo dry_run=true

All checks of a run come first (`verl_ext.train`); this is what is printed after them. The pure part first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from omegaconf import DictConfig, ListConfig

from verl_ext.errors import ConfigError
from verl_ext.raw_prompt import load_tokenizer

# Tensors that an optimizer of torch.optim keeps for each weight that it trains; Adam's are the two moments.
OPTIMIZER_STATES = {"Adam": 2, "AdamW": 2, "SGD": 0}
BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2}

# Prompts rendered and tokenized at once.
_CHUNK = 4096


@dataclass(frozen=True)
class BatchArithmetic:
    """Numbers of one training step.

    Attributes:
        prompts: Of the training batch.
        group_size: Rollouts of each.
        mini_batch_prompts: Prompts of one update.
        epochs: How often a batch is gone through.
        ranks: That share the rows; with sequence parallelism, groups of them.
    """

    prompts: int
    group_size: int
    mini_batch_prompts: int
    epochs: int
    ranks: int

    @property
    def rollouts(self) -> int:
        """Rows of the batch."""
        return self.prompts * self.group_size

    @property
    def mini_batches(self) -> int:
        """Updates of one epoch."""
        return -(-self.prompts // self.mini_batch_prompts)

    @property
    def updates(self) -> int:
        """Updates of a step."""
        return self.mini_batches * self.epochs

    @property
    def rows_per_rank(self) -> int:
        """Rows of the whole batch on each rank; the last rank may have fewer."""
        return -(-self.rollouts // self.ranks)

    @property
    def update_rows_per_rank(self) -> int:
        """The same of one update."""
        return -(-self.mini_batch_prompts * self.group_size // self.ranks)


def memory_estimate(
    num_parameters: int,
    *,
    num_trained: int | None = None,
    num_shards: int = 1,
    tensor_parallel: int = 1,
    weight_bytes: int = 4,
    serving_bytes: int = 2,
    optimizer_states: int = 2,
    is_offloaded: tuple[bool, bool] = (False, False),
    utilization: float = 0.5,
    gpu_bytes: int | None = None,
) -> dict[str, int]:
    """Bytes on each GPU that follow from the number of parameters.

    P: parameters. L: those that are trained (LoRA's factors, or all). S: ranks that share the trainer's tensors. W: the
    tensor-parallel ranks of one engine. u: `gpu_memory_utilization`. M: bytes of a GPU.

        weights    4 P / S     float32 whatever the forward computes in; its copies in bf16 live for one layer
        gradients  4 L / S     in the weights' own type
        optimizer  8 L / S     Adam's two moments in float32; nothing with SGD
        serving    2 P / W     bf16 in the engine
        KV cache   u M - serving

    The first three are ZeRO stage 3 (Rajbhandari et al. 2020, arXiv:1910.02054, section 5), which PyTorch's FSDP
    implements (Zhao et al. 2023, arXiv:2304.11277); that paper's bf16 weights are absent, since FSDP casts each layer
    when it is needed. verl's defaults for the types: trainer/config/engine/fsdp.yaml, `model_dtype`. u: vLLM's share of
    all memory, its weights and activations included, so the KV cache is at most that.

    Not counted: activations, logits, gathered layers, NCCL's and CUDA's own memory.

    Args:
        num_parameters: P.
        num_trained: L; None: all.
        num_shards: S.
        tensor_parallel: W.
        weight_bytes: Of one weight of the trainer.
        serving_bytes: Of one weight of the engine.
        optimizer_states: Tensors of the optimizer for each trained weight.
        is_offloaded: Whether (weights and gradients, optimizer) wait in the host's memory while they are not used.
        utilization: u.
        gpu_bytes: M; None: unknown.

    Returns:
        weights, gradients, optimizer, serving; `update`: the trainer's sum; `generation`: what stays of it beside the
        engine; `smallest_gpu`: the least M with room for both phases; with `gpu_bytes`, kv_cache, which is negative if
        the engine's weights alone do not fit.
    """
    trained = num_parameters if num_trained is None else num_trained
    weights = _share(weight_bytes * num_parameters, num_shards)
    gradients = _share(weight_bytes * trained, num_shards)
    optimizer = _share(4 * optimizer_states * trained, num_shards)
    serving = _share(serving_bytes * num_parameters, tensor_parallel)
    # Gradients are freed with the update.
    generation = (0 if is_offloaded[0] else weights) + (0 if is_offloaded[1] else optimizer)
    update = weights + gradients + optimizer
    estimate = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "serving": serving,
        "update": update,
        "generation": generation,
        "smallest_gpu": max(update, round(serving / utilization), round(generation / max(1 - utilization, 1e-6))),
    }
    if gpu_bytes is not None:
        estimate["kv_cache"] = round(utilization * gpu_bytes) - serving
    return estimate


def _share(num_bytes: int, parts: int) -> int:
    return -(-num_bytes // parts)


def num_parameters(model_config: Any) -> int:
    """Parameters of the causal language model of a configuration of transformers, tied ones once; makes no weights."""
    return sum(parameter.numel() for parameter in _on_meta(model_config).parameters())


def num_lora_parameters(model_config: Any, rank: int, targets: str | list[str]) -> int:
    """Parameters of the LoRA factors: rank x (inputs + outputs) of every linear module that PEFT would choose.

    Args:
        model_config: Of transformers.
        rank: Of the factors.
        targets: `all-linear` (all but the one that makes logits), or names that modules' names end with.
    """
    import torch

    model = _on_meta(model_config)
    head, count = model.get_output_embeddings(), 0
    for name, module in model.named_modules():
        is_chosen = module is not head if targets == "all-linear" else name.split(".")[-1] in targets
        if isinstance(module, torch.nn.Linear) and is_chosen:
            count += rank * (module.in_features + module.out_features)
    return count


def _on_meta(model_config: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(model_config)


def report(config: DictConfig, versions: Mapping[str, str]) -> str:
    """The text of a dry run.

    Args:
        config: Of a run that passed all checks.
        versions: Distribution name to installed version.
    """
    rows = [("checked", "versions (" + ", ".join(f"{name} {version}" for name, version in versions.items()) + ")")]
    rows += [("", "settings of the recipe, data, verl's configuration")]
    for name in ("train_files", "val_files"):
        rows += [(name, f"{file}: {pq.ParquetFile(file).metadata.num_rows:,} rows") for file in _files(config, name)]
    is_golden = config.trainer.v1.trainer_mode == "golden_redaction"
    rows += _golden_step(config) if is_golden else [*_prompt_lengths(config), *_step(config)]
    rows += _memory(config)
    rows += [("", "nothing was started: without dry_run=true the same command trains")]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def _files(config: DictConfig, name: str) -> list[str]:
    entry = config.data[name]
    return list(entry) if isinstance(entry, list | ListConfig) else [entry]


def _prompt_lengths(config: DictConfig) -> Iterator[tuple[str, str]]:
    """The longest prompt of every file, with its number of those over the limit."""
    data, limit = config.data, config.data.max_prompt_length
    try:
        tokenizer = load_tokenizer(config)
    except ConfigError as error:
        yield "longest prompt", f"not known: {str(error).splitlines()[0]}"
        return
    kwargs = dict(data.apply_chat_template_kwargs)
    if config.actor_rollout_ref.model.get("custom_chat_template"):
        kwargs["chat_template"] = config.actor_rollout_ref.model.custom_chat_template
    what_happens = "left out" if data.filter_overlong_prompts else f"cut ({data.truncation})"
    for file in dict.fromkeys([*_files(config, "train_files"), *_files(config, "val_files")]):
        lengths: list[int] = []
        for batch in pq.ParquetFile(file).iter_batches(_CHUNK, columns=[data.prompt_key]):
            prompts = batch.column(0).to_pylist()
            texts = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False, **kwargs)
            lengths += [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
        too_long = sum(length > limit for length in lengths)
        over = f", {too_long:,} over data.max_prompt_length={limit} are {what_happens}" if too_long else ""
        yield "longest prompt", f"{max(lengths)} tokens in {file}{over}"


def _ranks(config: DictConfig) -> int:
    return config.trainer.nnodes * config.trainer.n_gpus_per_node


def _step(config: DictConfig) -> Iterator[tuple[str, str]]:
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    sequence_parallel = max(
        actor.get("ulysses_sequence_parallel_size") or 1, actor.fsdp_config.get("ulysses_sequence_parallel_size") or 1
    )
    batch = BatchArithmetic(
        config.data.train_batch_size,
        rollout.n,
        actor.ppo_mini_batch_size,
        actor.ppo_epochs,
        max(1, _ranks(config) // sequence_parallel),
    )
    curriculum = config.get("curriculum")
    if curriculum is not None and curriculum.enable:
        screened = config.data.gen_batch_size or config.data.train_batch_size
        yield "a round", f"{screened:,} prompts x {curriculum.n} = {screened * curriculum.n:,} screening rollouts"
    yield "a step", f"{batch.prompts:,} prompts x {batch.group_size} rollouts = {batch.rollouts:,} rollouts"
    yield (
        "",
        f"{batch.mini_batches} mini-batches of {batch.mini_batch_prompts:,} prompts x {batch.epochs} "
        f"(ppo_epochs) = {batch.updates} updates",
    )
    yield (
        "",
        f"{batch.rows_per_rank:,} rows on each of {batch.ranks} ranks, {batch.update_rows_per_rank:,} of an update",
    )
    steps = config.trainer.total_training_steps
    if steps is not None:
        yield (
            "the run",
            f"{steps:,} steps, {steps * batch.updates:,} updates, {steps * batch.rollouts:,} rows trained on",
        )


def _golden_step(config: DictConfig) -> Iterator[tuple[str, str]]:
    golden, ranks = config.golden, _ranks(config)
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


def _memory(config: DictConfig) -> Iterator[tuple[str, str]]:
    model, rollout = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    actor, ranks = config.actor_rollout_ref.actor, _ranks(config)
    path = model.get("hf_config_path") or model.path
    try:
        model_config = _local_model_config(path, bool(model.get("trust_remote_code", False)))
        parameters = num_parameters(model_config)
        lora = num_lora_parameters(model_config, model.lora_rank, _targets(model)) if model.lora_rank > 0 else 0
    except (OSError, ValueError) as error:
        yield (
            "memory",
            f"not estimated: the configuration of {path} is neither local nor cached, or of no language model",
        )
        yield "", f"({str(error).splitlines()[0]})"
        return
    optimizer, fsdp = actor.optim, actor.fsdp_config
    states = OPTIMIZER_STATES.get(optimizer.optimizer, 2)
    if optimizer.optimizer == "SGD" and (optimizer.get("override_optimizer_config") or {}).get("momentum"):
        states = 1
    gpu_bytes = _gpu_bytes(config)
    estimate = memory_estimate(
        parameters + lora,
        num_trained=lora or None,
        num_shards=fsdp.fsdp_size if 0 < fsdp.fsdp_size < ranks else ranks,
        tensor_parallel=rollout.tensor_model_parallel_size,
        weight_bytes=BYTES.get(str(fsdp.model_dtype), 4),
        serving_bytes=BYTES.get(str(rollout.dtype), 2),
        optimizer_states=states,
        is_offloaded=(fsdp.param_offload, fsdp.optimizer_offload),
        utilization=rollout.gpu_memory_utilization,
        gpu_bytes=gpu_bytes,
    )
    trained = f", {lora:,} of LoRA are trained" if lora else ""
    yield "model", f"{path}: {parameters:,} parameters{trained}"
    where = "rank" if config.trainer.device == "cpu" else "GPU"
    yield (
        f"memory a {where}",
        f"update {_size(estimate['update'])}: weights {_size(estimate['weights'])}, gradients "
        f"{_size(estimate['gradients'])}, {optimizer.optimizer} {_size(estimate['optimizer'])}; and activations",
    )
    engine = f"generation {_size(estimate['generation'])}, and the engine's weights {_size(estimate['serving'])}"
    if config.trainer.device == "cpu":
        fixed = (rollout.engine_kwargs.get("vllm") or {}).get("kv_cache_memory_bytes")
        yield "", engine + (f", KV cache {_size(fixed)}" if fixed else "")
    elif "kv_cache" in estimate:
        yield "", f"{engine}, KV cache at most {_size(estimate['kv_cache'])} of this machine's {_size(gpu_bytes or 0)}"
    else:
        yield "", engine
    if config.trainer.device != "cpu":
        share = f"gpu_memory_utilization={rollout.gpu_memory_utilization}"
        yield "", f"at {share}: more than {_size(estimate['smallest_gpu'])} a GPU"
    # verl: FSDP2 with CPUOffloadPolicy (FSDPEngine._build_fsdp_module, forward_only).
    if actor.use_kl_loss and not lora:
        yield "", f"the reference policy waits in the host's memory: {_size(estimate['weights'])} a rank"
    if config.critic.get("enable") or config.algorithm.adv_estimator == "gae":
        yield "", "the critic comes on top, about as much as the actor's update"


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


def _size(num_bytes: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if abs(num_bytes) >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes / 2**10:.1f} KiB"
