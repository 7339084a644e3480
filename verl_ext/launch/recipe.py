"""The interface of a recipe to the shared code, and how recipes are found. Light: needs neither torch nor verl.

A recipe is a folder `recipe/NAME/` whose `recipe.py` has `RECIPE`. `verl_ext` never names one: `train` gets the one
that was started, and tools that start from a run folder or from nothing (pages, docs, submission) call `recipes`. A new
recipe is a new folder; no shared file changes.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_ext.core.errors import ConfigError
from verl_ext.core.metric_glossary import METRICS, PREFIXES, Glossary, find_entry
from verl_ext.launch.compatibility import Unsupported, check_compatibility
from verl_ext.launch.preflight.verdicts import Success
from verl_ext.launch.v1_gaps import V1_GAPS
from verl_ext.run.progress import Figures
from verl_ext.run.summary import Phases, join_phases

PROJECT_ROOT = Path(__file__).resolve().parents[2]

# Paths that every configuration has; in addition to run_dir, which need not exist.
PATHS = (
    "data.train_files",
    "data.val_files",
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
)


@dataclass(frozen=True)
class Recipe:
    """One method.

    Attributes:
        name: Name of its folder.
        title: Display name.
        node: Node of the configuration with its settings. If another recipe's configuration also has this node, its
            settings are checked there as well.
        check_settings: Rejects settings that cannot work, and may resolve them into verl's. Gets the configuration with
            absolute paths. Raises ConfigError.
        paths: Keys of its own files, folders and models.
        scores_rollouts: Whether it trains on responses of at most `data.max_response_length` tokens to the prompts of
            the data, scored by verl's reward manager; otherwise it handles prompts, lengths and scores itself.
        success: Its criterion of success; None, or returning None: it only uses the reward itself.
        warnings: Sentences about settings that are allowed but known to go wrong; None: none.
        notes: Sentences that every run prints: what options of verl mean here, where it is not the same; None: none.
        adapt: Changes defaults that contradict what a script for verl's own command sets, and returns a sentence about
            each change. Gets the configuration, and the names of the options on the command line. None: nothing.
        dry_run_rows: (name, text) lines about a step and the run; None: `dry_run.step_rows`.
        phases: Phase of a step -> timers, as in `summary.PHASES`, which they are added to.
        figures: Figures of the progress bar, as in `progress.FIGURES`.
        glossary: Meanings of its metrics, whose names have their own prefixes.
        files: Name of a file that it writes into the run folder -> its content.
        unsupported: Features of verl that it does not support, in addition to `compatibility.SHARED`.
        pages: Module with `PAGES`, a `verl_ext.report.recipe_pages.RecipePages`; None: it has no pages.
    """

    name: str
    title: str
    node: str
    check_settings: Callable[[DictConfig], Any]
    paths: tuple[str, ...] = ()
    scores_rollouts: bool = True
    success: Callable[[DictConfig], Success | None] | None = None
    warnings: Callable[[DictConfig], Iterable[str]] | None = None
    notes: Callable[[DictConfig], Iterable[str]] | None = None
    adapt: Callable[[DictConfig, Collection[str]], Iterable[str]] | None = None
    dry_run_rows: Callable[[DictConfig], Iterable[tuple[str, str]]] | None = None
    phases: Phases = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
    glossary: Glossary = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    unsupported: tuple[Unsupported, ...] = ()
    pages: str | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Prefixes of its metrics' names, in the glossary's order, without those that all recipes share."""
        groups = dict.fromkeys(name.partition("/")[0] for name in self.glossary)
        return tuple(group for group in groups if not any(prefix.startswith(f"{group}/") for prefix in PREFIXES))


@functools.cache
def recipes() -> tuple[Recipe, ...]:
    """Every recipe of the checkout and of installed packages, by name.

    Raises:
        ConfigError: a `recipe.py` has no `RECIPE`, or one under another name than its folder's.
    """
    return tuple(_read(name) for name in sorted(set(_names())))


def find_recipe(name: str) -> Recipe:
    """The recipe with this name.

    Raises:
        ConfigError: there is none.
    """
    for recipe in recipes():
        if recipe.name == name:
            return recipe
    raise ConfigError(f"there is no recipe {name!r}: one of {', '.join(recipe.name for recipe in recipes())}")


def _names() -> Iterator[str]:
    # `recipe` is a namespace: other distributions may also have folders there. An editable installation does not reveal
    # where its part is.
    places = [PROJECT_ROOT / "recipe", *map(Path, importlib.import_module("recipe").__path__)]
    for place in places:
        for file in place.glob("*/recipe.py"):
            # For a folder added after the installation, outside the checkout.
            if importlib.util.find_spec(f"recipe.{file.parent.name}") is not None:
                yield file.parent.name


def _read(name: str) -> Recipe:
    module = importlib.import_module(f"recipe.{name}.recipe")
    found = getattr(module, "RECIPE", None)
    if not isinstance(found, Recipe) or found.name != name:
        raise ConfigError(
            f"expected RECIPE = Recipe(name={name!r}, …) in {module.__file__}, got {found!r}: see docs/extending.md"
        )
    return found


# ------------------------------ all recipes together ------------------------------


def check_settings(config: DictConfig, recipe: Recipe) -> None:
    """Check the recipe's settings, and those of every other one whose node the configuration has.

    Raises:
        ConfigError: names what is wrong, with what to change.
    """
    joined = [recipe, *(other for other in recipes() if other.name != recipe.name and other.node in config)]
    check_compatibility(config, [*V1_GAPS, *(row for each in joined for row in each.unsupported)])
    for each in joined:
        each.check_settings(config)


def all_paths() -> tuple[str, ...]:
    """Keys of the configuration that are paths, except `run_dir`."""
    return (*PATHS, *(key for recipe in recipes() for key in recipe.paths))


def all_phases() -> Phases:
    """Phases of a step with their timers: a run may have timers of several recipes."""
    return join_phases(recipe.phases for recipe in recipes())


def all_figures() -> Figures:
    """Figures of recipes for the progress bar, in addition to those of every run."""
    return {label: figure for recipe in recipes() for label, figure in recipe.figures.items()}


@functools.cache
def glossaries() -> dict[str, Glossary]:
    """The glossary of every recipe by its title, and the shared one under "All recipes"."""
    return {"All recipes": METRICS} | {recipe.title: recipe.glossary for recipe in recipes() if recipe.glossary}


@functools.cache
def own_prefixes() -> tuple[str, ...]:
    """Prefixes of our metrics' names; all others come from verl."""
    return (*PREFIXES, *(f"{group}/" for recipe in recipes() for group in recipe.groups))


def undocumented(names: Iterable[str]) -> list[str]:
    """Names of our metrics (see `own_prefixes`) that no glossary has, sorted."""
    ours = sorted(name for name in names if name.startswith(own_prefixes()))
    return [name for name in ours if not any(find_entry(name, glossary) for glossary in glossaries().values())]
