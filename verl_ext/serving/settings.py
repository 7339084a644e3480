"""Settings of the rollout engines in every recipe: what watches them, and what weights they serve."""

from typing import Literal

from omegaconf import DictConfig
from pydantic import Field

from verl_ext.core.settings import Settings, read_node
from verl_ext.core.settings_file import SettingsFile
from verl_ext.core.worker_modules import add_worker_module


class EngineGuardSettings(Settings):
    """Node `engine_guard`."""

    max_probs_diff: float | None = Field(default=0.05, gt=0)
    """Largest mean |p_rollout - p_actor| over the tokens that the current weights generated; above it the run ends,
    because the engine serves other weights than the actor trains. null: no guard.
    bf16 kernels alone differ by about 0.005; the CPU backend (float32) sets a far tighter bound."""


class WatchdogSettings(Settings):
    """Node `watchdog`."""

    interval_s: float = Field(default=5.0, gt=0)
    """Seconds between two looks at the vLLM engines."""

    hang_timeout_s: float = Field(default=120.0, gt=0)
    """An engine that answers nothing for so many seconds, and five times as many before its first answered request, is
    declared hung and the run ends. It answers between two steps: a step on busy cores must fit in."""


class GuardSettings(Settings):
    """Both nodes."""

    engine_guard: EngineGuardSettings = EngineGuardSettings()

    watchdog: WatchdogSettings = WatchdogSettings()


class ServingSettings(Settings):
    """Node `serving`."""

    rounding: Literal["auto", "nearest", "stochastic"] = "nearest"
    """How float32 weights become the bfloat16 that an engine serves. nearest: as the actor's own computation in
    bfloat16 rounds them; from a bfloat16 checkpoint, most of a small update is served only after many more. stochastic:
    each weight by a threshold of its own, so that a small update moves what is served by as much as it should; the
    engine's probabilities then differ from the actor's by up to .01 more on average (docs/benchmarks.md). auto:
    stochastic, but nearest where that could do nothing: with LoRA, Megatron, an actor in bfloat16, an engine that
    quantizes or serves float32."""


FILE = SettingsFile("signal/guards.yaml", "_global_", GuardSettings, "What watches the rollout engines.")
SERVING_FILE = SettingsFile(
    "signal/serving.yaml", "serving", ServingSettings, "What weights the rollout engines serve."
)


def read_guards(config: DictConfig) -> GuardSettings:
    """Both nodes of a run's configuration.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    where = f"configs/{FILE.path}"
    return GuardSettings(
        engine_guard=read_node(config, "engine_guard", EngineGuardSettings, where),
        watchdog=read_node(config, "watchdog", WatchdogSettings, where),
    )


def read_serving(config: DictConfig) -> ServingSettings:
    """Node `serving` of a run's configuration; without it, the defaults.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    return read_node(config, "serving", ServingSettings, f"configs/{SERVING_FILE.path}")


def apply_serving(config: DictConfig) -> None:
    """Have the workers round as `serving.rounding` says; what it goes with, `launch.compatibility` has checked.

    Raises:
        ConfigError: as `read_serving`.
    """
    if read_serving(config).rounding == "stochastic":
        add_worker_module(config, "verl_ext.serving.rounded_weights")
