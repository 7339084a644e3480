"""What a recipe adds to the pages: its own commands, and parts of a run's page."""

import argparse
import functools
import importlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from verl_ext.core.errors import ConfigError
from verl_ext.launch.recipe import recipes
from verl_ext.report.run_records import RunRecords
from verl_ext.report.server import Source
from verl_ext.report.warning_rules import Rule

# A text of the policy: {step, index (of the prompt), where, prompt, text, truth, reward, notes}, and `times` if it came
# more than once; step, where, text and notes are always set, the others may be None.
Sample = dict[str, Any]


class Command(Protocol):
    """A separate page: `python -m verl_ext.report NAME`. Modules can also be such commands."""

    @property
    def NAME(self) -> str:
        """The command's name."""
        ...

    @property
    def HELP(self) -> str:
        """One line for `--help`."""
        ...

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Its options."""
        ...

    def source(self, options: argparse.Namespace) -> Source:
        """Its source."""
        ...

    def default_output(self, options: argparse.Namespace) -> Path:
        """Default file of the page, different for each run."""
        ...


@dataclass(frozen=True)
class View:
    """A tab of the run's page, shown for every run whose folder has the data.

    Attributes:
        name: `runs.views[name]` in its script, and `view=name` in the address.
        scripts: Draw it (see `page.Page.scripts`); the parts they push to `runs.overview` are on the first tab.
        files: Files of the run folder whose change refreshes it.
        blocks: Its data by the names that the script loads; without any there is no tab.
        overview: Its entry `parts[name]` of the index: keep it small, because every view waits for it; None: nothing.
    """

    name: str
    scripts: tuple[str, ...]
    files: tuple[str, ...]
    blocks: Callable[[RunRecords], dict[str, str]]
    overview: Callable[[RunRecords], Any] = lambda run: None


@dataclass(frozen=True)
class OwnPage:
    """Another page about a run, named on the run's page: as a link once it is written, before that by its command.

    Attributes:
        title: What it shows.
        file: Its default file in the run folder.
        command: Its arguments after `python -m verl_ext.report`; `RUN_DIR` stands for the run folder.
        needs: The file of the run folder that it shows; runs without it have no such page.
    """

    title: str
    file: str
    command: str
    needs: str

    def entry(self, folder: Path) -> dict[str, str | None] | None:
        """{title, file (None before it is written), command} for a run's page; None for a run without its data."""
        if not (folder / self.needs).is_file():
            return None
        command = f"python -m verl_ext.report {self.command.replace('RUN_DIR', shlex.quote(str(folder)))}"
        return {"title": self.title, "file": self.file if (folder / self.file).is_file() else None, "command": command}


@dataclass(frozen=True)
class RecipePages:
    """All additions of one recipe.

    Attributes:
        commands: Its own pages.
        views: Tabs of the run's page.
        own_pages: The other pages that the run's page names.
        samples: Texts of a run folder, in the order of steps; empty if its files are missing.
        rules: Warning rules.
        headlines: Metrics to show first, most important first; one that ends with `*` stands for all with this prefix.
    """

    commands: tuple[Command, ...] = ()
    views: tuple[View, ...] = ()
    own_pages: tuple[OwnPage, ...] = ()
    samples: Callable[[Path], list[Sample]] | None = None
    rules: tuple[Rule, ...] = ()
    headlines: tuple[str, ...] = ()


@functools.cache
def all_pages() -> tuple[RecipePages, ...]:
    """The pages of every recipe that has some.

    Raises:
        ConfigError: a module has no `PAGES`.
    """
    return tuple(_read(recipe.pages) for recipe in recipes() if recipe.pages is not None)


def _read(name: str) -> RecipePages:
    found = getattr(importlib.import_module(name), "PAGES", None)
    if not isinstance(found, RecipePages):
        raise ConfigError(f"expected PAGES = RecipePages(…) in {name}, got {found!r}: see docs/extending.md")
    return found
