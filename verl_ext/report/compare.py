"""The comparison's command: several runs on one page."""

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

from verl_ext.report import curves
from verl_ext.report.blocks import pack
from verl_ext.report.compare_data import (
    accuracy_points,
    compare_curve_blocks,
    level_rows,
    names_of,
    number_rows,
    seed_groups,
)
from verl_ext.report.page import Page
from verl_ext.report.plots import add_png_arguments, write_pngs
from verl_ext.report.run import style_block
from verl_ext.report.run_config import differences, flatten
from verl_ext.report.run_data import run_line
from verl_ext.report.run_facts import NUMBERS, numbers
from verl_ext.report.run_records import RunRecords, read_run, stamp
from verl_ext.report.run_state import status_stamp
from verl_ext.run.metrics_stream import STEP
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile

NAME = "compare"
HELP = "Several runs on one page: curves over steps, seconds or rollouts, their numbers, and configuration differences."

SCRIPTS = ("charts.js", "seeds.js", "run_views.js", "run_curves.js", "compare.js", "run.js")

_MAX_NAME = 100  # bytes of the runs' names in a page's file


class CompareSource:
    """Run folders as one page; `refresh` reads changed runs again."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._stamps: list[Any] = [()] * len(paths)
        self._runs: list[RunRecords | None] = [None] * len(paths)
        self._version = 0
        self._page: Page | None = None

    def refresh(self) -> int:
        for place, path in enumerate(self._paths):
            folder = RunFolder(path)
            files = (folder.metrics, folder.summary, folder.first_validation, path / "hydra" / "config.yaml")
            now = (*map(stamp, files), status_stamp(StatusFile(folder.status).read()))
            if now != self._stamps[place]:
                self._stamps[place], self._runs[place] = now, read_run(path)
                self._version += 1
                self._page = None
        return self._version

    def page(self) -> Page:
        if self._page is None:
            runs = [run for run in self._runs if run is not None]
            self._page = Page("Runs compared", SCRIPTS, _blocks(runs), with_plotly=True)
        return self._page


def _blocks(runs: list[RunRecords]) -> dict[str, str]:
    tables = [curves.columns(run.metrics) for run in runs]
    names = names_of([run.path for run in runs])
    lines: list[dict[str, Any]] = [
        run_line(run, table) | {"name": name} for run, table, name in zip(runs, tables, names, strict=True)
    ]
    known = {name for table in tables for name in table}
    groups = seed_groups(names, [flatten(run.config) for run in runs])
    for line, group in zip(lines, groups, strict=True):
        line["group"] = group
    common = min((run.metrics[-1][STEP] for run in runs if run.metrics), default=0)
    index = {
        "about": [f"{len(runs)} runs", *(f"{name}: {run.path}" for name, run in zip(names, runs, strict=True))],
        "views": ["curves", "numbers", "configuration"],
        "runs": lines,
        "glossary": curves.explained(known),
        "verls_own": curves.verls_own(known),
        "groups": curves.groups(known),
        "headlines": curves.headlines(known - {STEP}),
        "numbers": number_rows([line["numbers"] for line in lines]),
        "number_meanings": NUMBERS,
        "common_step": common,
        "common_numbers": number_rows([numbers(None, _until(run, common)) for run in runs]),
        "levels": level_rows([accuracy_points(table) for table in tables]),
        "configuration": differences([flatten(run.config) for run in runs]),
        "num_keys": len({key for run in runs for key in flatten(run.config)}),
    }
    return {"index": pack(index), "style": style_block()} | compare_curve_blocks(tables)


def _until(run: RunRecords, step: int) -> list[dict[str, Any]]:
    return [record for record in run.metrics if record[STEP] <= step]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compare`."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="RUN_DIR", help="run folders; the first is the reference"
    )
    add_png_arguments(parser)


def default_output(options: argparse.Namespace) -> Path:
    """Next to the first run, named after all of them: each by its path below the folder that has them all."""
    paths = [path.resolve() for path in options.paths]
    common = os.path.commonpath([path.parent for path in paths])
    name = "-".join("-".join(path.relative_to(common).parts) for path in paths)
    if len(os.fsencode(name)) > _MAX_NAME:
        # Names that begin alike must not become the same.
        digits = hashlib.sha256(os.fsencode("\n".join(map(str, paths)))).hexdigest()[:6]
        name = f"{os.fsencode(name)[:_MAX_NAME].decode(errors='ignore')}-{digits}"
    return paths[0].parent / f"compare-{name}.html"


def source(options: argparse.Namespace) -> CompareSource:
    """The content of `compare`'s page; with `--png` the curves are also drawn.

    Raises:
        SignalError: A folder is not a run, or a metric or smoothing weight cannot be drawn.
    """
    runs = [read_run(path) for path in options.paths]
    if options.png is not None:
        write_pngs(runs, options)
    return CompareSource(options.paths)
