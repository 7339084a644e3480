"""A node of the configuration as frozen dataclasses, with every problem named at once. Pure: needs no verl."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_ext.errors import ConfigError

Settings = TypeVar("Settings")


def read_node(
    config: DictConfig, name: str, kind: type[Settings], groups: Mapping[str, type], config_file: str
) -> Settings:
    """Read and check `config.<name>`; without that node, the defaults. Lists become tuples.

    Args:
        config: Of the run.
        name: Of the node.
        kind: Dataclass of the node; its `__post_init__` raises ValueError on a contradiction.
        groups: Dataclasses of the node's own nodes, by name.
        config_file: Where the node is documented, for messages.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    node = OmegaConf.select(config, name)
    if node is None:
        return kind()
    if not isinstance(node, DictConfig):
        raise ConfigError(f"{name} must be a mapping of settings, got {node!r}: see {config_file}")
    try:
        container = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{name} cannot be read: {error}") from None
    assert isinstance(container, dict)  # a DictConfig becomes one
    problems: list[str] = []
    values: dict[str, Any] = {str(key): value for key, value in container.items()}
    for group, group_kind in groups.items():
        if group in values:
            values[group] = _build(group_kind, values[group], f"{name}.{group}", problems, config_file)
    settings = _build(kind, values, name, problems, config_file)
    if problems:
        raise ConfigError("The configuration cannot be run:\n  - " + "\n  - ".join(problems))
    return settings


def _build(kind: type, values: Any, where: str, problems: list[str], config_file: str) -> Any:
    """An object of the dataclass `kind`; its defaults, if `values` have problems, which are added to `problems`."""
    known = [entry.name for entry in dataclasses.fields(kind)]
    if not isinstance(values, dict):
        problems.append(f"{where} must be a mapping of settings, got {values!r}: see {config_file}")
        return kind()
    for name in (str(name) for name in values if name not in known):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {where}.{near[0]}?" if near else f"; known: {', '.join(known)}"
        problems.append(f"{where}.{name} does not exist{hint}")
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return kind(**{name: value for name, value in given.items() if name in known})
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return kind()
