"""Modules that verl imports in every worker: `actor_rollout_ref.model.external_lib`."""

from omegaconf import DictConfig, open_dict


def worker_modules(config: DictConfig) -> list[str]:
    """Their names, in the order in which they are imported."""
    given = config.actor_rollout_ref.model.get("external_lib") or []
    return [given] if isinstance(given, str) else list(given)


def add_worker_module(config: DictConfig, name: str) -> None:
    """Import a module after the others, before a model is built. A second call changes nothing."""
    modules = worker_modules(config)
    if name not in modules:
        with open_dict(config):
            config.actor_rollout_ref.model.external_lib = [*modules, name]
