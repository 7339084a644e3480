"""The one patch of the CPU backend: a default of verl's process group initialisation.

verl builds the backend string "cpu:gloo,{device}:{backend}", which on the device "cpu" names the same device twice,
and torch refuses that. The function takes `backend` already; only its default changes.
"""

import functools
from typing import Any

from verl.utils import distributed


def use_gloo() -> None:
    """Default `initialize_global_process_group_ray` to gloo. Must run before `verl.workers` is imported."""
    original = distributed.initialize_global_process_group_ray
    if getattr(original, "_defaults_to_gloo", False):
        return

    @functools.wraps(original)
    def initialize(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend=backend or "gloo")

    initialize._defaults_to_gloo = True  # type: ignore[attr-defined]
    distributed.initialize_global_process_group_ray = initialize
