"""Observations and procedure of a candidate, from its program's comments and docstrings. Pure."""

import ast
import re
from collections.abc import Sequence

from verl_ext.arc.form import MIN_OBSERVATIONS, TO_WRITE
from verl_ext.arc.importer.layout import comments_above
from verl_ext.arc.importer.modules import Module

OBSERVATION = f"{TO_WRITE}: what is true of all examples."
STEP = f"{TO_WRITE}: what the code does, step by step."
_ABOUT_ARGUMENTS = re.compile(
    r"(?:args|arguments|parameters|params|returns?|raises|examples?|notes?)\s*:?\s*$", re.IGNORECASE
)
_ITEM = re.compile(r"(?:[-*\u2022]|\d+[.)])\s+(.*)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def docstring(observations: Sequence[str], steps: Sequence[str]) -> str:
    """The docstring of a candidate, indented; missing parts are marked as still to be written."""
    observations = [line for line in dict.fromkeys(observations) if TO_WRITE not in line]
    steps = [line for line in steps if TO_WRITE not in line]
    if len(observations) < MIN_OBSERVATIONS:
        observations.append(OBSERVATION)
    lines = ["Observations:", *(f"- {line}" for line in observations), "Procedure:"]
    lines += [f"{number}. {line}" for number, line in enumerate(steps or [STEP], 1)]
    body = "\n".join(f"    {line}" for line in lines).replace("\\", "\\\\").replace('"""', "'''").replace("```", "'''")
    return f'    """\n{body}\n    """\n'


def notes(module: Module, entry: ast.stmt, is_whole_file: bool) -> tuple[list[str], list[str]]:
    """Observations and steps from a program's docstrings and comments.

    Args:
        module: Module of the program.
        entry: The entry function, or the statement that defines it.
        is_whole_file: Whether the module's own docstring is about this program.
    """
    own = (ast.get_docstring(entry) or "") if isinstance(entry, ast.FunctionDef) else ""
    lines = [line.strip() for line in own.splitlines()]
    if lines[:1] == ["Observations:"] and lines.count("Procedure:") == 1:  # in the golden form already
        cut = lines.index("Procedure:")
        return sentences("\n".join(lines[1:cut]), whole=True), sentences("\n".join(lines[cut + 1 :]), whole=True)
    parts = [(ast.get_docstring(module.tree) or "") if is_whole_file else "", _above(module, entry), own]
    observations = [sentence for part in parts for sentence in sentences(part)]
    return observations, _comments_within(module, entry)


def sentences(text: str, whole: bool = False) -> list[str]:
    """The sentences and list items of a text, each in one line, up to a section about arguments.

    Args:
        text: Text of a docstring or of comments.
        whole: Whether a list item stays in one piece, whatever its number of sentences.
    """
    items = [""]
    for line in map(str.strip, text.splitlines()):
        if _ABOUT_ARGUMENTS.match(line):
            break
        item = _ITEM.match(line)
        if item or not line:
            items.append(item[1] if item else "")
        else:
            items[-1] += f" {line}"
    joined = [" ".join(item.split()) for item in items]
    split = joined if whole else [part for item in joined for part in _SENTENCE_END.split(item)]
    return [part for part in split if any(map(str.isalpha, part)) and not part.endswith(":")]


def _above(module: Module, entry: ast.stmt) -> str:
    """Blocks of comment above the entry, up to the statement before it."""
    line = min([entry.lineno, *(one.lineno for one in getattr(entry, "decorator_list", []))])
    blocks: list[str] = []
    while line > 1:
        block = comments_above(module, line)
        if block:
            blocks.insert(0, _words(block))
            line -= len(block)
        elif not module.lines[line - 2].strip():
            line -= 1
        else:
            break
    return "\n\n".join(blocks)


def _comments_within(module: Module, entry: ast.stmt) -> list[str]:
    """Blocks of comment inside the entry function, each as one step."""
    steps: list[list[bytes]] = []
    before = -2
    for number, line in enumerate(module.lines[entry.lineno : entry.end_lineno]):
        if line.lstrip().startswith(b"#"):
            if before != number - 1:
                steps.append([])
            steps[-1].append(line)
            before = number
    texts = dict.fromkeys(" ".join(_words(step).split()) for step in steps)
    return [text for text in texts if any(map(str.isalpha, text))]


def _words(lines: Sequence[bytes]) -> str:
    return "\n".join(line.decode("utf-8", "replace").strip().lstrip("#").strip(" =-") for line in lines)
