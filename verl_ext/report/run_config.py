"""Configurations: one line per key, the origin of values, and differences between runs. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_MISSING = "(not there)"

# From values typed by the user to defaults.
ORIGINS = ("command line", "experiment", "backend", "recipe", "default")


def flatten(config: Any, prefix: str = "") -> dict[str, str]:
    """Dotted key -> value as text. A list is one value, because Hydra replaces it as a whole; so is an empty
    mapping."""
    if isinstance(config, Mapping) and config:
        return {
            key: value
            for name, inner in config.items()
            for key, value in flatten(inner, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    return {prefix: _text(config)} if prefix else {}


def override_keys(overrides: Sequence[str]) -> list[str]:
    """Keys that overrides set: of `a.b=1`, `+a.b=1`, `++a.b=1` and `~a.b`."""
    return [override.partition("=")[0].lstrip("+~") for override in overrides]


def origin(key: str, overrides: Sequence[str], layers: Mapping[str, Mapping[str, str]]) -> str:
    """The first of `ORIGINS` that sets the key.

    Args:
        key: Dotted key.
        overrides: Keys of the command line; the key of a mapping sets everything in it.
        layers: Name of an origin -> the flattened file.
    """
    if any(key == own or key.startswith(f"{own}.") for own in overrides):
        return ORIGINS[0]
    return next((name for name in ORIGINS[1:-1] if key in layers.get(name, {})), ORIGINS[-1])


def config_rows(
    config: Mapping[str, str], overrides: Sequence[str], layers: Mapping[str, Mapping[str, str]]
) -> list[list[str]]:
    """[key, value, origin] of every key: those chosen for this run first, then by key."""
    rows = [[key, value, origin(key, overrides, layers)] for key, value in config.items()]
    return sorted(rows, key=lambda row: (ORIGINS.index(row[2]), row[0]))


def differences(configs: Sequence[Mapping[str, str]]) -> list[list[Any]]:
    """[key, [value of each run]] of the keys whose values differ; a missing key is marked as missing."""
    keys = sorted({key for config in configs for key in config})
    rows = [[key, [config.get(key, _MISSING) for config in configs]] for key in keys]
    return [row for row in rows if len(set(row[1])) > 1]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
