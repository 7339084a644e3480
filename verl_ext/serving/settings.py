"""Settings of the rollout engines in every recipe: their monitoring, and the weights that they serve."""

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
    because vLLM's weights no longer match the actor's. null: no guard. Different bf16 kernels already differ
    by about 0.005; the CPU backend (float32) sets a much tighter bound."""

    max_unchecked_steps: int = Field(default=10, ge=1)
    """Asynchronous trainers, where all rollouts of a batch may be older than the current weights: after this many steps
    without a comparison, the workers keep a copy of the weights in CPU memory until rollouts that these generated are
    trained on, and compare eight of them (one per rank, if there are more)."""


class WatchdogSettings(Settings):
    """Node `watchdog`."""

    interval_s: float = Field(default=5.0, gt=0)
    """Seconds between two checks of the vLLM engines."""

    hang_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds without an answer after which an engine counts as hung and the run ends; five times this before its first
    answered request. It answers between two steps, so a step on busy cores must fit."""


class GuardSettings(Settings):
    """Both nodes."""

    engine_guard: EngineGuardSettings = EngineGuardSettings()

    watchdog: WatchdogSettings = WatchdogSettings()


class ServingSettings(Settings):
    """Node `serving`."""

    rounding: Literal["auto", "nearest", "stochastic"] = "nearest"
    """How float32 weights become the bfloat16 that an engine serves. nearest: the rounding of the actor's own bfloat16
    computation; from a bfloat16 checkpoint, most of a small update is served only after many more. stochastic: each
    weight has its own threshold, so that a small update changes the served weights by the right amount on average; the
    engine's probabilities then differ from the actor's by up to .01 more on average (docs/benchmarks.md). auto:
    stochastic, but nearest if stochastic would have no effect: with LoRA, Megatron, an actor in bfloat16, an engine
    that quantizes or serves float32."""


FILE = SettingsFile("signal/guards.yaml", "_global_", GuardSettings, "Monitoring of the rollout engines.")
SERVING_FILE = SettingsFile(
    "signal/serving.yaml", "serving", ServingSettings, "The weights that the rollout engines serve."
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
    """Make the workers round as set by `serving.rounding`; `launch.compatibility` has checked the combination.

    Raises:
        ConfigError: as in `read_serving`.
    """
    if read_serving(config).rounding == "stochastic":
        add_worker_module(config, "verl_ext.serving.rounded_weights")
