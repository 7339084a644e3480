"""Composes the run to submit as its command would, and checks it."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_ext.cluster.pools import device_pools
from verl_ext.core.errors import ConfigError
from verl_ext.launch.recipe import all_paths, recipes


def compose(command: list[str]) -> DictConfig:
    """The configuration that a recipe's command would run with.

    Args:
        command: `-m MODULE overrides…`, as Python gets it.

    Raises:
        ConfigError: it is not such a command, the module does not exist, or it does not compose.
    """
    if len(command) < 2 or command[0] != "-m":
        raise ConfigError(
            f"expected the recipe's command after `--`, such as `-- -m {_commands()[0]} +backend=cpu`, got "
            f"{shlex.join(command)!r}"
        )
    module = command[1]
    if not _exists(module):
        raise ConfigError(f"there is no module {module!r}; the recipes are {', '.join(_commands())}")
    composed = subprocess.run([sys.executable, *command, "--cfg", "job"], capture_output=True, text=True, check=False)
    if composed.returncode != 0:
        raise ConfigError(f"`python {shlex.join(command)}` does not compose:\n{composed.stderr.strip()}")
    config = OmegaConf.create(composed.stdout)
    if not isinstance(config, DictConfig) or "trainer" not in config or "run_dir" not in config:
        raise ConfigError(f"{module!r} is not a recipe of this plugin: its configuration has no trainer and run_dir")
    return config


def _commands() -> list[str]:
    return [f"recipe.{recipe.name}.main" for recipe in recipes()]


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False


def describe(config: DictConfig) -> dict[str, Any]:
    """The values of a run that all templates need.

    Raises:
        ConfigError: impossible sizes.
    """
    for key in ("trainer.nnodes", "trainer.n_gpus_per_node"):
        value = OmegaConf.select(config, key)
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"expected {key} of at least 1, got {value!r}")
    for key in ("run_dir", "trainer.experiment_name"):
        if re.search(r"[^\w./~@%+=:,-]", str(OmegaConf.select(config, key))):
            raise ConfigError(
                f"expected {key} without spaces and shell characters, got {OmegaConf.select(config, key)!r}"
            )
    try:
        run_dir, name = str(config.run_dir), str(config.trainer.experiment_name)
        runtime_env = config.ray_kwargs.ray_init.get("runtime_env") or {}
        env_vars = {str(variable): str(value) for variable, value in (runtime_env.get("env_vars") or {}).items()}
    except OmegaConfBaseException as error:
        raise ConfigError(f"the configuration lacks a value: {error}") from error
    # All nodes of a Slurm job are alike, so engines with separate devices get separate nodes.
    pools = device_pools(config)
    nodes, devices = sum(pool.nodes for pool in pools), max(pool.devices for pool in pools)
    return {
        "name": name,
        "run_dir": run_dir,
        "nodes": nodes,
        "gpus": 0 if config.trainer.device == "cpu" else devices,
        "slots": devices,
        "env_vars": {"VERL_USE_EXTERNAL_MODULES": "verl_ext.plugin", **env_vars},
        "dry_run": config.dry_run,
    }


def check_shared(config: DictConfig, working_dir: Path) -> None:
    """Reject paths that differ on the cluster's machines: the package is copied, data is not.

    Raises:
        ConfigError: names the keys; or the working directory is not the package's.
    """
    if not (working_dir / "verl_ext").is_dir():
        raise ConfigError(f"expected a checkout with verl_ext/ and configs/ as --working-dir, got {working_dir}")
    keys = [] if Path(config.run_dir).is_absolute() else ["run_dir"]
    for key in all_paths():
        values = OmegaConf.select(config, key, throw_on_missing=False)
        for value in values if OmegaConf.is_list(values) else [values]:
            # The name of a model on a hub, the address of a remote file and an absolute path are fine.
            if isinstance(value, str) and not Path(value).is_absolute() and Path(value).exists():
                keys.append(key)
    if keys:
        raise ConfigError(
            "expected absolute paths on a file system that all nodes share, got relative ones: "
            f"{', '.join(dict.fromkeys(keys))}. Data, models and the run folder are not copied with the package."
        )
