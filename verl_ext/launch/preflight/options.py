"""Options that nothing reads. Hydra rejects an unknown name, but not after a `+` and not in a separate file."""

import dataclasses
import difflib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

# Nodes with names defined elsewhere: arguments of Ray, of an engine, of a template, or of a user's class.
OPEN = (
    "ray_kwargs",
    "transfer_queue",
    "hydra",
    "engine_kwargs",
    "override_config",
    "override_optimizer_config",
    "override_transformer_config",
    "apply_chat_template_kwargs",
    "mm_processor_kwargs",
    "reward_kwargs",
    "sampler_kwargs",
    "tool_kwargs",
    "kw_args",
    "custom_backend_module",
    "teacher_models",
)

# Options that verl reads by name but that are in none of its YAML files.
READ_BY_VERL = {
    "data": {
        "cache_dir",
        "chat_template_func",
        "enable_thinking_default",
        "enable_thinking_key",
        "filter_prompts",
        "ignore_input_ids_mismatch",
        "limit_images",
        "max_length",
        "messages_key",
        "need_tools_kwargs",
        "pad_mode",
        "sampler",
        "tools_key",
    },
    "algorithm": {"gdpo_reward_keys", "gdpo_reward_weights"},
    "trainer": {"remove_previous_ckpt_in_save", "wandb_proxy"},
    "trainer.v1.sync": {"parameter_sync_step"},
    "reward.custom_reward_function": {"reward_kwargs"},
    "actor_rollout_ref.rollout": {"standalone_gpu_memory_utilization"},
}

# Options that earlier releases of verl read.
GONE = {
    "actor_rollout_ref.rollout.multi_turn.interaction_config_path": "verl 0.9.1 has no interactions. Write your own "
    "agent loop, and name it in actor_rollout_ref.rollout.agent.agent_loop_config_path",
}

# Required similarity of an unknown top-level name to a known one, because a node there may be the user's own.
_ALIKE_AT_THE_TOP = 0.85


def unknown_options(config: DictConfig, known: DictConfig) -> list[str]:
    """Names in a configuration that nothing reads.

    Args:
        config: Configuration of a run.
        known: The configuration that it starts from, before experiments and overrides.

    Returns:
        One sentence each, with the name that was probably meant.
    """
    given, expected = (OmegaConf.to_container(node, resolve=False) for node in (config, known))
    assert isinstance(given, dict)
    assert isinstance(expected, dict)
    top = difflib.get_close_matches
    own = [name for name in given if name not in expected and not top(str(name), expected, 1, _ALIKE_AT_THE_TOP)]
    return list(_unknown({name: given[name] for name in given if name not in own}, expected, ""))


def _unknown(given: Mapping[Any, Any], expected: Mapping[Any, Any], where: str) -> Iterator[str]:
    names = {*expected, *_fields(str(given.get("_target_") or expected.get("_target_") or ""))}
    names |= READ_BY_VERL.get(where, set())
    for name, value in given.items():
        path = f"{where}.{name}".removeprefix(".")
        if name not in names and path in GONE:
            yield f"{path}: {GONE[path]}"
        elif name not in names:
            near = difflib.get_close_matches(str(name), map(str, names), 1)
            known = sorted(str(other) for other in names if not str(other).startswith("_"))
            meant = path.removesuffix(str(name)) + near[0] if near else ""
            yield f"{path} does not exist; " + (f"did you mean {meant}?" if near else f"known: {', '.join(known)}")
        elif name not in OPEN and isinstance(value, Mapping):
            inner = expected.get(name)
            if isinstance(inner, Mapping) and (inner or path in READ_BY_VERL):  # an empty node accepts any name
                yield from _unknown(value, inner, path)


def name_fsdps(problems: list[str], of_fsdp: DictConfig, engine: str) -> list[str]:
    """The problems of `unknown_options`, with a note on FSDP options that this engine does not have.

    Args:
        problems: Results of `unknown_options`.
        of_fsdp: Its argument `known`, with verl's default engine.
        engine: `model_engine`.
    """
    named = []
    for problem in problems:
        option = problem.partition(" ")[0]
        is_fsdps = OmegaConf.select(of_fsdp, option, throw_on_missing=False) is not None
        named.append(
            f"{option} is an option of verl's FSDP engines, which model_engine={engine} does not read: take it out "
            f"(~{option}), or set what this engine has for it"
            if is_fsdps
            else problem
        )
    return named


@functools.cache
def _fields(target: str) -> frozenset[str]:
    """The fields of a node's class: verl's dataclasses have fields that its YAML files leave out."""
    kind = get_class(target) if target else None
    return (
        frozenset(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else frozenset()
    )
