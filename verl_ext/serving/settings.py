"""Settings of what watches the rollout engines, in every recipe."""

from omegaconf import DictConfig
from pydantic import Field

from verl_ext.core.settings import Settings, read_node
from verl_ext.core.settings_file import SettingsFile


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


FILE = SettingsFile("signal/guards.yaml", "_global_", GuardSettings, "What watches the rollout engines.")


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
