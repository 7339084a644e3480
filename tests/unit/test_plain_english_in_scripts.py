"""Comments of configurations, the Makefile, style sheets and the pages' scripts are in plain English, and so are the
scripts' strings.

Text in backticks is exempt, as in `test_plain_english_in_code`.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from each import check_each
from test_plain_english import TURNS
from test_plain_english_in_code import MORE_TURNS, Prose, turns_in

ROOT = Path(__file__).resolve().parents[2]
_COMMENT = re.compile(r"(?:^|\s)#+ ?(.*)$")
# In a script, a quote within a comment opens no string, and the other way round.
_PIECE = re.compile(
    r"//(?P<line>[^\n]*(?:\n *//[^\n]*)*)|/\*(?P<block>.*?)\*/"
    r"|'(?P<single>(?:\\.|[^'\\\n])*)'|\"(?P<double>(?:\\.|[^\"\\\n])*)\"|`(?P<template>(?:\\.|[^`\\])*)`",
    re.DOTALL,
)


def hash_comments(source: str) -> Iterator[Prose]:
    """Comments that begin with `#`; lines that follow each other are one."""
    line, end, text = 0, -1, ""
    for number, content in enumerate(source.splitlines(), 1):
        comment = _COMMENT.search(content)
        if comment is None:
            continue
        is_whole_line = content.lstrip().startswith("#")
        if not is_whole_line or number != end + 1:
            yield Prose(line, text)
            line, text = number, ""
        text, end = f"{text}\n{comment[1]}", number if is_whole_line else -1
    yield Prose(line, text)


def script_prose(source: str) -> Iterator[Prose]:
    """Comments and strings of a script or a style sheet; a value within a string counts as a name."""
    for piece in _PIECE.finditer(source):
        text = re.sub(r"\$\{[^}]*\}", "`…`", piece[piece.lastgroup].replace("//", ""))
        yield Prose(source.count("\n", 0, piece.start()) + 1, text)


def page_text(source: str) -> Iterator[Prose]:
    """The text of a page's template, without its tags."""
    yield Prose(1, re.sub(r"<[^>]*>|\{[{%].*?[}%]\}", "·", source))


KINDS: dict[str, Callable[[str], Iterator[Prose]]] = {
    "Makefile": hash_comments,
    "*.toml": hash_comments,
    ".ci/*": hash_comments,
    "configs/**/*.yaml": hash_comments,
    "configs/**/*.j2": hash_comments,
    "configs/requirements/*.*": hash_comments,
    "docs/site/*.yml": hash_comments,
    "docs/site/*.js": script_prose,
    "docs/site/*.css": script_prose,
    "recipe/*/pages/static/*": script_prose,
    "verl_ext/report/static/*": script_prose,
    "verl_ext/report/templates/*": page_text,
}
FILES = {
    path: read
    for pattern, read in KINDS.items()
    for path in sorted(ROOT.glob(pattern))
    if path.is_file() and path.suffix != ".py"
}


def test_no_file_has_a_turn_to_avoid():
    def check(path: Path) -> None:
        found = turns_in(FILES[path](path.read_text(encoding="utf-8")))
        assert not found, "\n" + "\n".join(f"    {path.relative_to(ROOT)}, {one}" for one in found)

    check_each(FILES, check)


@pytest.mark.parametrize("pattern", KINDS)
def test_the_files_are_found(pattern: str):
    assert {path for path in FILES if path in set(ROOT.glob(pattern))}


@pytest.mark.parametrize("turn", [*TURNS, *MORE_TURNS], ids=lambda turn: turn.example)
@pytest.mark.parametrize(
    ("read", "text"),
    [
        (hash_comments, "# {}\nkey: value\n"),
        (hash_comments, "key:\n  # See:\n  # {}\n  name: value\n"),
        (hash_comments, "key: value  # {}\n"),
        (hash_comments, "demo: data  ## {}\n"),
        (script_prose, "const a = 1; // It's this. {}\n"),
        (script_prose, "// It:\n// {}\nconst a = 1;\n"),
        (script_prose, "/* {} */\nmain {{ color: red; }}\n"),
        (script_prose, 'say("{}");\n'),
        (script_prose, "say('{}');\n"),
        (script_prose, "say(`${{count}} rows: {}`);\n"),
        (page_text, "<p>{{{{ name }}}}: {}</p>\n"),
    ],
)
def test_a_bad_sentence_is_found(read: Callable[[str], Iterator[Prose]], text: str, turn):
    assert any(turn.instead in one for one in turns_in(read(text.format(turn.example))))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (hash_comments, "goes_on: anew\n"),
        (hash_comments, "path: pkg://a#anew\n# See `mend`.\n"),
        (script_prose, "const anew = alone.mend(beside);\n"),
        (script_prose, "// See `anew`.\n"),
        (page_text, "<p class='anew'>{{ beside }}</p>\n"),
    ],
)
def test_code_is_not_prose(read: Callable[[str], Iterator[Prose]], text: str):
    assert turns_in(read(text)) == []
