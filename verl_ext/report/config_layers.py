"""The keys that this project's own configuration files set, so that a page can distinguish choices from defaults.

Only the files are read: composing them again would import verl, which takes seconds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from verl_ext.report.run_config import flatten

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def config_layers(recipe: str, choices: Any) -> dict[str, dict[str, str]]:
    """`experiment`, `backend`, `recipe` -> its keys with their values, including those of the files that it includes.

    Args:
        recipe: Name of the configuration that was started.
        choices: Hydra's `runtime.choices`: group -> file.
    """
    chosen: Mapping[str, Any] = choices if isinstance(choices, Mapping) else {}
    found = {"recipe": _keys(recipe)}
    for group in ("backend", "experiment"):
        if isinstance(chosen.get(group), str):
            found[group] = _keys(f"{group}/{chosen[group]}")
    return found


def _keys(name: str, depth: int = 0) -> dict[str, str]:
    """Keys of a file and of our files that its `defaults` name; a missing file has none."""
    path = CONFIGS / f"{name.lstrip('/')}.yaml"
    # A name comes from a run folder, which may be untrusted.
    if ".." in name or depth > 4 or not path.is_file():
        return {}
    value = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    found: dict[str, str] = {}
    for entry in value.pop("defaults", []):
        if not isinstance(entry, str):
            continue
        inner, _, package = entry.partition("@")
        prefix = f"{package}." if package else ""
        found |= {f"{prefix}{key}": text for key, text in _keys(inner, depth + 1).items()}
    return found | flatten(value)
