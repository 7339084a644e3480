"""Loaded by `import verl` in every process: registrations only, and light.

verl finds this module through the entry point group `verl.plugins`, and through `VERL_USE_EXTERNAL_MODULES`, which
`recipe.*.main` sets for all Ray processes: verl swallows an error of an entry point at DEBUG level, but not one of an
external module.
"""

import os

from verl_ext.cluster.engine_resources import RUN_VARIABLE
from verl_ext.core.errors import SignalError

PLATFORM_VARIABLE = "VERL_PLATFORM"


class PluginNotLoadedError(SignalError):
    """verl runs without this plugin's registrations."""


def register() -> None:
    """Register what the current environment requires. Safe to call again after the environment changed."""
    if os.environ.get(PLATFORM_VARIABLE, "").strip().lower() == "cpu":
        from verl_ext import cpu

        cpu.register()
    if RUN_VARIABLE in os.environ:
        _register_in_a_run()
    else:  # in a process of a run, Hydra has finished
        from hydra.core.plugins import Plugins

        from verl_ext.core.search_path import SignalConfigs

        Plugins.instance().register(SignalConfigs)


def _register_in_a_run() -> None:
    from verl.utils import torch_functional
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    from verl_ext.log_probs import log_probs_of_labels

    _ROLLOUT_REGISTRY["vllm", "async"] = "verl_ext.serving.weight_socket.RunServerAdapter"
    # verl's computation without flash-attn has no extension point.
    torch_functional.logprobs_from_logits_v2 = log_probs_of_labels


def require_loaded() -> None:
    """Refuse to start if verl does not use the CPU platform.

    Raises:
        PluginNotLoadedError: the CPU platform is requested, but verl resolved another one.
    """
    if os.environ.get(PLATFORM_VARIABLE, "").strip().lower() != "cpu":
        return
    from verl.plugin.platform import get_platform

    platform = get_platform()
    if platform.device_name != "cpu":
        raise PluginNotLoadedError(
            f"{PLATFORM_VARIABLE}=cpu, but verl uses the platform {platform.vendor_name!r}: verl was imported and used "
            f"before the plugin was registered. Set {PLATFORM_VARIABLE}=cpu in the environment before Python starts, "
            "and install the package (`make setup`, or `pip install -e .`)."
        )


register()
