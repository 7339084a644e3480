"""`python -m verl.trainer.main_ppo … +recipe=NAME`: verl's own command starts a recipe.

`verl_ext.plugin` adds our `configs/` to Hydra's search path, so that `+recipe=NAME` is found. Hydra merges it into
verl's configuration, and before it calls verl's `main`, the callback below runs the recipe's own command.
"""

import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from verl_ext.core.errors import ConfigError
from verl_ext.launch.launch import people_errors
from verl_ext.launch.recipe import Recipe, find_recipe
from verl_ext.launch.train import train

# Config groups that override a recipe's file.
LATER = ("signal", "experiment", "backend")


class VerlCommand(Callback):
    """Starts a recipe instead of verl's trainer in verl's command; does nothing in other commands.

    Args:
        recipe: Name of its folder; None, in a configuration without a recipe: never starts one.
    """

    def __init__(self, recipe: str | None = None) -> None:
        self._recipe = recipe

    def on_job_start(self, config: DictConfig, *, task_function: Callable[..., Any], **kwargs: Any) -> None:
        if self._recipe is None or not is_verls(task_function):
            return
        # Hydra turns an Exception of a callback into a warning and continues with verl's `main`; SystemExit passes.
        try:
            with people_errors():
                given = options(config.hydra)
                self._check(config.hydra, given)
                recipe = find_recipe(self._recipe)
                own = config.copy()
                with open_dict(own):
                    del own["hydra"]
                adapt(own, recipe, given, config.hydra)
                train(own, recipe)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        sys.exit(0)

    def _check(self, hydra: DictConfig, given: Mapping[str, str]) -> None:
        if "," in given.get("recipe", ""):
            raise ConfigError(
                f"+recipe={given['recipe']} names several recipes: name the one whose trainer runs, and enable the "
                "others in its configuration (NODE.enable=true)"
            )
        # Hydra merges files in this order.
        before = list(given)[: list(given).index("recipe")] if "recipe" in given else []
        if early := [name for name in before if name in LATER]:
            raise ConfigError(
                f"+recipe={self._recipe} would replace what +{early[0]} sets: write +recipe={self._recipe} first"
            )
        if hydra.mode == RunMode.MULTIRUN:
            raise ConfigError(
                "several runs in one command (--multirun) need the recipe's own: "
                f"python -m recipe.{self._recipe}.main --multirun …"
            )


def options(hydra: DictConfig) -> dict[str, str]:
    """The options on the command line, in their order."""
    pairs = [override.lstrip("+").partition("=") for override in hydra.overrides.task]
    return {name: value for name, _, value in pairs}


def adapt(config: DictConfig, recipe: Recipe, given: Mapping[str, str], hydra: DictConfig) -> None:
    """Let the recipe follow a script for verl, and say what it changes."""
    changes = list(recipe.adapt(config, given)) if recipe.adapt is not None else []
    for change in changes:
        print(change)
    if changes:
        # Hydra has already written the configuration into the run's folder, where pages and the simulator read it.
        OmegaConf.save(config, Path(hydra.runtime.output_dir, hydra.output_subdir, "config.yaml"))


def is_verls(task_function: Callable[..., Any]) -> bool:
    """Whether it is the `main` of verl's command, whose module is `__main__` when run.

    Checked by its file, because importing its module would import verl before the run's environment is set.
    """
    return Path(inspect.getfile(task_function)).parts[-3:] == ("verl", "trainer", "main_ppo.py")
