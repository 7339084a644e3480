"""The run report's command: a run's configuration, results and anomalies."""

import argparse
from importlib.resources import files
from pathlib import Path
from typing import Any

from verl_ext.launch.recipe import recipes
from verl_ext.report import curves
from verl_ext.report.blocks import pack, pack_text
from verl_ext.report.config_layers import config_layers
from verl_ext.report.page import Page
from verl_ext.report.plots import add_png_arguments, write_pngs
from verl_ext.report.recipe_pages import View, all_pages
from verl_ext.report.run_config import config_rows, flatten, override_keys
from verl_ext.report.run_data import curve_blocks, run_index
from verl_ext.report.run_records import read_run, stamp
from verl_ext.report.run_samples import count_by_prompt, read_samples
from verl_ext.report.run_state import status_stamp
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile

NAME = "run"
HELP = "A run's configuration, curves, time, warnings and samples, and its recipe's own views."

SCRIPTS = (
    "charts.js",
    "seeds.js",
    "run_views.js",
    "run_curves.js",
    "run_overview.js",
    "run_config.js",
    "run_samples.js",
)
# Starts the page once all views are loaded.
LAST_SCRIPT = "run.js"

CONFIG = "hydra/config.yaml"


class RunSource:
    """A run folder as a page; `refresh` reads changed files again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamps: dict[str, Any] = {}
        self._version = 0
        self._page: Page | None = None
        self._blocks: dict[str, dict[str, str]] = {}

    def refresh(self) -> int:
        stamps: dict[str, Any] = {name: stamp(path) for name, path in self._files().items()}
        stamps["status"] = status_stamp(StatusFile(RunFolder(self._path).status).read())
        changed = {name for name, own in stamps.items() if own != self._stamps.get(name, "never read")}
        if changed:
            self._stamps = stamps
            self._version += 1
            self._page = None
            self._read(changed)
        return self._version

    def page(self) -> Page:
        if self._page is None:
            blocks = {name: block for part in self._blocks.values() for name, block in part.items()}
            scripts = (*SCRIPTS, *(script for view in _views() for script in view.scripts), LAST_SCRIPT)
            self._page = Page(f"Run {self._run.name}", scripts, blocks, with_plotly=True)
        return self._page

    def _files(self) -> dict[str, Path]:
        folder = RunFolder(self._path)
        shared = (folder.metrics.name, folder.summary.name, folder.first_validation.name, CONFIG)
        return {name: self._path / name for name in (*shared, *(name for recipe in recipes() for name in recipe.files))}

    def _read(self, changed: set[str]) -> None:
        self._run = run = read_run(self._path)
        parts = self._blocks
        for view in _views():
            if changed & set(view.files):
                parts[view.name] = view.blocks(run)
        if CONFIG in changed:
            layers = config_layers(run.recipe, (run.hydra.get("runtime") or {}).get("choices"))
            rows = config_rows(flatten(run.config), override_keys(run.overrides), layers)
            parts["config"] = {"config": pack(rows), "style": style_block()}
        samples = read_samples(run)
        parts["samples"] = {"samples": pack(samples)}
        views = ["overview", "curves", "configuration", "samples"]
        views += [view.name for view in _views() if parts[view.name]]
        index = run_index(run, views) | {"has_samples": bool(samples), "samples_of": count_by_prompt(samples)}
        parts["run"] = {"index": pack(index)} | curve_blocks(curves.columns(run.metrics))


def _views() -> tuple[View, ...]:
    return tuple(view for pages in all_pages() for view in pages.views)


def style_block() -> str:
    """The style of the pages of runs, which their script adds to the shared one."""
    return pack_text(files("verl_ext.report").joinpath("static", "run.css").read_text(encoding="utf-8"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument("path", type=Path, metavar="RUN_DIR", help="a run folder, also of a running run")
    add_png_arguments(parser)


def default_output(options: argparse.Namespace) -> Path:
    """The page's path in the run folder."""
    return options.path / "report.html"


def source(options: argparse.Namespace) -> RunSource:
    """The content of `run`'s page; with `--png` the curves are also drawn.

    Raises:
        SignalError: The run does not exist, or a metric or smoothing weight cannot be drawn.
    """
    run = read_run(options.path)
    if options.png is not None:
        write_pngs([run], options)
    return RunSource(options.path)
