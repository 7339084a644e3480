"""The golden viewer's command: ARC tasks with their golden solutions, and the output of running them."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pygments import lex
from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

from recipe.golden_redaction.pages.tokens import load_tokenizer
from verl_ext.arc.order import LEVELS
from verl_ext.arc.prompts import Tokenizer, encode_golden
from verl_ext.arc.solutions import GOLDEN, read_pairs, read_solution, solution_names
from verl_ext.core.errors import ConfigError
from verl_ext.data.arc_tasks import Pair
from verl_ext.data.row_report import SourceError
from verl_ext.report.blocks import pack
from verl_ext.report.page import Page, own_scripts
from verl_ext.sandbox.policy import LEVELS as SANDBOX_LEVELS
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.results import Execution

NAME = "golden"
HELP = "ARC tasks with their grids, golden solutions, and the output of running them."

SCRIPTS = own_scripts("recipe.golden_redaction.pages", "golden.js")


class GoldenSource:
    """Golden solutions as a page; `refresh` runs those whose file changed.

    Args:
        pairs: Pairs of every task to show, by task and name.
        folder: Folder of <task>.py files.
        tokenizer: Counts golden tokens; None: they are not shown.
        policy: Policy of the sandbox; None: nothing is run.
    """

    def __init__(
        self,
        pairs: Mapping[str, Mapping[str, Pair]],
        folder: Path = GOLDEN,
        tokenizer: Tokenizer | None = None,
        policy: SandboxPolicy | None = None,
        with_unsolved: bool = False,
    ) -> None:
        self._pairs = pairs
        self._folder = folder
        self._tokenizer = tokenizer
        self._policy = policy
        self._with_unsolved = with_unsolved
        self._sources: dict[str, str | None] = {}
        self._rows: dict[str, dict[str, Any]] = {}
        self._blocks: dict[str, str] = {}
        self._version = 0

    def refresh(self) -> int:
        names = [name for name in solution_names(self._folder) if name in self._pairs]
        sources: dict[str, str | None] = {name: read_solution(name, self._folder) for name in names}
        if self._with_unsolved:
            sources |= {name: None for name in sorted(self._pairs) if name not in sources}
        changed = [name for name in sources if name not in self._sources or self._sources[name] != sources[name]]
        if changed or list(sources) != list(self._sources):
            self._take(sources, changed)
            self._sources = sources
            self._version += 1
        return self._version

    def page(self) -> Page:
        rows = [self._rows[name] for name in self._sources]
        about = [f"{len(rows)} tasks", *([] if self._policy else ["the solutions were not run"])]
        blocks = {f"task-{name}": self._blocks[name] for name in self._sources}
        return Page("Golden solutions", SCRIPTS, {"index": pack({"tasks": rows, "about": about})} | blocks)

    def _take(self, sources: Mapping[str, str | None], names: Iterable[str]) -> None:
        results = self._run({name: source for name in names if (source := sources[name]) is not None})
        for name in names:
            source, pairs, found = sources[name], self._pairs[name], results.get(name)
            self._rows[name] = {
                "task": name,
                "level": next((number for number, level in enumerate(LEVELS, 1) if name in level), None),
                "pairs": len(pairs),
                "right": None if found is None else sum(result.status == "ok" for result in found),
                "tokens": self._count(source),
                "lines": None if source is None else len(source.splitlines()),
                "has_solution": source is not None,
            }
            self._blocks[name] = pack(
                {
                    "task": name,
                    "code": None if source is None else highlight(source),
                    "pairs": [
                        _pair(name, pair, found[place] if found else None)
                        for place, (name, pair) in enumerate(pairs.items())
                    ],
                }
            )

    def _run(self, sources: Mapping[str, str]) -> dict[str, tuple[Execution, ...]]:
        if self._policy is None or not sources:
            return {}
        programs = [(source, list(self._pairs[name].values())) for name, source in sources.items()]
        with SandboxPool(self._policy) as pool:
            results = pool.check_many(programs)
        return {name: result.pairs for name, result in zip(sources, results, strict=True)}

    def _count(self, source: str | None) -> int | None:
        if source is None or self._tokenizer is None:
            return None
        try:
            return len(encode_golden(source, self._tokenizer))
        except ValueError:
            return None  # `golden check` reports the error


def highlight(source: str) -> list[tuple[str, str]]:
    """Python as pieces of text, each with Pygments' short class name ("" for plain text); joined they are `source`."""
    pieces: list[tuple[str, str]] = []
    for kind, text in lex(source, PythonLexer(stripnl=False, ensurenl=False)):
        while kind not in STANDARD_TYPES and kind.parent is not None:
            kind = kind.parent
        name = STANDARD_TYPES.get(kind, "")
        if pieces and pieces[-1][0] == name:
            pieces[-1] = (name, pieces[-1][1] + text)
        else:
            pieces.append((name, text))
    return pieces


def _pair(name: str, pair: Pair, result: Execution | None) -> dict[str, Any]:
    shown = None
    if result is not None:
        shown = {"status": str(result.status), "detail": result.detail, "grid": result.grid, "printed": result.printed}
    return {"name": name, "input": pair.input, "output": pair.output, "result": shown}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `golden`."""
    parser.add_argument("--tasks", type=Path, nargs="+", required=True, metavar="ARC", help="ARC collections")
    parser.add_argument("--fresh", type=Path, help="fresh pairs, JSON lines")
    parser.add_argument("--max-fresh", type=int, default=4, help="fresh pairs per task to run and draw; default 4")
    parser.add_argument("--all", action="store_true", help="include tasks without a golden solution")
    parser.add_argument("--tokenizer", help="folder or hub name; counts golden tokens")
    parser.add_argument("--require", choices=sorted(SANDBOX_LEVELS), default="minimum", help="the sandbox's isolation")


def default_output(options: argparse.Namespace) -> Path:
    """A fixed path, because the page belongs to no run."""
    return Path("outputs/report/golden.html")


def source(options: argparse.Namespace) -> GoldenSource:
    """The content of `golden`'s page.

    Raises:
        SignalError: A file or the tokenizer is missing.
    """
    try:
        pairs = read_pairs(options.tasks)
        if options.fresh is not None:
            for name, fresh in read_pairs([], options.fresh).items():
                if name in pairs:
                    pairs[name] |= dict(list(fresh.items())[: max(0, options.max_fresh)])
    except SourceError as error:
        raise ConfigError(f"--tasks: {error}") from None
    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
    policy: SandboxPolicy | None = SandboxPolicy(require=options.require)
    try:
        with SandboxPool(policy, workers=1):
            pass
    except SandboxUnavailableError as error:
        print(f"The solutions are not run: {error}", file=sys.stderr)
        policy = None
    return GoldenSource(pairs, tokenizer=tokenizer, policy=policy, with_unsolved=options.all)
