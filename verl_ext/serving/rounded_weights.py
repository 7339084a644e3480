"""`serving.rounding=stochastic`: the actor sends the engines weights that `rounding` has converted to bfloat16.

verl's FSDP engines yield full float32 tensors, one by one, and the loader rounds to nearest. All paths to an engine
begin there: the one within a process (`naive`, sync and colocate_async) and those of the checkpoint engines
(separate_async). Importing this module, which verl does in its workers, wraps that method.

The actor's own computation is unchanged: FSDP rounds the same weights to nearest.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from verl_ext.serving.rounding import rounded


def round_what_is_sent() -> None:
    """Wrap `FSDPEngine.get_per_tensor_param`. A second call changes nothing."""
    original = FSDPEngine.get_per_tensor_param
    if getattr(original, "_is_rounded", False):
        return

    @functools.wraps(original)
    def get_per_tensor_param(
        self: FSDPEngine, *args: Any, **kwargs: Any
    ) -> tuple[Iterator[tuple[str, torch.Tensor]], dict[str, Any] | None]:
        weights, peft_config = original(self, *args, **kwargs)
        return rounded(weights), peft_config

    get_per_tensor_param._is_rounded = True  # type: ignore[attr-defined]
    FSDPEngine.get_per_tensor_param = get_per_tensor_param  # type: ignore[method-assign]


round_what_is_sent()
