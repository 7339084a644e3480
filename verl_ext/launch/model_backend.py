"""verl's model engines, which train the actor, the reference policy and the critic, and their effect on a run. Pure.

`model_engine` chooses files of verl's configuration, and with them the options of the engine below `actor`. How many
ranks share a row, a micro-batch and a weight follows from these, by each engine's own rule:

    engine          rows are divided among a micro-batch holds ppo_max_token_len_per_gpu x
    dp (FSDP)       ranks / Ulysses                  Ulysses
    Megatron        ranks / (TP x PP x CP)           CP
    VeOmni          ranks / Ulysses                  Ulysses
    torchtitan      DP replicate x DP shard          TP

TP, PP, CP: ranks of tensor, pipeline and context parallelism. The rules are those of `get_data_parallel_size` and of
`sp_size` in verl/workers/engine/*/transformer_impl.py (0.9.1).

Simplification: experts of a mixture count as weights like all others, whatever the expert parallelism.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.cluster.pools import num_ranks
from verl_ext.launch.estimate import BYTES, Storage

ACTOR, REFERENCE, CRITIC = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"
LORA_RANK, MEGATRON_LORA_RANK = "actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank"


@dataclass(frozen=True)
class Layout:
    """How an engine distributes batches and a model over the ranks.

    Attributes:
        data_parallel: Number of groups of ranks with separate rows.
        token_ranks: A micro-batch may have this many times `ppo_max_token_len_per_gpu` tokens (verl's `sp_size`).
        storage: Storage of the model's weights, gradients and optimizer.
    """

    data_parallel: int
    token_ranks: int
    storage: Storage


@dataclass(frozen=True)
class ModelEngine:
    """One of verl's model engines.

    Attributes:
        name: Its value of `model_engine`.
        strategies: The values of `strategy` that belong to this engine.
        node: Its options, below the actor and the reference policy.
        sizes: Options of `node` whose product must divide the ranks.
        lay_out: Layout of a model's node (such as the actor's) on this many ranks.
        critic_node: Its options below the critic.
        saved_by: Options of `node` that determine a checkpoint's layout, without which it cannot be read.
        lora_rank: The option whose LoRA factors it trains; None: it trains all weights.
        has_critic: Whether it trains a critic.
        is_shared: Whether its groups of ranks are created once per process, by the first model, so that all have the
            same sizes.
        optimizer_states: Differences from `estimate.OPTIMIZER_STATES`.
    """

    name: str
    strategies: tuple[str, ...]
    node: str
    sizes: tuple[str, ...]
    lay_out: Callable[[Mapping[str, Any], int], Layout]
    critic_node: str
    saved_by: tuple[str, ...] = ()
    lora_rank: str | None = None
    has_critic: bool = True
    is_shared: bool = False
    optimizer_states: Mapping[str, int] = field(default_factory=dict)


def _fsdp(model: Mapping[str, Any], ranks: int) -> Layout:
    node = model["fsdp_config"]
    # verl copies the first to the second.
    ulysses = model.get("ulysses_sequence_parallel_size") or 1
    ulysses = ulysses if ulysses > 1 else node.get("ulysses_sequence_parallel_size") or 1
    size = BYTES.get(str(node["model_dtype"]), 4)
    shards = node["fsdp_size"] if 0 < node["fsdp_size"] < ranks else ranks
    return Layout(max(1, ranks // ulysses), ulysses, Storage.sharded(shards, size))


def _megatron(model: Mapping[str, Any], ranks: int) -> Layout:
    node = model["megatron"]
    model_parallel = node["tensor_model_parallel_size"] * node["pipeline_model_parallel_size"]
    context = node["context_parallel_size"]
    # All ranks get all rows then, and Megatron's scheduler divides them.
    data_parallel = 1 if node["dynamic_context_parallel"] else max(1, ranks // (model_parallel * context))
    is_fsdp = node["use_megatron_fsdp"]
    storage = Storage(
        weight_bytes=2,
        gradient_bytes=4,
        master_bytes=4,
        weight_shards=ranks if is_fsdp else model_parallel,
        gradient_shards=ranks if is_fsdp else model_parallel,
        optimizer_shards=ranks if is_fsdp or node["use_distributed_optimizer"] else model_parallel,
        keeps_gradients=True,
    )
    return Layout(data_parallel, context, storage)


def _veomni(model: Mapping[str, Any], ranks: int) -> Layout:
    node = model["veomni"]
    ulysses = node["ulysses_parallel_size"]
    data_parallel = max(1, ranks // ulysses)
    shards = node["fsdp_size"] if 0 < node["fsdp_size"] < data_parallel else data_parallel
    # VeOmni also shards a weight over the ranks of a sequence (`dp_shard_sp`).
    return Layout(data_parallel, ulysses, Storage.sharded(shards * ulysses, 4 if node["mixed_precision"] else 2))


def _torchtitan(model: Mapping[str, Any], ranks: int) -> Layout:
    node = model["torchtitan"]
    replicas, tensor = node["data_parallel_replicate_size"], node["tensor_parallel_size"]
    # float32: the default of torchtitan's TrainingConfig, which verl does not change.
    return Layout(replicas * node["data_parallel_shard_size"], tensor, Storage.sharded(max(1, ranks // replicas), 4))


FSDP = ModelEngine(
    "dp",
    ("fsdp2", "fsdp"),
    "fsdp_config",
    ("ulysses_sequence_parallel_size",),
    _fsdp,
    critic_node="fsdp",
    # The shard of each rank, whichever ranks share a sequence.
    saved_by=("fsdp_size",),
    lora_rank=LORA_RANK,
)
_MEGATRONS = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
MEGATRON = ModelEngine(
    "megatron",
    ("megatron",),
    "megatron",
    _MEGATRONS,
    _megatron,
    critic_node="megatron",
    saved_by=_MEGATRONS,
    lora_rank=MEGATRON_LORA_RANK,
    is_shared=True,
    # With Megatron's momentum.
    optimizer_states={"sgd": 1, "muon": 1},
)
TORCHTITAN = ModelEngine(
    "torchtitan",
    ("torchtitan",),
    "torchtitan",
    (
        "data_parallel_replicate_size",
        "data_parallel_shard_size",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "context_parallel_size",
    ),
    _torchtitan,
    critic_node="torchtitan",
    has_critic=False,
)
VEOMNI = ModelEngine(
    "veomni",
    ("veomni",),
    "veomni",
    ("ulysses_parallel_size",),
    _veomni,
    critic_node="veomni",
    saved_by=("ulysses_parallel_size", "fsdp_size"),
    is_shared=True,
)

MODEL_ENGINES = {engine.name: engine for engine in (FSDP, MEGATRON, TORCHTITAN, VEOMNI)}


def model_engine(config: DictConfig) -> ModelEngine:
    """The engine of a run, whose `model_engine` is one of `MODEL_ENGINES`."""
    return MODEL_ENGINES[config.model_engine]


def layout(config: DictConfig) -> Layout:
    """Layout of a run's actor."""
    return model_engine(config).lay_out(config.actor_rollout_ref.actor, num_ranks(config))


def has_vanilla_bridge(config: DictConfig) -> bool:
    """Whether mbridge converts Megatron's weights to Hugging Face names, instead of megatron-bridge."""
    return bool(OmegaConf.select(config, f"{ACTOR}.megatron.vanilla_mbridge"))


def has_critic(config: DictConfig) -> bool:
    """Same as `verl.trainer.ppo.utils.need_critic`, which loads torch."""
    enable = config.critic.enable
    return config.algorithm.adv_estimator == "gae" if enable is None else bool(enable)


def layout_keys(config: DictConfig) -> tuple[str, ...]:
    """Options that determine the layout of this engine's checkpoints, which cannot be read with other values."""
    engine = model_engine(config)
    nodes = (f"{ACTOR}.{engine.node}", f"{CRITIC}.{engine.critic_node}")
    return (
        "model_engine",
        f"{ACTOR}.strategy",
        f"{CRITIC}.strategy",
        *(f"{node}.{size}" for node in nodes for size in engine.saved_by),
    )


def layout_problems(config: DictConfig) -> Iterator[str]:
    """Problems with the sizes of a run's groups of ranks, one sentence each.

    Args:
        config: Configuration of a run that `compatibility` accepts.
    """
    engine, ranks = model_engine(config), num_ranks(config)
    sizes = _sizes(config, ACTOR, engine.node, engine)
    wrong = [name for name, size in sizes.items() if not isinstance(size, int) or size < 1]
    if wrong:
        yield from (f"{name} must be a whole number of at least 1, got {sizes[name]!r}" for name in wrong)
        return
    product = math.prod(sizes.values())
    if engine is TORCHTITAN and product != ranks:
        yield (
            f"{_product(sizes)}, but torchtitan divides trainer.nnodes x n_gpus_per_node = {ranks} ranks without "
            f"remainder: set {ACTOR}.torchtitan.data_parallel_shard_size, so that the product of its sizes is {ranks}"
        )
    elif ranks % product:
        yield (
            f"{_product(sizes)} does not divide trainer.nnodes x n_gpus_per_node = {ranks} ranks: set sizes whose "
            "product does"
        )
    elif engine in (FSDP, VEOMNI):
        yield from _shard_problems(config, engine, ranks // product if engine is VEOMNI else ranks)
    yield from _differences(config, engine, sizes)


def _shard_problems(config: DictConfig, engine: ModelEngine, ranks: int) -> Iterator[str]:
    """Problems with the number of ranks that share the weights."""
    key = f"{ACTOR}.{engine.node}.fsdp_size"
    size = OmegaConf.select(config, key)
    if size == 0 or (0 < size < ranks and ranks % size):
        yield f"{key}={size} does not divide {ranks} ranks: set it to a divisor, or to -1 for all of them"


def _differences(config: DictConfig, engine: ModelEngine, sizes: Mapping[str, int]) -> Iterator[str]:
    """Problems of the reference policy and the critic, if the first model of a process decides for all."""
    if not engine.is_shared:
        return
    others = [(REFERENCE, engine.node)] if has_reference(config) else []
    others += [(CRITIC, engine.critic_node)] if has_critic(config) else []
    for owner, node in others:
        theirs = _sizes(config, owner, node, engine)
        for (name, size), (other_name, other) in zip(sizes.items(), theirs.items(), strict=True):
            if size != other:
                yield (
                    f"{other_name}={other}, but {name}={size}: verl creates this engine's groups of ranks once for all "
                    "models of a process. Set both to the same"
                )


def has_reference(config: DictConfig) -> bool:
    """Same as `verl.trainer.ppo.utils.need_reference_policy`, which loads torch."""
    return bool(config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward)


def _sizes(config: DictConfig, owner: str, node: str, engine: ModelEngine) -> dict[str, Any]:
    """The sizes of a model by their options' full names."""
    found: dict[str, Any] = {}
    for size in engine.sizes:
        # verl takes FSDP's from the model's, if that is set.
        above = OmegaConf.select(config, f"{owner}.{size}") or 1
        key = f"{owner}.{size}" if above != 1 else f"{owner}.{node}.{size}"
        found[key] = OmegaConf.select(config, key)
    return found


def _product(sizes: Mapping[str, int]) -> str:
    """As text, without those that are 1."""
    named = [(name, size) for name, size in sizes.items() if size != 1] or list(sizes.items())
    (first, size), *others = named
    text = " x ".join([f"{first}={size}", *(f"{name.rpartition('.')[2]}={other}" for name, other in others)])
    return f"{text} = {math.prod(sizes.values())}" if others else text
