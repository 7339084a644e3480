"""The installed command `verl-signal`: every program of the package by a short name.

    verl-signal                                     # the names
    verl-signal fast_dapo +backend=cpu …            # python -m recipe.fast_dapo.main +backend=cpu …
    verl-signal fast_dapo.simulate …                # python -m recipe.fast_dapo.simulate …
    verl-signal data.gsm8k …                        # python -m data_preprocess.gsm8k …
    verl-signal report run RUN_DIR                  # python -m verl_ext.report run RUN_DIR

A name becomes the documented `python -m` command in the same process, so both do the same.
"""

import ast
import difflib
import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_IS_PROGRAM = 'if __name__ == "__main__":'


@dataclass(frozen=True)
class Program:
    """A program that `python -m` can start.

    Attributes:
        name: Its name for `verl-signal`.
        module: Its module name.
        file: Its source file.
    """

    name: str
    module: str
    file: Path

    @property
    def purpose(self) -> str:
        """The first line of its docstring."""
        return (ast.get_docstring(ast.parse(self.file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def programs() -> dict[str, Program]:
    """Every program, by name: those of the recipes that are installed, of the data sets, and the tools."""
    found = [sorted(each, key=lambda program: program.name) for each in (_of_recipes(), _of_tools(), _of_data_sets())]
    return {program.name: program for group in found for program in group}


def _of_recipes() -> Iterator[Program]:
    for recipe in _children("recipe", "*/recipe.py"):
        for file in recipe.parent.glob("*.py"):
            if _is_program(file):
                owner = recipe.parent.name
                yield Program(
                    owner if file.stem == "main" else f"{owner}.{file.stem}", f"recipe.{owner}.{file.stem}", file
                )


def _of_tools() -> Iterator[Program]:
    for file in _children("verl_ext", "*/__main__.py"):
        yield Program(file.parent.name, f"verl_ext.{file.parent.name}", file)


def _of_data_sets() -> Iterator[Program]:
    for file in _children("data_preprocess", "*.py"):
        if _is_program(file):
            yield Program(f"data.{file.stem}", f"data_preprocess.{file.stem}", file)


def _children(package: str, pattern: str) -> list[Path]:
    """Files of a package, which may have several folders: `recipe` is a namespace."""
    return [file for place in importlib.import_module(package).__path__ for file in Path(place).glob(pattern)]


def _is_program(file: Path) -> bool:
    return _IS_PROGRAM in file.read_text(encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the program named by the first argument; exit status 2 and one sentence if there is none."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    known = programs()
    if name in ("-h", "--help"):
        width = max(map(len, known))
        print("usage: verl-signal NAME …, with the arguments of its program (--help lists them)\n")
        print("\n".join(f"{each.name:<{width}}  {each.purpose}" for each in known.values()))
        return 0
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        print(f"verl-signal has no {name!r}: {meant}`verl-signal --help` lists the programs", file=sys.stderr)
        return 2
    os.execv(sys.executable, [sys.executable, "-m", known[name].module, *rest])
