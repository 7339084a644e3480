"""Classes that a configuration names: the trainer, `selectors`, `observers`, and the `part` of a node."""

import importlib
from typing import Any

from omegaconf import DictConfig

from verl_ext.core.errors import ConfigError
from verl_ext.trainer.parts import Observer, Part, Selector

KINDS: dict[str, type[Any]] = {"selectors": Selector, "observers": Observer}


def configured_selectors(config: DictConfig) -> list[type[Selector]]:
    """The classes of `selectors`, then those of enabled nodes, which score the rows that the update would use.

    Raises:
        ConfigError: an entry names no selector.
    """
    nodes = [(f"{name}.part", node) for name, node in config.items() if isinstance(node, DictConfig) and "part" in node]
    enabled = [_part(setting, node.part, Selector) for setting, node in nodes if node.get("enable")]
    return [*_listed(config, "selectors"), *enabled]


def configured_observers(config: DictConfig) -> list[type[Observer]]:
    """The classes of `observers`.

    Raises:
        ConfigError: an entry names no observer.
    """
    return _listed(config, "observers")


def check_named_parts(config: DictConfig) -> None:
    """Import the classes of `selectors` and `observers`, so that errors show before Ray starts.

    Raises:
        ConfigError: an entry does not name such a class.
    """
    for setting in KINDS:
        _listed(config, setting)


def trainer_class(config: DictConfig) -> type[Any]:
    """The class named by `trainer_class`.

    Raises:
        ConfigError: it does not name a trainer.
    """
    from verl_ext.trainer.trainer import SignalTrainer

    return _named("trainer_class", config.trainer_class, SignalTrainer, "verl_ext/trainer/trainer.py")


def by_name(parts: list[Part]) -> dict[str, Part]:
    """Parts by the dotted paths of their classes, under which checkpoints keep their state.

    Raises:
        ConfigError: one joins twice.
    """
    named: dict[str, Part] = {}
    for part in parts:
        name = f"{type(part).__module__}.{type(part).__qualname__}"
        if name in named:
            raise ConfigError(f"{name} is already part of this trainer: remove it from selectors and observers")
        named[name] = part
    return named


def worker_class(parts: list[Part]) -> type | None:
    """The actor's worker class that the parts require; None for verl's own.

    Raises:
        ConfigError: two parts require different ones.
    """
    wanted = {type(part).__name__: part.worker_class for part in parts if part.worker_class is not None}
    if len(set(wanted.values())) > 1:
        classes = ", ".join(f"{name} ({worker.__name__})" for name, worker in wanted.items())
        raise ConfigError(f"Each of these needs its own actor, but there is only one: {classes}. Leave one out.")
    return next(iter(wanted.values()), None)


def _listed(config: DictConfig, setting: str) -> list[Any]:
    paths = config.get(setting) or []
    if isinstance(paths, str):
        raise ConfigError(f"{setting} must be a list of classes, got {paths!r}: write {setting}=[{paths}]")
    repeated = sorted({path for path in paths if list(paths).count(path) > 1})
    if repeated:
        raise ConfigError(f"{setting} names {', '.join(repeated)} more than once: leave one of each")
    return [_part(setting, path, KINDS[setting]) for path in paths]


def _part(setting: str, path: str, kind: type[Any]) -> Any:
    return _named(setting, path, kind, "verl_ext/trainer/parts.py")


def _named(setting: str, path: str, kind: type[Any], place: str) -> Any:
    expected = f"a {kind.__name__} ({place}), written as package.module.Class"
    module, _, name = str(path).rpartition(".")
    if not module:
        raise ConfigError(f"{setting}: expected {expected}, got {path!r}")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(
            f"{setting}: expected {expected}, got {path!r}, which cannot be imported: {error}. Python must find it in "
            "every process of the run: install the package, or put its folder into PYTHONPATH"
        ) from None
    except AttributeError:
        raise ConfigError(f"{setting}: expected {expected}, got {path!r}, but {module} has no {name}") from None
    if not (isinstance(found, type) and kind in found.__mro__):
        raise ConfigError(f"{setting}: expected {expected}, got {path!r}, which does not extend {kind.__name__}")
    return found
