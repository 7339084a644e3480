"""verl's FSDP2 engines for device "cpu". Imported through `actor_rollout_ref.model.external_lib`, and by the critic."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
import verl.utils.model as verl_model
from torch.distributed.tensor import DTensor
from transformers import AutoModelForTokenClassification, PretrainedConfig
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.model import convert_weight_keys
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker

from verl_ext.cpu.shared_prompt_engine import SharedPromptEngine


class _CPUEngine:
    """Builds the module without an offload policy, and sends merged LoRA weights unrounded.

    verl offloads forward-only (reference) models with `CPUOffloadPolicy(pin_memory=True)`, and pinned memory needs an
    accelerator. Here all parameters live in host memory from the start.
    """

    engine_config: Any

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        original = self.engine_config
        resident = copy.copy(original)
        for name in ("forward_only", "offload_policy"):
            object.__setattr__(resident, name, False)  # verl's configs are frozen
        self._is_offload_param = self._is_offload_optimizer = False
        self.engine_config = resident
        try:
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config = original

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, torch.Tensor]]:
        """verl's method without its rounding to bfloat16, which would make engine and actor differ more than a stale
        engine does."""
        with merged_lora_context(self.module, backup_adapters=True):
            parameters = normalize_peft_param_name(self.module.state_dict())
            for name, parameter in convert_weight_keys(parameters, self.module).items():
                whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()
                # A copy, because full_tensor is not one on a single rank: the weights are restored when the context
                # ends.
                yield name, whole.clone()


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CPUEngineWithLMHead(_CPUEngine, SharedPromptEngine):
    """Language model on FSDP2 over gloo."""


@EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device="cpu")
class CPUEngineWithValueHead(_CPUEngine, FSDPEngineWithValueHead):
    """Value model on FSDP2 over gloo."""

    def _build_module(self) -> torch.nn.Module:
        # verl's loader of value heads asks for flash attention, whatever the configuration says.
        original = verl_model.load_valuehead_model
        verl_model.load_valuehead_model = _load_value_head
        try:
            return super()._build_module()
        finally:
            verl_model.load_valuehead_model = original


def _load_value_head(
    local_path: str, torch_dtype: torch.dtype, model_config: PretrainedConfig, trust_remote_code: bool
) -> torch.nn.Module:
    """A token classifier with one label, with the attention from its configuration."""
    return AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )


class CPUTrainingWorker(TrainingWorker):
    """verl's worker of the critic. verl imports `external_lib` of the critic's model in the driver only; a process that
    makes this class has imported this module."""
