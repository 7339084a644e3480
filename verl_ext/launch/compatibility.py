"""Features of verl that this plug-in does not support: one row each, rejected before Ray starts with cause and remedy.

A row is about a feature of verl that would be ignored, or fail hours later. `SHARED` applies to every recipe; a recipe
lists its own rows in `Recipe.unsupported`. docs/compatibility.md has the same rows, and the supported features.
"""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.cluster.pools import has_engines_apart
from verl_ext.core.settings import refusal
from verl_ext.launch.model_backend import LORA_RANK, MEGATRON_LORA_RANK, MODEL_ENGINES, TORCHTITAN, has_critic

MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
OWN_MANAGER = "verl_ext.serving.agent_loop.SignalAgentLoopManager"
# verl's default: log-probs after temperature, top_p and top_k.
PROCESSED = "processed_logprobs"
_ABSENT = object()


@dataclass(frozen=True)
class Unsupported:
    """A feature that a run must not use.

    Attributes:
        key: The option that enables it.
        is_asked: Whether the option's value enables it in this configuration.
        sentence: Why not, and what to set instead; begins with a lower-case letter, after "KEY=VALUE: ".
    """

    key: str
    is_asked: Callable[[Any, DictConfig], bool]
    sentence: str

    def problem(self, config: DictConfig) -> str | None:
        """The problem of a configuration, or None."""
        value = OmegaConf.select(config, self.key, default=_ABSENT)
        if value is _ABSENT or not self.is_asked(value, config):
            return None
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        return f"{self.key}={plain}: {self.sentence}"


def is_set(value: Any, _: DictConfig) -> bool:
    """Whether the option is not at a default that means no."""
    return bool(value)


def is_none_of(*allowed: Any) -> Callable[[Any, DictConfig], bool]:
    """Whether the option has another value than these."""
    return lambda value, _: value not in allowed


def is_no_manager_of_ours(value: Any, _: DictConfig) -> bool:
    """Whether the agent loop manager does not extend `OWN_MANAGER`, as some recipes need."""
    if not value or value == OWN_MANAGER:
        return not value
    module, _, name = str(value).rpartition(".")
    try:
        manager = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):  # verl reports which
        return False
    return OWN_MANAGER not in (f"{base.__module__}.{base.__qualname__}" for base in manager.__mro__)


def is_colocated(value: Any, config: DictConfig) -> bool:
    """Whether the reward model has no separate devices: verl then queries it after the rollouts of a step."""
    return bool(value) and not config.reward.reward_model.enable_resource_pool


def _with_the_guard(is_asked: Callable[[Any, DictConfig], bool]) -> Callable[[Any, DictConfig], bool]:
    return lambda value, config: (
        OmegaConf.select(config, "engine_guard.max_probs_diff") is not None and is_asked(value, config)
    )


def _cuts_reported_probabilities(*whole: Any) -> Callable[[Any, DictConfig], bool]:
    """Whether samples come from a truncated distribution, with the engine reporting its log-probs."""
    processed = "actor_rollout_ref.rollout.logprobs_mode"
    return _with_the_guard(
        lambda value, config: value not in whole and OmegaConf.select(config, processed, default=PROCESSED) == PROCESSED
    )


def _with_a_critic(is_asked: Callable[[Any, DictConfig], bool]) -> Callable[[Any, DictConfig], bool]:
    return lambda value, config: has_critic(config) and is_asked(value, config)


def _is_not_the_actors(value: Any, config: DictConfig) -> bool:
    return value != config.actor_rollout_ref.actor.strategy


def _is_of_another_engine(value: Any, config: DictConfig) -> bool:
    engine = MODEL_ENGINES.get(config.model_engine)
    return engine is not None and value not in engine.strategies


def _is_on_the_cpu(is_asked: Callable[[Any, DictConfig], bool]) -> Callable[[Any, DictConfig], bool]:
    return lambda value, config: config.trainer.device == "cpu" and is_asked(value, config)


def _is_read_by_others(key: str) -> Callable[[Any, DictConfig], bool]:
    """Whether LoRA is enabled by an option that the model engine does not read."""

    def is_asked(value: Any, config: DictConfig) -> bool:
        engine = MODEL_ENGINES.get(config.model_engine)
        return bool(value) and engine is not None and engine.lora_rank != key

    return is_asked


def _sends_weights_without_adapter(value: Any, config: DictConfig) -> bool:
    return bool(value) and has_engines_apart(config) and not config.actor_rollout_ref.model.lora.merge


def _keeps_weights(config: DictConfig) -> bool:
    """Whether verl keeps the actor's weights on the CPU for old log-probs."""
    return has_engines_apart(config) and not OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode")


def _makes_whole_batches(updates: Any, config: DictConfig) -> bool:
    is_count = isinstance(updates, int) and updates > 0
    return is_count and config.data.train_batch_size == updates * config.actor_rollout_ref.actor.ppo_mini_batch_size


def _leaves_a_remainder(value: Any, config: DictConfig) -> bool:
    return bool(value) and config.data.train_batch_size % value != 0


def _when_stochastic(key: str, is_in_the_way: Callable[[Any], bool]) -> Callable[[Any, DictConfig], bool]:
    """Whether stochastic rounding is set while another option leaves nothing to round."""
    return lambda value, config: (
        value == "stochastic" and is_in_the_way(OmegaConf.select(config, f"actor_rollout_ref.{key}"))
    )


_WITHOUT_ADAPTER = (
    "verl sends engines on other devices the base weights without the adapter. Set "
    "actor_rollout_ref.model.lora.merge=true"
)
_NEVER_FINISHED = (
    "verl starts to save in the background, but never checks whether saving has ended, and never writes the files that "
    "complete the checkpoint. Set checkpoint.async_save=false"
)

_ROUNDING = "serving.rounding"

_NO_ROUNDING = (
    Unsupported(
        _ROUNDING,
        _when_stochastic("rollout.dtype", lambda dtype: dtype not in ("bfloat16", "bf16")),
        "weights are rounded to bfloat16, but this engine serves another dtype. Set serving.rounding=nearest, or "
        "actor_rollout_ref.rollout.dtype=bfloat16",
    ),
    Unsupported(
        _ROUNDING,
        lambda value, config: value == "stochastic" and config.model_engine != "dp",
        "weights are rounded where FSDP hands them over. Set serving.rounding=nearest, or model_engine=dp",
    ),
    Unsupported(
        _ROUNDING,
        _when_stochastic("actor.fsdp_config.model_dtype", lambda dtype: dtype not in (None, "fp32", "float32")),
        "the actor keeps no float32 weights to round. Set serving.rounding=nearest, or "
        "actor_rollout_ref.actor.fsdp_config.model_dtype=fp32",
    ),
    Unsupported(
        _ROUNDING,
        lambda value, config: any(
            _when_stochastic(f"model.{key}", bool)(value, config) for key in ("lora_rank", "lora_adapter_path")
        ),
        "LoRA adapters are served next to weights that do not change, or merged and rounded to nearest by verl itself. "
        "Set serving.rounding=nearest, and if small updates matter, leave actor_rollout_ref.model.lora.merge=false",
    ),
    Unsupported(
        _ROUNDING,
        _when_stochastic("rollout.checkpoint_engine.backend", lambda backend: backend == "delta_sharded"),
        "the checkpoint engine delta_sharded rounds to nearest itself. Set serving.rounding=nearest, or "
        "checkpoint_engine.backend=nccl",
    ),
    Unsupported(
        _ROUNDING,
        lambda value, config: any(
            _when_stochastic(key, bool)(value, config)
            for key in ("rollout.quantization", "actor.qat.enable", "actor.fsdp_config.qat.enable")
        ),
        "an engine that quantizes its weights rounds them to nearest once more. Set serving.rounding=nearest",
    ),
)

SHARED = (
    Unsupported(
        "trainer.v1.trainer_mode",
        is_none_of("sync", "colocate_async", "separate_async"),
        "the recipes' trainers are made over verl's own. Set it to sync, colocate_async or separate_async",
    ),
    Unsupported(
        "trainer.use_v1",
        is_none_of(True),
        "recipes extend verl's v1 trainer, and this is the older one. Leave trainer.use_v1=true",
    ),
    Unsupported(
        "actor_rollout_ref.hybrid_engine",
        lambda value, config: value is not True and not has_engines_apart(config),
        "actor and engines share their devices here. Leave actor_rollout_ref.hybrid_engine=true, or set "
        "trainer.v1.trainer_mode=separate_async",
    ),
    Unsupported(
        "actor_rollout_ref.rollout.nnodes",
        lambda value, config: not value and has_engines_apart(config),
        "the engines have their own devices. Set rollout.nnodes and rollout.n_gpus_per_node to their number, in "
        "addition to the trainer's",
    ),
    Unsupported(
        "actor_rollout_ref.rollout.checkpoint_engine.backend",
        lambda value, config: value == "naive" and has_engines_apart(config),
        "weights go from the actor's devices to the engines'. Set checkpoint_engine.backend=nccl (or another of "
        "verl's; on the CPU gloo)",
    ),
    Unsupported(
        "trainer.v1.separate_async.parameter_sync_step",
        lambda value, config: has_engines_apart(config) and not _makes_whole_batches(value, config),
        "this many updates of actor.ppo_mini_batch_size prompts must make up a batch of data.train_batch_size. Set "
        "train_batch_size = parameter_sync_step x ppo_mini_batch_size",
    ),
    Unsupported(LORA_RANK, _sends_weights_without_adapter, _WITHOUT_ADAPTER),
    Unsupported(MEGATRON_LORA_RANK, _sends_weights_without_adapter, _WITHOUT_ADAPTER),
    Unsupported(
        LORA_RANK,
        _is_read_by_others(LORA_RANK),
        "verl's engine of this model_engine does not read it. Leave it at 0: with Megatron set "
        "actor_rollout_ref.model.lora.rank; torchtitan and VeOmni train all weights",
    ),
    Unsupported(
        MEGATRON_LORA_RANK,
        _is_read_by_others(MEGATRON_LORA_RANK),
        "verl's engine of this model_engine does not read it. Leave it at 0: with FSDP set "
        "actor_rollout_ref.model.lora_rank; torchtitan and VeOmni train all weights",
    ),
    Unsupported(
        "actor_rollout_ref.rollout.name",
        _is_on_the_cpu(is_none_of("vllm")),
        "the CPU backend serves only with vLLM. Set rollout.name=vllm",
    ),
    Unsupported(
        "model_engine",
        is_none_of(*MODEL_ENGINES),
        "none of verl's model engines has this name. Set it to dp (FSDP), megatron, torchtitan or veomni",
    ),
    Unsupported(
        "model_engine",
        lambda value, config: value == TORCHTITAN.name and _keeps_weights(config),
        "separate_async keeps the actor's weights before old log-probs, which verl cannot do with torchtitan. Set "
        "another model_engine, or trainer.v1.trainer_mode=colocate_async",
    ),
    Unsupported(
        "model_engine", _is_on_the_cpu(is_none_of("dp")), "the CPU backend trains only with FSDP2. Leave it at dp"
    ),
    Unsupported(
        "actor_rollout_ref.actor.strategy",
        _is_of_another_engine,
        "it is of another engine than model_engine, whose options verl reads. Leave it out, or set model_engine; with "
        "model_engine=dp it is fsdp2 or fsdp",
    ),
    Unsupported(
        "actor_rollout_ref.actor.strategy",
        _is_on_the_cpu(lambda value, config: value == "fsdp"),
        "the CPU backend trains only with FSDP2. Leave it at fsdp2",
    ),
    Unsupported(
        "actor_rollout_ref.ref.strategy",
        _is_not_the_actors,
        "the reference policy uses the actor's engine. Leave it out: it is the actor's strategy",
    ),
    Unsupported(
        "critic.strategy",
        _with_a_critic(_is_not_the_actors),
        "the critic uses the actor's engine. Leave it out: it is the actor's strategy",
    ),
    Unsupported(
        "critic.strategy",
        _with_a_critic(lambda value, _: value in TORCHTITAN.strategies),
        "verl's torchtitan engine trains no critic. Set critic.enable=false, and another algorithm.adv_estimator than "
        "gae",
    ),
    Unsupported(
        "trainer.save_freq",
        lambda value, config: config.model_engine == TORCHTITAN.name and isinstance(value, int) and value > 0,
        "verl's torchtitan engine writes weights only at every 500th step, whatever is configured; other checkpoints "
        "would lack them. Set trainer.save_freq=-1: such a run cannot be resumed",
    ),
    Unsupported("actor_rollout_ref.actor.checkpoint.async_save", is_set, _NEVER_FINISHED),
    Unsupported("critic.checkpoint.async_save", _with_a_critic(is_set), _NEVER_FINISHED),
    Unsupported(
        "trainer.v1.sync.parameter_sync_step",
        _leaves_a_remainder,
        "data.train_batch_size must be a multiple of it: each of this many updates takes an equal share of the batch. "
        "Set it to a divisor, or leave it at 1",
    ),
    Unsupported(
        "algorithm.rollout_correction.bypass_mode",
        _with_the_guard(is_set),
        "the engine guard would compare the rollouts' probabilities with themselves. Set bypass_mode=false, or "
        "engine_guard.max_probs_diff=null to disable the guard",
    ),
    *(
        Unsupported(
            f"actor_rollout_ref.rollout.{key}",
            _cuts_reported_probabilities(*whole),
            "the engine reports probabilities over the remaining tokens, the actor computes them over all tokens, and "
            f"the engine guard would end the run. Set rollout.{key}={whole[0]} (val_kwargs.{key} is free), or "
            "engine_guard.max_probs_diff=null to disable the guard",
        )
        for key, whole in (("top_p", (1.0,)), ("top_k", (-1, 0)))
    ),
    *_NO_ROUNDING,
)


def choose_rounding(config: DictConfig) -> str | None:
    """Resolve `serving.rounding=auto` to stochastic, or to nearest if stochastic would have no effect.

    Returns:
        Why it is nearest, as text; None if it is not or if the user chose it.
    """
    if OmegaConf.select(config, _ROUNDING) != "auto":
        return None
    reasons = [row.sentence.split(". Set ")[0] for row in _NO_ROUNDING if row.is_asked("stochastic", config)]
    config.serving.rounding = "nearest" if reasons else "stochastic"
    return f"{_ROUNDING}=auto is nearest in this run: {reasons[0]}" if reasons else None


def check_compatibility(config: DictConfig, unsupported: Iterable[Unsupported]) -> None:
    """Reject options that would be ignored or fail.

    Args:
        config: Configuration of a run.
        unsupported: Rows of the recipes whose nodes it has, in addition to `SHARED`.

    Raises:
        ConfigError: names every row that the configuration violates.
    """
    problems = [row.problem(config) for row in (*SHARED, *unsupported)]
    found = [problem for problem in problems if problem is not None]
    if found:
        raise refusal(found)
