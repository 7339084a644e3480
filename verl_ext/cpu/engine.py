"""verl's FSDP2 engines for device "cpu". Imported through `actor_rollout_ref.model.external_lib`."""

import copy
from typing import Any

import torch
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead


class _WithoutOffload:
    """Build the module without an offload policy.

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


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CPUEngineWithLMHead(_WithoutOffload, FSDPEngineWithLMHead):
    """Language model on FSDP2 over gloo."""


@EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device="cpu")
class CPUEngineWithValueHead(_WithoutOffload, FSDPEngineWithValueHead):
    """Value model on FSDP2 over gloo."""
