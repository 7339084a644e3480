"""The trace viewer's command: golden redaction's training entries, state by state and token by token."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from recipe.golden_redaction.pages.tokens import load_tokenizer
from recipe.golden_redaction.pages.trace_data import TraceBook
from recipe.golden_redaction.pages.trace_entries import EntryTail, NoTraceError
from recipe.golden_redaction.run_files import ENTRIES
from verl_ext.core.errors import ConfigError
from verl_ext.data.arc_tasks import Task, read_tasks
from verl_ext.data.row_source import SourceError
from verl_ext.report.page import Page, own_scripts

NAME = "trace"
HELP = "Which token of which golden solution was pushed up or down, why, and whether it moved."

SCRIPTS = (
    "charts.js",
    *own_scripts(
        "recipe.golden_redaction.pages",
        "trace.js",
        "trace_table.js",
        "trace_tokens.js",
        "trace_actions.js",
        "trace_rollouts.js",
        "trace_state.js",
        "trace_problem.js",
    ),
)


class TraceSource:
    """A file of entries as a page; `refresh` adds new entries."""

    def __init__(self, path: Path, book: TraceBook) -> None:
        self._tail = EntryTail(path)
        self._book = book
        self._version = 0
        self._page: Page | None = None

    def refresh(self) -> int:
        entries, is_void = self._tail.new_entries()
        if is_void:
            self._book.clear()
        self._book.add(entries)
        if entries or is_void:
            self._version += 1
            self._page = None
        return self._version

    def page(self) -> Page:
        if self._page is None:
            title = f"Trace of {self._tail.path.parent.name or self._tail.path.name}"
            self._page = Page(title, SCRIPTS, self._book.blocks(), with_plotly=True)
        return self._page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `trace`."""
    parser.add_argument(
        "path", type=Path, metavar="RUN_DIR|ENTRIES.jsonl", help="a run folder, or its training entries"
    )
    parser.add_argument("--tasks", type=Path, action="append", default=[], help="ARC collection, for the grids")
    parser.add_argument("--model", help="folder or hub name whose tokenizer the run used; default: the run's own")


def default_output(options: argparse.Namespace) -> Path:
    """The page's path in the run folder."""
    return (options.path if options.path.is_dir() else options.path.parent) / "trace.html"


def source(options: argparse.Namespace) -> TraceSource:
    """The content of `trace`'s page.

    Raises:
        SignalError: A file or the tokenizer is missing.
    """
    path = options.path / ENTRIES if options.path.is_dir() else options.path
    # A live view may be opened before the first step has finished.
    if not path.is_file() and not (options.path.is_dir() and options.serve is not None):
        raise NoTraceError(f"{path}: no such file. Give a golden-redaction run folder or its file of training entries")
    tasks = read_task_files(options.tasks)
    model = options.model or model_of_run(path.parent)
    tokenizer = None
    if options.model:
        tokenizer = load_tokenizer(options.model)
    elif model:
        try:
            tokenizer = load_tokenizer(model)
        except ConfigError as error:
            print(f"{error}\nTokens are shown as ids; --model names a tokenizer.", file=sys.stderr)
    else:
        print("No model is known, so tokens are shown as ids: --model names a tokenizer.", file=sys.stderr)
    about = [f"entries: {path}", f"tokenizer: {model}" if tokenizer is not None else "no tokenizer: tokens as ids"]
    return TraceSource(path, TraceBook(tokenizer, tasks, about, path.resolve().parent.name))


def read_task_files(paths: Sequence[Path]) -> dict[str, Task]:
    """Tasks of ARC collections by id.

    Raises:
        ConfigError: A collection cannot be read.
    """
    try:
        return {task.id: task for path in paths for task in read_tasks(path)[0]}
    except SourceError as error:
        raise ConfigError(f"--tasks: {error}") from None


def model_of_run(folder: Path) -> str | None:
    """The model's path in the configuration that Hydra wrote to a run folder; None if there is none."""
    try:
        value = yaml.safe_load((folder / "hydra" / "config.yaml").read_text(encoding="utf-8"))
        for name in ("actor_rollout_ref", "model", "path"):
            value = value[name]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) and value else None
