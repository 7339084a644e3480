"""verl's platform abstraction for a machine without an accelerator.

verl was written against `torch.cuda`: it calls memory statistics, streams and seeds unconditionally. Two decisions
make those calls harmless here: the device module answers them from host memory, and the current device is a
`torch.device`, because an int means "accelerator number n" to torch.
"""

import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_base import PlatformBase

# Passed on to the rollout servers: the user's environment decides how vLLM binds its threads.
_ROLLOUT_VARIABLES = ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU", "OMP_NUM_THREADS")


def _resident_bytes(*_: Any) -> int:
    return psutil.Process().memory_info().rss


class _CPUDeviceModule(types.ModuleType):
    """`torch.cpu` plus the calls shaped like `torch.cuda` that verl makes whatever the device."""

    memory_allocated = staticmethod(_resident_bytes)
    max_memory_allocated = staticmethod(_resident_bytes)
    memory_reserved = staticmethod(_resident_bytes)
    max_memory_reserved = staticmethod(_resident_bytes)
    manual_seed = staticmethod(torch.manual_seed)
    manual_seed_all = staticmethod(torch.manual_seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def __eq__(self, other: object) -> bool:
        # verl asks `get_torch_device() == torch.cpu`.
        return other is self or other is torch.cpu

    __hash__ = types.ModuleType.__hash__

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def get_device_name(*_: Any) -> str:
        return "CPU"

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def _nothing(*_: Any) -> None:
        return None

    set_device = synchronize = empty_cache = ipc_collect = reset_peak_memory_stats = _nothing
    set_per_process_memory_fraction = _nothing

    @staticmethod
    def mem_get_info(*_: Any) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @staticmethod
    def get_rng_state(*_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def get_device_properties(*_: Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(name="CPU", total_memory=psutil.virtual_memory().total)

    @staticmethod
    def get_device_capability(*_: Any) -> tuple[None, None]:
        return None, None


_DEVICE_MODULE = _CPUDeviceModule("verl_ext.cpu.device_module")


class PlatformCPU(PlatformBase):
    """Host memory, gloo, and Ray's logical `GPU` slots."""

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> types.ModuleType:
        return _DEVICE_MODULE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        # Never auto-detected: a machine with a broken driver must not silently train on its CPU.
        return False

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "VERL_CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        # verl counts only GPU and NPU resources; `ray.init(num_gpus=N)` declares N logical slots without any GPU.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        # There is no CUDA IPC: verl then sends weights through its own shared-memory path.
        return False

    def cudart(self) -> Any:
        return None

    def rollout_env_vars(self) -> dict[str, str]:
        return {name: os.environ[name] for name in _ROLLOUT_VARIABLES if name in os.environ}


def register() -> None:
    """Register under the name that `VERL_PLATFORM=cpu` selects."""
    if PlatformRegistry.get("cpu") is not PlatformCPU:
        PlatformRegistry.register(platform="cpu")(PlatformCPU)
