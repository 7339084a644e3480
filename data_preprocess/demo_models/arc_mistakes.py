"""Golden solutions with deliberate mistakes: training data of golden redaction's CPU demo model. Pure.

A site is a place in the code where a mistake is possible: an operator, a small number, a function such as `min`, or one
of the function's own variables. Its alternatives are fixed by the source and are one or two tokens, so that a model
that reads many copies learns just these, and samples them often enough to learn which of them is right. Each copy draws
independently at every site: the right token stays the most probable one, and errors at the end of a solution do not
depend on its beginning.

Sites are few and spread evenly over the code: each that matters multiplies the probability of a correct solution by 1 -
rate. `return result`, the docstring, the layout and the names that a statement binds are unchanged.
"""

import ast
import io
import keyword
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_MAX_NUMBER = 9

_OPERATORS: dict[str, tuple[str, ...]] = {
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">"),
    ">": (">=", "<"),
    "<=": ("<", ">="),
    ">=": (">", "<="),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "//": ("%",),
    "%": ("//",),
}

# Functions, methods and keywords of Python. Local variables are taken from the source instead.
_WORDS: dict[str, tuple[str, ...]] = {
    "all": ("any",),
    "and": ("or",),
    "any": ("all",),
    "append": ("extend",),
    "break": ("continue",),
    "continue": ("break",),
    "count": ("index",),
    "extend": ("append",),
    "index": ("count",),
    "len": ("sum",),
    "list": ("set",),
    "max": ("min",),
    "min": ("max",),
    "or": ("and",),
    "reversed": ("sorted",),
    "set": ("list",),
    "sorted": ("reversed",),
    "sum": ("len",),
}

# Variables that are most often confused; others are confused with the nearest variable in the text.
_TWINS = {"height": "width", "width": "height", "row": "col", "col": "row"}


@dataclass(frozen=True)
class Site:
    """A place where a mistake is possible.

    Attributes:
        start: Start of the right text, an index of the source.
        end: End of the right text.
        alternatives: One or two wrong texts.
    """

    start: int
    end: int
    alternatives: tuple[str, ...]


def find_sites(source: str, max_sites: int | None = None) -> list[Site]:
    """The sites of a solution, in the order of the text; the same ones at every call.

    Args:
        source: A golden solution.
        max_sites: Keep this many, evenly spread from the first to the last; None for all.

    Raises:
        SyntaxError: The source is not Python.
    """
    starts = _line_starts(source)
    misread = _misread_variables(source, starts)
    found = []
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        alternatives = tuple(_alternatives(token, before, start, misread))
        if alternatives:
            found.append(Site(start, end, alternatives))
        before = token.string
    if max_sites is None or len(found) <= max_sites:
        return found
    if max_sites == 1:
        return found[-1:]
    return [found[round(place)] for place in np.linspace(0, len(found) - 1, max_sites)]


def with_mistakes(source: str, rng: np.random.Generator, rate: float, max_sites: int | None = None) -> str:
    """A copy that has, at each site and with probability `rate`, one of the site's wrong texts.

    Args:
        source: A golden solution.
        rng: Always used for two draws per site.
        rate: 0 returns the source unchanged.
        max_sites: See `find_sites`.
    """
    return replace_at(source, find_sites(source, max_sites), rng, rate)


def replace_at(source: str, sites: Sequence[Site], rng: np.random.Generator, rate: float) -> str:
    """`with_mistakes` for a caller that makes many copies and already has the sites."""
    pieces, done = [], 0
    for site in sites:
        is_wrong, which = rng.random() < rate, int(rng.random() * len(site.alternatives))
        if is_wrong:
            pieces += [source[done : site.start], site.alternatives[which]]
            done = site.end
    return "".join([*pieces, source[done:]])


def _misread_variables(source: str, starts: list[int]) -> dict[int, str | None]:
    """Positions of the function's own variables, with their mistaken replacement; None where one is bound."""
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store) and node.id != "_"} | {"input_grid"}
    lines = source.splitlines()
    places = {  # ast counts columns in bytes
        starts[node.lineno - 1] + len(lines[node.lineno - 1].encode()[: node.col_offset].decode()): node
        for node in names
        if node.id in own
    }

    def mistake(start: int, node: ast.Name) -> str | None:
        if not isinstance(node.ctx, ast.Load):
            return None
        if _TWINS.get(node.id) in own:
            return _TWINS[node.id]
        others = [(abs(place - start), place, other.id) for place, other in places.items() if other.id != node.id]
        return min(others)[2] if others else None

    return {start: mistake(start, node) for start, node in places.items()}


def _alternatives(
    token: tokenize.TokenInfo, before: str, start: int, misread: Mapping[int, str | None]
) -> Iterator[str]:
    if token.type == tokenize.NUMBER:
        if token.string.isdigit() and int(token.string) <= _MAX_NUMBER:
            number = int(token.string)
            yield from (str(near) for near in (number - 1, number + 1) if near >= 0)
    elif token.type == tokenize.OP:
        # The previous token distinguishes an operator from a sign or a star: `zip(*grid)` is not a product.
        is_operand = (before.isalnum() or before.isidentifier()) and not keyword.iskeyword(before)
        if token.string == "-" or is_operand or before in (")", "]", "}"):
            yield from _OPERATORS.get(token.string, ())
    elif token.type == tokenize.NAME and before != "return":
        if start in misread:
            yield from filter(None, [misread[start]])
        else:
            yield from _WORDS.get(token.string, ())


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts
