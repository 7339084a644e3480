"""Writes statements as text within one function: renamed, without annotations, with their comments. Pure.

Text is cut out of the source and edited, so that comments and layout stay. The result is checked by its syntax tree: if
that differs from the wanted tree, the text is generated from the tree instead, and only the comments are lost.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_ext.arc.importer.modules import Module
from verl_ext.arc.importer.scopes import parameters

INDENT = "    "
MAX_SIGNATURE = 100
_MARK = re.compile(rb"\s*(?:#!|#.*?coding[:=])")


@dataclass
class Changes:
    """Differences from the source.

    Attributes:
        names: New names, by the id of the node: a name, an attribute that becomes a name, a parameter, or a definition.
        edits: Further replacements: first and last line and column (as in a syntax tree), and the text.
    """

    names: dict[int, str] = field(default_factory=dict)
    edits: list[tuple[int, int, int, int, str]] = field(default_factory=list)


def rebuild(node: Any, names: Mapping[int, str], in_class: bool = False) -> Any:
    """A copy of a syntax tree with new names and without unused annotations."""
    if isinstance(node, list):
        return [rebuild(part, names, in_class) for part in node]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.Attribute) and id(node) in names:
        return ast.Name(names[id(node)], node.ctx)
    if isinstance(node, ast.AnnAssign) and _loses_annotation(node) and not in_class:
        return ast.Assign([rebuild(node.target, names)], rebuild(node.value, names))
    inside = isinstance(node, ast.ClassDef)
    values = {name: rebuild(value, names, inside and name == "body") for name, value in ast.iter_fields(node)}
    if isinstance(node, ast.Name):
        values["id"] = names.get(id(node), node.id)
    elif isinstance(node, ast.arg):
        values |= {"arg": names.get(id(node), node.arg), "annotation": None, "type_comment": None}
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        values["name"] = names.get(id(node), node.name)
        if isinstance(node, ast.FunctionDef):
            values["returns"] = None
    return type(node)(**values)


def _loses_annotation(node: ast.AnnAssign) -> bool:
    return node.value is not None and isinstance(node.target, ast.Name) and bool(node.simple)


def statement_text(module: Module, node: ast.stmt, names: Mapping[int, str]) -> str:
    """A statement of a module's top level, with the comments above it."""
    changes = Changes(dict(names))
    collect_edits(module, [node], changes)
    wanted = [rebuild(node, names)]
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    last = node.end_lineno or node.lineno
    if _shares_a_line(module, node, first, last):
        start, end = (first, node.col_offset), (last, node.end_col_offset or 0)
    else:
        start, end = (first - len(comments_above(module, first)), 0), (last, len(module.lines[last - 1]))
    return checked(cut(module, start, end, changes), wanted)


def comments_above(module: Module, line: int) -> list[bytes]:
    """The lines of comment directly above a line (from 1)."""
    found: list[bytes] = []
    above = line - 2
    while above >= 0 and module.lines[above].startswith(b"#") and not _MARK.match(module.lines[above]):
        found.insert(0, module.lines[above])
        above -= 1
    return found


def _shares_a_line(module: Module, node: ast.stmt, first: int, last: int) -> bool:
    return any(
        other is not node and other.lineno <= last and (other.end_lineno or other.lineno) >= first
        for other in module.tree.body
    )


def collect_edits(module: Module, nodes: Iterable[ast.AST], changes: Changes) -> None:
    """Add the edits for the new names and the annotations."""
    in_class = {
        id(part) for node in nodes for one in ast.walk(node) if isinstance(one, ast.ClassDef) for part in one.body
    }
    for top in nodes:
        for node in ast.walk(top):
            new = changes.names.get(id(node))
            if isinstance(node, ast.Name | ast.Attribute) and new is not None:
                _replace(node, new, changes)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                if new is not None:
                    _rename_definition(module, node, new, changes)
                if isinstance(node, ast.FunctionDef):
                    _edit_signature(module, node, changes)
            elif isinstance(node, ast.AnnAssign) and _loses_annotation(node) and id(node) not in in_class:
                target, note = node.target, node.annotation
                start = (target.end_lineno or 0, target.end_col_offset or 0)
                changes.edits.append((*start, note.end_lineno or 0, note.end_col_offset or 0, ""))


def _replace(node: ast.expr | ast.arg, text: str, changes: Changes) -> None:
    changes.edits.append((node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, text))


def _rename_definition(module: Module, node: ast.FunctionDef | ast.ClassDef, new: str, changes: Changes) -> None:
    match = re.compile(rb"(?:def|class)\s+(\w+)").match(module.lines[node.lineno - 1], node.col_offset)
    if match:
        changes.edits.append((node.lineno, match.start(1), node.lineno, match.end(1), new))


def _edit_signature(module: Module, node: ast.FunctionDef, changes: Changes) -> None:
    annotated = [one for one in parameters(node.args) if one.annotation is not None]
    if not annotated and node.returns is None:
        return
    start, end, has_comment = _signature(module, node)
    short = f"({ast.unparse(rebuild(node.args, changes.names))}):"
    if not has_comment and len(short) < MAX_SIGNATURE:
        changes.edits.append((*start, *end, short))
        return
    for one in annotated:
        _replace(one, changes.names.get(id(one), one.arg), changes)
    if node.returns is not None:
        line = module.lines[node.returns.lineno - 1]
        arrow = line.rfind(b"->", 0, node.returns.col_offset)
        if arrow >= 0:
            returns = (node.returns.end_lineno or 0, node.returns.end_col_offset or 0)
            changes.edits.append((node.returns.lineno, len(line[:arrow].rstrip()), *returns, ""))


def _signature(module: Module, node: ast.FunctionDef) -> tuple[tuple[int, int], tuple[int, int], bool]:
    """The span from the opening parenthesis to after the colon of a `def`, and whether it contains a comment."""
    text = b"\n".join(module.lines[node.lineno - 1 : node.body[0].lineno]).decode()
    depth, start, has_comment = 0, (0, 0), False
    rows = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.end
        place = (node.lineno - 1 + row, len(rows[row - 1][:column].encode()) if row <= len(rows) else 0)
        has_comment |= token.type == tokenize.COMMENT
        if token.string in ("(", "[", "{"):
            start = start if start[0] else (place[0], place[1] - 1)
            depth += 1
        elif token.string in (")", "]", "}"):
            depth -= 1
        elif token.string == ":" and depth == 0:
            return start, place, has_comment
    raise AssertionError(text)  # Python has parsed it


def cut(module: Module, start: tuple[int, int], end: tuple[int, int], changes: Changes) -> str:
    """The text between two positions (line from 1, column in bytes), edited."""
    lines = module.lines[start[0] - 1 : end[0]]
    lines[-1] = lines[-1][: end[1]]
    for first, column, last, until, text in reversed(_outermost(changes.edits)):
        if not start <= (first, column) <= (last, until) <= end:
            continue
        first, last = first - start[0], last - start[0]
        joined = lines[first][:column] + text.encode() + lines[last][until:]
        lines[first : last + 1] = joined.split(b"\n")
    lines[0] = lines[0][start[1] :]
    return b"\n".join(lines).decode("utf-8", "replace")


def _outermost(edits: Iterable[tuple[int, int, int, int, str]]) -> list[tuple[int, int, int, int, str]]:
    """The edits in order, without those inside another one, which covers them."""
    kept: list[tuple[int, int, int, int, str]] = []
    for edit in sorted(edits, key=lambda one: (one[:2], (-one[2], -one[3]))):
        if not kept or edit[:2] >= kept[-1][2:4]:
            kept.append(edit)
    return kept


def checked(text: str, wanted: Sequence[ast.stmt], indent: str = "") -> str:
    """`text` without the indentation, or the wanted statements generated if its meaning differs."""
    try:
        plain = shifted(text, indent, "")
        if _dump(ast.parse(plain).body) == _dump(wanted):
            return plain
    except (SyntaxError, ValueError, tokenize.TokenError):
        pass
    return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in wanted)


def _dump(nodes: Iterable[ast.AST]) -> list[str]:
    return [ast.dump(node) for node in nodes]


def shifted(text: str, old: str, new: str) -> str:
    """Replace the prefix `old` of lines by `new`; the inside of multi-line strings is unchanged."""
    lines = text.split("\n")
    inside = set(_inside_texts(text))
    for number, line in enumerate(lines):
        if number in inside:
            continue
        line = line.rstrip() if number + 1 not in inside else line
        lines[number] = new + line.removeprefix(old) if line else ""
    return "\n".join(lines)


def _inside_texts(text: str) -> Iterator[int]:
    """The lines, from 0, that begin inside a string."""
    # A region may begin with an indentation, which the tokenizer accepts after any opening line.
    opened: list[int] = []
    source = "if 1:\n" + text if text[:1] in (" ", "\t") else "\n" + text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":  # since Python 3.12
            opened.append(token.start[0])
        elif kind == "STRING" or (kind == "FSTRING_END" and opened):
            first = opened.pop() if kind == "FSTRING_END" else token.start[0]
            yield from range(first + 1 - 2, token.end[0] - 2 + 1)
