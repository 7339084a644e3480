"""Gaps of verl's v1 trainer: options that it does not read, and estimators for which it has no data.

verl 0.9.1 inherited these options from its older trainer and workers: it accepts them, and then runs without them. Each
is refused before Ray starts, unless its value is that which verl uses anyway. tests/compat/test_v1_gaps.py searches
verl's code, so that a later release that reads one of them is noticed.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.launch.compatibility import Unsupported, is_set
from verl_ext.launch.model_backend import ACTOR, CRITIC, FSDP, MEGATRON, REFERENCE, has_critic, has_reference

_MODEL, _ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
_ENGINE = "verl's engine of this model_engine"
_Condition = Callable[[DictConfig], bool]


def _always(_: DictConfig) -> bool:
    return True


def _unread(
    key: str,
    used: Any,
    remedy: str,
    *,
    twin: str | None = None,
    only: _Condition = _always,
    reader: str = "verl's v1 trainer",
) -> Unsupported:
    """An option that verl does not read.

    Args:
        key: Its name.
        used: The value that describes what verl does anyway; this is also its default.
        remedy: What to set instead.
        twin: The option that verl reads instead; the two may also have the same value.
        only: Where the row applies.
        reader: What does not read it.
    """

    def is_asked(value: Any, config: DictConfig) -> bool:
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        is_as_twin = twin is not None and plain == OmegaConf.select(config, twin)
        return only(config) and plain != used and not is_as_twin

    return Unsupported(key, is_asked, f"{reader} does not read it. {remedy}")


def _differs(key: str, twin: str) -> Unsupported:
    """An option that verl does not read because it uses that of the model."""
    return Unsupported(
        key,
        lambda value, config: value != OmegaConf.select(config, twin),
        f"verl's model engines do not read it. Set {twin}, and leave it out",
    )


def _is_fsdp2(config: DictConfig) -> bool:
    return config.model_engine == FSDP.name and config.actor_rollout_ref.actor.strategy == "fsdp2"


def _is_megatron(config: DictConfig) -> bool:
    return config.model_engine == MEGATRON.name


def _is_not_megatron(config: DictConfig) -> bool:
    return not _is_megatron(config)


def _is_dynamic_sampling(config: DictConfig) -> bool:
    return bool(config.algorithm.filter_groups.enable)


# ------------------------------ training ------------------------------

_FSDP_NODES = (
    (f"{ACTOR}.fsdp_config", _is_fsdp2),
    (f"{REFERENCE}.fsdp_config", lambda config: _is_fsdp2(config) and has_reference(config)),
    (f"{CRITIC}.fsdp", lambda config: _is_fsdp2(config) and has_critic(config)),
)

_ACTOR = (
    _unread(f"{ACTOR}.grad_clip", 1.0, f"Set {ACTOR}.optim.clip_grad", twin=f"{ACTOR}.optim.clip_grad"),
    *(
        _unread(
            f"{owner}.use_torch_compile",
            True,
            f"Set {owner}.fsdp_config.use_torch_compile (other engines have their own option of this name, or none), "
            "and this one to the same",
            twin=f"{owner}.fsdp_config.use_torch_compile",
            only=where,
        )
        for owner, where in ((ACTOR, _always), (REFERENCE, has_reference))
    ),
    _differs(f"{ACTOR}.use_fused_kernels", f"{_MODEL}.use_fused_kernels"),
    _differs(f"{ACTOR}.use_remove_padding", f"{_MODEL}.use_remove_padding"),
    _unread(
        f"{ACTOR}.freeze_vision_tower",
        False,
        f"Leave it at false: all weights are trained, or with {_MODEL}.lora_rank those of {_MODEL}.target_modules",
    ),
    _unread(f"{ACTOR}.use_prefix_grouper", False, "Leave it at false"),
    _unread(f"{ACTOR}.calculate_sum_pi_squared", False, "Leave it at false"),
    *(
        _unread(
            f"{node}.use_orig_params",
            False,
            "Leave it at false, or set strategy=fsdp (FSDP1)",
            only=where,
            reader="FSDP2",
        )
        for node, where in _FSDP_NODES
    ),
    *(
        _unread(
            f"{node}.wrap_policy.min_num_params",
            0,
            f"Leave it at 0 and set +{node}.wrap_policy.transformer_layer_cls_to_wrap, or strategy=fsdp (FSDP1)",
            only=where,
            reader="FSDP2",
        )
        for node, where in _FSDP_NODES
    ),
    _unread(
        f"{_MODEL}.mtp.enable_train",
        False,
        "Leave it at false, or set model_engine=megatron",
        only=_is_not_megatron,
        reader=_ENGINE,
    ),
)

_PACKED = "+critic.ppo_infer_max_token_len_per_gpu"

_CRITIC = (
    _unread(f"{CRITIC}.grad_clip", 1.0, "Set critic.optim.clip_grad", twin="critic.optim.clip_grad", only=has_critic),
    _unread(
        f"{CRITIC}.use_dynamic_bsz",
        True,
        f"Set it to true: a critic's micro-batches are filled up to {_PACKED} tokens (default 32768), whatever "
        "micro-batch size is set",
        only=has_critic,
    ),
    *(
        _unread(
            f"{CRITIC}.{name}",
            32768,
            f"Set {_PACKED}, which limits a critic's updates and values",
            twin=f"{CRITIC}.ppo_infer_max_token_len_per_gpu",
            only=has_critic,
        )
        for name in ("ppo_max_token_len_per_gpu", "forward_max_token_len_per_gpu")
    ),
    _unread(
        f"{CRITIC}.ulysses_sequence_parallel_size",
        1,
        "Set critic.fsdp.ulysses_sequence_parallel_size",
        twin="critic.fsdp.ulysses_sequence_parallel_size",
        only=has_critic,
    ),
)

# Megatron's LoRA option -> verl's default, and the option of the other engines, if there is one.
_LORA: Mapping[str, tuple[Any, str | None]] = {
    "type": ("lora", None),
    "alpha": (32, "lora_alpha"),
    "dropout": (0.0, None),
    "target_modules": (["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"], "target_modules"),
    "exclude_modules": ([], "exclude_modules"),
    "dropout_position": ("pre", None),
    "lora_A_init_method": ("xavier", None),
    "lora_B_init_method": ("zero", None),
    "a2a_experimental": (False, None),
    "dtype": (None, None),
    "adapter_path": (None, "lora_adapter_path"),
    "freeze_vision_model": (True, None),
    "freeze_vision_projection": (True, None),
    "freeze_language_model": (True, None),
}
# For the actor's rank `compatibility` has rows.
_LORA_OF_CRITIC = {"rank": (0, "lora_rank"), **_LORA}
# Defaults of the options of the other engines.
_LORA_ELSEWHERE = {
    "lora_rank": 0,
    "lora_alpha": 16,
    "target_modules": "all-linear",
    "exclude_modules": None,
    "lora_adapter_path": None,
}


def _lora_options(
    model: str, options: Mapping[str, tuple[Any, str | None]], has_model: _Condition
) -> Iterator[Unsupported]:
    """Megatron's options of LoRA with another engine, and those of the other engines with Megatron."""

    def elsewhere(config: DictConfig) -> bool:
        return has_model(config) and not _is_megatron(config)

    def with_megatron(config: DictConfig) -> bool:
        return has_model(config) and _is_megatron(config)

    for name, (default, other) in options.items():
        key = f"{model}.lora.{name}"
        if other is None:
            remedy = "Leave it out: only Megatron reads it"
            yield _unread(key, default, remedy, only=elsewhere, reader=_ENGINE)
            continue
        other_key = f"{model}.{other}"
        remedy = f"Set {other_key}, which engines other than Megatron read"
        yield _unread(key, default, remedy, twin=other_key, only=elsewhere, reader=_ENGINE)
        remedy = f"With Megatron set {key}"
        yield _unread(other_key, _LORA_ELSEWHERE[other], remedy, twin=key, only=with_megatron, reader=_ENGINE)


_LORA_OPTIONS = (
    *_lora_options(_MODEL, _LORA, _always),
    *_lora_options(f"{CRITIC}.model", _LORA_OF_CRITIC, has_critic),
)

# ------------------------------ rollouts, data and the run ------------------------------

_ROLLOUTS = (
    _unread(
        f"{_ROLLOUT}.do_sample",
        True,
        "Leave it at true: rollout.temperature decides (val_kwargs.do_sample is read)",
    ),
    _unread(f"{_ROLLOUT}.over_sample_rate", 0, "Leave it at 0"),
    _unread(f"{_ROLLOUT}.multi_stage_wake_up", False, "Leave it at false"),
    _unread(
        f"{_ROLLOUT}.agent.custom_async_server.path",
        None,
        f"Leave it at null: {_ROLLOUT}.agent.agent_loop_manager_class names your own manager",
    ),
)

_DATA = (
    _unread("data.reward_fn_key", "data_source", "Leave it at data_source, and give your column this name"),
    _unread("data.return_raw_input_ids", False, "Leave it at false"),
    _unread("data.return_raw_chat", True, "Leave it at true: agent loops get the messages"),
    _unread("data.return_full_prompt", False, "Leave it at false"),
)

_RUN = (
    _unread("actor_rollout_ref.nccl_timeout", 600, "Leave it at 600"),
    _unread("trainer.balance_batch", True, "Leave it at true: the rows of a batch are always balanced over the ranks"),
    _unread("trainer.esi_redundant_time", 0, "Leave it at 0, and set trainer.save_freq"),
    _unread("trainer.ray_wait_register_center_timeout", 300, "Leave it at 300"),
    _unread(
        "trainer.resume_from_path",
        None,
        "Set trainer.resume_mode=resume_path as well",
        only=lambda config: config.trainer.resume_mode != "resume_path",
    ),
)

# ------------------------------ algorithms ------------------------------

_NO_SUMS = (
    "it needs the sums of squared probabilities (actor.calculate_sum_pi_squared), which verl's v1 trainer does not "
    "compute, so that the first step would fail. Set another estimator, such as rloo"
)
_WITHOUT_DATA = {
    "optimal_token_baseline": _NO_SUMS,
    "tir_optimal_token_baseline": _NO_SUMS,
    "remax": "it needs the reward of a greedy rollout for every prompt, which verl's v1 trainer does not generate, so "
    "that the first step would fail. Set another estimator, such as rloo",
    "gdpo": "it needs every part of a reward, which verl's v1 trainer does not give it, so that the first step would "
    "fail. Add the parts up in your reward function, and set another estimator, such as grpo",
}


def _is_estimator(name: str) -> Callable[[Any, DictConfig], bool]:
    return lambda value, _: value == name


_ALGORITHMS = (
    *(
        Unsupported("algorithm.adv_estimator", _is_estimator(name), sentence)
        for name, sentence in _WITHOUT_DATA.items()
    ),
    Unsupported(
        "algorithm.use_pf_ppo",
        is_set,
        "verl's v1 trainer reads it only with adv_estimator=gae, and then stores the advantages of resampled rows as "
        "those of other rows. Leave it at false",
    ),
    _unread(
        "algorithm.filter_groups.max_num_gen_batches",
        0,
        "Leave it at 0: filter_groups.max_inflight_gen_batches limits what is generated at once",
        only=_is_dynamic_sampling,
    ),
)

V1_GAPS = (*_ACTOR, *_CRITIC, *_LORA_OPTIONS, *_ROLLOUTS, *_DATA, *_RUN, *_ALGORITHMS)
