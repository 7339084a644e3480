"""Arithmetic on a configuration: the numbers of a step, the bytes of a model."""

from dataclasses import dataclass
from typing import Any

# Tensors that an optimizer of torch.optim keeps per trained weight; Adam keeps two moments. Names in lower case.
OPTIMIZER_STATES = {"adam": 2, "adamw": 2, "sgd": 0}
BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True)
class BatchArithmetic:
    """Numbers of one training step.

    Attributes:
        prompts: Prompts per training batch.
        group_size: Rollouts per prompt.
        mini_batch_prompts: Prompts per update.
        epochs: Passes over a batch.
        ranks: Ranks that share the rows; with sequence parallelism, groups of ranks.
    """

    prompts: int
    group_size: int
    mini_batch_prompts: int
    epochs: int
    ranks: int

    @property
    def rollouts(self) -> int:
        """Rows per batch."""
        return self.prompts * self.group_size

    @property
    def mini_batches(self) -> int:
        """Updates per epoch."""
        return -(-self.prompts // self.mini_batch_prompts)

    @property
    def updates(self) -> int:
        """Updates per step."""
        return self.mini_batches * self.epochs

    @property
    def rows_per_rank(self) -> int:
        """Rows of the whole batch per rank; the last rank may have fewer."""
        return -(-self.rollouts // self.ranks)

    @property
    def update_rows_per_rank(self) -> int:
        """Rows of one update per rank."""
        return -(-self.mini_batch_prompts * self.group_size // self.ranks)


@dataclass(frozen=True)
class Storage:
    """How the trainer's tensors are stored.

    Attributes:
        weight_bytes: Bytes per weight.
        gradient_bytes: Bytes per gradient.
        master_bytes: Bytes of the optimizer's copy per trained weight; 0: it updates the weights directly.
        weight_shards: Ranks that share the weights.
        gradient_shards: Ranks that share the gradients.
        optimizer_shards: Ranks that share the optimizer's state.
        keeps_gradients: Whether gradients have their own buffer, which stays after the update.
    """

    weight_bytes: int = 4
    gradient_bytes: int = 4
    master_bytes: int = 0
    weight_shards: int = 1
    gradient_shards: int = 1
    optimizer_shards: int = 1
    keeps_gradients: bool = False

    @classmethod
    def sharded(cls, ranks: int, weight_bytes: int = 4) -> "Storage":
        """The FSDP layout: this many ranks share everything, and gradients have the weights' type."""
        return cls(weight_bytes, weight_bytes, 0, ranks, ranks, ranks)


def memory_estimate(
    num_parameters: int,
    *,
    num_trained: int | None = None,
    storage: Storage | None = None,
    tensor_parallel: int = 1,
    serving_bytes: int = 2,
    optimizer_states: int = 2,
    is_offloaded: tuple[bool, bool] = (False, False),
    utilization: float = 0.5,
    gpu_bytes: int | None = None,
) -> dict[str, int]:
    """Bytes on each GPU that follow from the number of parameters.

    P: parameters. L: those that are trained (LoRA's factors, or all). S: ranks that share the trainer's tensors. W:
    tensor-parallel ranks of one engine. u: `gpu_memory_utilization`. M: bytes of a GPU.

                   FSDP        Megatron                  T: TP x PP; S: all ranks
        weights    4 P / S     2 P / T     float32 whatever the forward computes in, its copies in bf16 live for one
                                           layer; Megatron's are bf16
        gradients  4 L / S     4 L / T     in the weights' own type; Megatron's in float32
        optimizer  8 L / S     12 L / S    Adam's two moments in float32, nothing with SGD; Megatron's float32 weights
        serving    2 P / W                 bf16 in the engine
        KV cache   u M - serving

    FSDP's are ZeRO stage 3 (Rajbhandari et al. 2020, arXiv:1910.02054, section 5), which PyTorch's FSDP
    implements (Zhao et al. 2023, arXiv:2304.11277); that paper's bf16 weights are absent, since FSDP casts each layer
    when it is needed. verl's defaults for the types: trainer/config/engine/fsdp.yaml, `model_dtype`. u: vLLM's share of
    all memory, including its weights and activations, so the KV cache is at most that.

    Not counted: activations, logits, gathered layers, NCCL's and CUDA's own memory.

    Args:
        num_parameters: P.
        num_trained: L; None: all.
        storage: Storage of the trainer's tensors; None: float32 on one rank. VeOmni's and torchtitan's are like FSDP's.
        tensor_parallel: W.
        serving_bytes: Bytes per weight of the engine.
        optimizer_states: Tensors of the optimizer per trained weight.
        is_offloaded: Whether (weights and gradients, optimizer) wait in the host's memory while they are not used.
        utilization: u.
        gpu_bytes: M; None: unknown.

    Returns:
        weights, gradients, optimizer, serving; `update`: the trainer's sum; `generation`: the part of it that stays
        next to the engine; `smallest_gpu`: the smallest M with room for both phases; with `gpu_bytes`, kv_cache, which
        is negative if even the engine's weights do not fit.
    """
    trained = num_parameters if num_trained is None else num_trained
    stored = storage or Storage()
    weights = _share(stored.weight_bytes * num_parameters, stored.weight_shards)
    gradients = _share(stored.gradient_bytes * trained, stored.gradient_shards)
    optimizer = _share((4 * optimizer_states + stored.master_bytes) * trained, stored.optimizer_shards)
    serving = _share(serving_bytes * num_parameters, tensor_parallel)
    # FSDP frees gradients after the update.
    kept = weights + (gradients if stored.keeps_gradients else 0)
    generation = (0 if is_offloaded[0] else kept) + (0 if is_offloaded[1] else optimizer)
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
    """Number of parameters of a transformers configuration's causal language model, tied ones once; creates no
    weights."""
    return sum(parameter.numel() for parameter in _on_meta(model_config).parameters())


def num_lora_parameters(model_config: Any, rank: int, targets: str | list[str]) -> int:
    """Number of LoRA parameters: rank x (inputs + outputs) of every linear module that PEFT would choose.

    Args:
        model_config: Configuration of transformers.
        rank: Rank of the factors.
        targets: `all-linear` (all except the output layer), or suffixes of module names.
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


def size(num_bytes: int) -> str:
    """Bytes as text."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if abs(num_bytes) >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes / 2**10:.1f} KiB"
