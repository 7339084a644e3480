"""Docstrings, comments and messages of the code are in plain English: none of `test_plain_english.TURNS` is in them.

Text in backticks and examples are exempt. Golden solutions are data that models are trained on, not prose. The linter's
own files quote what they look for.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from each import check_each
from test_plain_english import TURNS, Turn

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("recipe", "verl_ext", "data_preprocess", "tests", "docs", "configs")
FILES = sorted(
    path
    for path in [ROOT / "setup.py", *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    if "verl_ext/arc/golden" not in path.as_posix() and not path.name.startswith("test_plain_english")
)

MORE_TURNS = (
    Turn(
        r"\bso many (?:bytes|characters|devices|items|lines|prompts|ranks|rollouts|rows|seconds|steps|tokens)\b",
        "'this many'",
        "It returns so many rollouts.",
    ),
    Turn(r"\b(?:is|are|were) no (?:file|folder|grid|JSON|number|part|plain)\b", "'is not a'", "The path is no folder."),
    Turn(r"\bhas no say\b", "'has no effect'", "The reward has no say here."),
    Turn(r"\btold? apart\b|\btells? \w+ apart\b", "'distinguishes'", "The hash tells prompts apart."),
)

_EXEMPT = re.compile(r"`[^`]*`|^ *>>> .*$", re.MULTILINE)  # names and commands; examples
_WORDS_OF_A_MESSAGE = 3  # shorter strings are names


class Prose(NamedTuple):
    """A docstring, a comment or a message: its first line in the file, and its text."""

    line: int
    text: str


def _strings(tree: ast.AST) -> Iterator[Prose]:
    """Docstrings and messages; a value within a message counts as a name."""
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(id(part) for part in ast.walk(node) if part is not node)
            pieces = [part.value if isinstance(part, ast.Constant) else "`…`" for part in node.values]
            yield Prose(node.lineno, "".join(map(str, pieces)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield Prose(node.lineno, node.value)


def _comments(source: str) -> Iterator[Prose]:
    """Comments; lines that follow each other are one."""
    line, end, text = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            is_whole_line = token.line.lstrip().startswith("#")
            if not is_whole_line or token.start[0] != end + 1:
                yield Prose(line, text)
                line, text = token.start[0], ""
            text, end = f"{text}\n{token.string.lstrip('#: ')}", token.start[0] if is_whole_line else -1
    yield Prose(line, text)


def prose(source: str) -> list[Prose]:
    """The prose of a Python file, in its order."""
    found = [*_strings(ast.parse(source)), *_comments(source)]
    return sorted(one for one in found if len(one.text.split()) >= _WORDS_OF_A_MESSAGE)


def find(source: str) -> list[str]:
    """Every turn to avoid in a Python file: line, what it says there, and what to say instead."""
    return turns_in(prose(source))


def turns_in(texts: Iterable[Prose]) -> list[str]:
    """Every turn to avoid in pieces of prose: line, what it says there, and what to say instead."""
    return [
        f"line {line}: {match[0].strip()!r}: write {turn.instead}"
        for line, text in texts
        for turn, pattern in _PATTERNS
        for match in pattern.finditer(" ".join(_EXEMPT.sub("·", text).split()))
    ]


_PATTERNS = [(turn, re.compile(turn.pattern, re.IGNORECASE)) for turn in (*TURNS, *MORE_TURNS)]


def test_no_code_has_a_turn_to_avoid():
    def check(path: Path) -> None:
        found = find(path.read_text(encoding="utf-8"))
        assert not found, "\n" + "\n".join(f"    {path.relative_to(ROOT)}, {one}" for one in found)

    check_each(FILES, check)


def test_the_files_are_found():
    names = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert names >= {"recipe/tracin/selector.py", "verl_ext/plugin.py", "setup.py", "docs/site/hooks.py"}
    assert len(names) > 600


@pytest.mark.parametrize("turn", [*TURNS, *MORE_TURNS], ids=lambda turn: turn.example)
@pytest.mark.parametrize(
    "code",
    [
        '"""{}"""',
        'def f():\n    """Does it.\n\n    {}\n    """',
        "x = 1  # {}",
        "# Where it is.\n# {}",
        'raise ValueError(f"at {{x}}: {}")',
        'class A:\n    a: int\n    """{}"""',
    ],
)
def test_a_bad_sentence_is_found(code: str, turn: Turn):
    assert any(turn.instead in one for one in find(code.format(turn.example)))
    assert any(turn.instead in one for one in find(code.format("It: " + turn.example)))
    assert find(code.format(f"See `{turn.example}` there.")) == []


@pytest.mark.parametrize(
    "code",
    [
        'name = "go on"',
        '"""Adds.\n\n>>> add("some 300 rows, anew")\n"""',
        "going_on = alone = 1",
    ],
)
def test_code_is_not_prose(code: str):
    assert find(code) == []
