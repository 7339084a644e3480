"""Pages of a run, each one HTML file that opens with a double click.

    python -m verl_ext.report run RUN_DIR [--png DIR]
    python -m verl_ext.report compare RUN_DIR... [--png DIR]

A recipe may add its own commands: `--help` lists them, `docs/report.md` has examples.
`--output FILE|DIR` says where to write, `--serve [PORT]` serves the page on this machine instead and follows the files.
"""

import argparse
import sys
from pathlib import Path

from verl_ext.core.errors import SignalError
from verl_ext.report import compare, run
from verl_ext.report.page import render
from verl_ext.report.recipe_pages import Command, all_pages
from verl_ext.report.server import serve

# Commands of every run; a recipe may add others.
COMMANDS: tuple[Command, ...] = (run, compare)


def main(arguments: list[str] | None = None) -> int:
    """Write or serve a page; exit status 2 and one message if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m verl_ext.report", description="Inspect a run.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (*(command for pages in all_pages() for command in pages.commands), *COMMANDS):
        sub = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(sub)
        _add_output(sub)
        sub.set_defaults(source=command.source, default_output=command.default_output)
    options = parser.parse_args(arguments)
    try:
        source = options.source(options)
        source.refresh()
        if options.serve is not None:
            serve(source, options.serve)
        else:
            path = _output_path(options.output or options.default_output(options), options.command)
            path.write_text(render(source.page()), encoding="utf-8")
            print(f"{path.resolve()}  ({path.stat().st_size / 1e6:.1f} MB; open it in a browser)")
    except (SignalError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE|DIR",
        help="where to write (default: into the run folder; a comparison next to the runs)",
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        type=int,
        const=0,
        metavar="PORT",
        help="serve a live view on 127.0.0.1 instead, which shows new records as they are written",
    )


def _output_path(output: Path, name: str) -> Path:
    path = output if output.suffix == ".html" else output / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
