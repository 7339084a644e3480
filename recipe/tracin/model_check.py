"""Whether `tracin.parameters` finds layers in the model: tried without its weights, before Ray starts."""

from typing import Any

import torch
from omegaconf import DictConfig

from verl_ext.core.errors import ConfigError
from verl_ext.influence.method.ghost_functions import InfluenceError
from verl_ext.influence.method.ghost_layers import find_layers


def check_layers(config: DictConfig, parameters: str) -> None:
    """Find the scored layers on the meta device; a model that is not here is left to the workers.

    Args:
        config: Of a run.
        parameters: "lora" or a regular expression over module names.

    Raises:
        ConfigError: No layer can be scored, with names that the model has.
    """
    model = _without_weights(config)
    if model is None:
        return
    try:
        find_layers(model, parameters)
    except InfluenceError as error:
        raise ConfigError(f"tracin.parameters={parameters}: {error}") from None


def _without_weights(config: DictConfig) -> Any:
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    node = config.actor_rollout_ref.model
    remote_code = bool(node.get("trust_remote_code", False))
    try:
        model_config = AutoConfig.from_pretrained(node.path, local_files_only=True, trust_remote_code=remote_code)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(model_config, trust_remote_code=remote_code)
            if node.lora_rank > 0:
                targets = node.target_modules
                lora = LoraConfig(
                    task_type=TaskType.CAUSAL_LM,
                    r=node.lora_rank,
                    lora_alpha=node.lora_alpha,
                    target_modules=targets if isinstance(targets, str) else list(targets),
                )
                model = get_peft_model(model, lora)
    # Of a hub, of a model's own code: what they raise when the model is not here is theirs to say.
    except (OSError, ValueError, ImportError):
        return None
    return model
