"""Checks that `tracin.parameters` finds layers in the model, without its weights, before Ray starts."""

from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from verl_ext.core.errors import ConfigError
from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError
from verl_ext.influence.method.ghost_layers import check_dropout


def check_layers(config: DictConfig, parameters: str, *, one_pass: bool = False) -> None:
    """Find the scored layers on the meta device; a model that is not local is left to the workers.

    Args:
        config: Configuration of a run.
        parameters: "lora" or a regular expression over module names.
        one_pass: Whether the update's gradient comes only from the scored parameters.

    Raises:
        ConfigError: A layer cannot be scored, or no layer was found; the message lists names in the model.
    """
    model = _without_weights(config)
    if model is None:
        return
    try:
        check_dropout(model.train())
        share = GhostInfluence(model, parameters).share_scored
    except InfluenceError as error:
        raise ConfigError(f"tracin.parameters={parameters}: {error}") from None
    if one_pass and share < 1:
        raise ConfigError(
            f"tracin.one_pass=true updates with the gradients that are scored, but tracin.parameters={parameters} are "
            f"{share:.1%} of the trained parameters: set tracin.one_pass=false, or train only scored parameters"
        )


@dataclass(frozen=True)
class Scored:
    """The parameters that scores cover.

    Attributes:
        count: Number of scored weights.
        share: Their share of all trained weights.
    """

    count: int
    share: float


def scored(config: DictConfig, parameters: str) -> Scored | None:
    """The parameters that a run's scores cover; None: the model is not local."""
    model = _without_weights(config)
    if model is None:
        return None
    try:
        ghost = GhostInfluence(model, parameters)
    except InfluenceError:
        return None
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return Scored(sum(sizes[name] for name in ghost.names), ghost.share_scored)


def _without_weights(config: DictConfig) -> Any:
    """The model as verl's engine builds it, on the meta device; None: it is not local."""
    from peft import LoraConfig, PeftConfig, TaskType, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM
    from verl.utils.model import update_model_config

    node = config.actor_rollout_ref.model
    remote_code, adapter = bool(node.get("trust_remote_code", False)), node.get("lora_adapter_path")
    try:
        model_config = AutoConfig.from_pretrained(node.path, local_files_only=True, trust_remote_code=remote_code)
        override = OmegaConf.to_container(node.get("override_config") or OmegaConf.create({}), resolve=True)
        assert isinstance(override, dict)
        update_model_config(model_config, override.get("model_config", override))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(model_config, trust_remote_code=remote_code)
            if adapter is not None:
                lora = PeftConfig.from_pretrained(adapter, local_files_only=True)
                lora.inference_mode = False
                model = get_peft_model(model, lora)
            elif node.lora_rank > 0:
                names = ("target_modules", "target_parameters", "exclude_modules")
                lora = LoraConfig(
                    task_type=TaskType.CAUSAL_LM,
                    r=node.lora_rank,
                    lora_alpha=node.lora_alpha,
                    **{name: _plain(node.get(name)) for name in names},
                )
                model = get_peft_model(model, lora)
    # The hub or the model's own code may raise any exception if the model is not available.
    except (OSError, ValueError, ImportError):
        return None
    return model


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
