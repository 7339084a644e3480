"""Every command in README files and docs, and whether its program would accept its arguments."""

import argparse
import io
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [
        ROOT / "README.md",
        *(path for path in (ROOT / "docs").rglob("*.md")),
        *(path for folder in ("recipe", "verl_ext", "data_preprocess") for path in (ROOT / folder).rglob("README.md")),
    ]
)
_FENCE = re.compile(r"^( *)```(bash|sh|shell|console)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_ANY_FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`((?:python|\.venv/bin/python|make|pytest|pip) [^`\n]+)`")
_HEADING = re.compile(r"^#+ ", re.MULTILINE)
# What the reader replaces.
_PLACEHOLDERS = ("…", "...", "KEY=VALUE")
_PYTHONS = ("python", ".venv/bin/python", "python3.11")


@dataclass(frozen=True)
class Command:
    """One command of a page.

    Attributes:
        page: Path of the page in the repository.
        words: The words as a shell splits them, without comments, line breaks and variables set for the command.
        section: All of the page's text under the same heading, which must mention a need for GPUs.
        is_fenced: From a block of code that is meant to be pasted; others name a program in running text.
    """

    page: str
    words: tuple[str, ...]
    section: str
    is_fenced: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"

    @property
    def module(self) -> str | None:
        """The module of `python -m MODULE`."""
        if self.words[0] in _PYTHONS and len(self.words) > 2 and self.words[1] == "-m":
            return self.words[2].replace("recipe.NAME", "recipe.fast_dapo")
        return None

    @property
    def is_part(self) -> bool:
        """Whether only what differs from another command is written out."""
        return any(word in _PLACEHOLDERS for word in self.words)

    @property
    def arguments(self) -> list[str]:
        """What follows the program, without placeholders except those that are the value of an option."""
        rest = list(self.words[3:] if self.module else self.words[2:])
        kept = []
        for before, word in zip(["", *rest], rest, strict=False):
            stands_alone = not before.startswith("--")
            if (word in _PLACEHOLDERS and stands_alone) or word.endswith("=…") or "{enable," in word:
                continue
            kept.append(word)
        return kept


def read_commands() -> list[Command]:
    """The commands of all pages, in the order of the pages."""
    return [command for page in PAGES for command in _of_page(page)]


def _of_page(page: Path) -> Iterator[Command]:
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    for block in _FENCE.finditer(text):
        for line in block[3].replace("\\\n", " ").splitlines():
            for part in re.split(r"\s(?:&&|;|\|)\s", line):
                words = _words(part)
                if words:
                    yield Command(name, words, _section(text, block.start()), is_fenced=True)
    # Blanked, not removed, so that positions stay the same.
    prose = _ANY_FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)
    for span in _INLINE.finditer(prose):
        yield Command(name, _words(span[1].replace("[", "").replace("]", "")), _section(text, span.start()), False)


def _words(line: str) -> tuple[str, ...]:
    words = shlex.split(line.strip().removeprefix("$ "), comments=True)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    return tuple(words)


def _section(text: str, place: int) -> str:
    headings = [match.start() for match in _HEADING.finditer(_ANY_FENCE.sub(lambda m: "x" * len(m[0]), text))]
    start = max((heading for heading in headings if heading <= place), default=0)
    return text[start : min((heading for heading in headings if heading > place), default=len(text))]


class Accepted(BaseException):
    """A program has read its arguments and would start now."""


@contextmanager
def _stops_after_its_arguments(words: list[str], is_part: bool) -> Iterator[None]:
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, args=None, namespace=None):
        for action in self._actions if is_part else ():
            action.required = False
        parse(self, args, namespace)
        raise Accepted

    with patch.object(argparse.ArgumentParser, "parse_args", parse_and_stop), patch.object(sys, "argv", words):
        yield


def parse(program: str, command: Command) -> None:
    """Let a program read its arguments, and stop it there.

    Args:
        program: A module, or the path of a script.
        command: The command whose arguments it is given.

    Raises:
        AssertionError: The program refused them; the message has its output.
    """
    said = io.StringIO()
    with _stops_after_its_arguments([program, *command.arguments], command.is_part), redirect_stderr(said):
        try:
            if program.endswith(".py"):
                sys.path.insert(0, str((ROOT / program).parent))
                runpy.run_path(str(ROOT / program), run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__", alter_sys=False)
        except Accepted:
            return
        except SystemExit as end:
            if end.code in (0, None):  # --help
                return
            raise AssertionError(said.getvalue() or f"{program} ended with {end.code}") from end
        finally:
            if program.endswith(".py"):
                sys.path.pop(0)
    raise AssertionError(f"{program} began without reading its arguments")
