"""Which names a statement of a module uses from outside, and which it defines. Pure: reads syntax trees."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from verl_ext.core.errors import SignalError

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class RefusedError(SignalError):
    """A program that cannot become a candidate.

    Attributes:
        status: `unsafe` if it reaches for files, other programs or the interpreter, else `malformed`.
    """

    def __init__(self, message: str, status: Literal["malformed", "unsafe"] = "malformed") -> None:
        super().__init__(message)
        self.status = status


@dataclass(eq=False)
class Scope:
    """A scope that binds names: a function, a class, a comprehension, or the statement's surroundings.

    Attributes:
        kind: Names of a class body are not seen by the functions in it.
        node: Whose scope it is; None for the statement's surroundings.
        parent: The scope around it.
        bound: Names that are bound here.
    """

    kind: Literal["outside", "function", "class", "comprehension"]
    node: ast.AST | None = None
    parent: "Scope | None" = None
    bound: frozenset[str] = frozenset()

    def find(self, name: str) -> "Scope | None":
        """The scope that a name used here belongs to; None for outside."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bound and (scope.kind != "class" or scope is self):
                return scope
            scope = scope.parent
        return None


@dataclass
class Names:
    """The names of one statement.

    Attributes:
        uses: Every name in it and the scope that the name belongs to; None for outside.
        attributes: The attribute accessed on a name, by the id of the name's node.
        identifiers: Every identifier, wherever it is bound.
        inner: Identifiers that a function, class or comprehension binds locally.
        imports: Import statements inside functions and classes.
    """

    uses: list[tuple[ast.Name, Scope | None]] = field(default_factory=list)
    attributes: dict[int, ast.Attribute] = field(default_factory=dict)
    identifiers: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)

    @property
    def outside(self) -> list[ast.Name]:
        """The names that the statement uses from its module or binds there."""
        return [name for name, scope in self.uses if scope is None]


def bindings(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The names that statements bind in their own scope, without those declared global or nonlocal."""
    found: set[str] = set()
    outward: set[str] = set()
    queue = list(nodes)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            outward.update(node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, Comprehension):
            # A walrus in a comprehension binds in the function around it.
            found |= {walrus.target.id for walrus in ast.walk(node) if isinstance(walrus, ast.NamedExpr)}
            continue
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
        else:
            found |= set(other_names(node))
        queue += ast.iter_child_nodes(node)
    return frozenset(found - outward)


def other_names(node: ast.AST) -> Iterator[str]:
    """The names that a node binds without a `Name` node: imports, `except … as`, and patterns of `match`."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def analyse(statement: ast.AST) -> Names:
    """The names of one statement of a module.

    Raises:
        RefusedError: It changes variables of its module from within a function.
    """
    names = Names()
    _visit(statement, Scope("outside"), names)
    return names


def _visit(node: ast.AST, scope: Scope, names: Names) -> None:
    names.identifiers.update(other_names(node))
    if isinstance(node, ast.Name):
        names.uses.append((node, scope.find(node.id)))
        names.identifiers.add(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        names.attributes[id(node.value)] = node
        _visit(node.value, scope, names)
    elif isinstance(node, Function):
        _visit_function(node, scope, names)
    elif isinstance(node, ast.ClassDef):
        names.identifiers.add(node.name)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            _visit(part, scope, names)
        inner = Scope("class", node, scope, bindings(node.body))
        names.inner |= inner.bound
        for part in node.body:
            _visit(part, inner, names)
    elif isinstance(node, Comprehension):
        _visit_comprehension(node, scope, names)
    elif isinstance(node, ast.AnnAssign):
        for part in (node.target, node.value, node.annotation if scope.kind == "class" else None):
            if part is not None:
                _visit(part, scope, names)
    elif isinstance(node, ast.Global):
        if scope.kind != "outside":
            raise RefusedError(
                f"`global {', '.join(node.names)}` keeps a state between calls: expected a function of the grid only. "
                "Give it as an argument."
            )
    else:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.imports.append(node)
        for part in ast.iter_child_nodes(node):
            _visit(part, scope, names)


def _visit_function(node: Function, scope: Scope, names: Names) -> None:
    arguments = node.args
    for part in (*arguments.defaults, *arguments.kw_defaults, *getattr(node, "decorator_list", [])):
        if part is not None:
            _visit(part, scope, names)
    own = {argument.arg for argument in parameters(arguments)}
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    names.identifiers |= own
    if not isinstance(node, ast.Lambda):
        names.identifiers.add(node.name)
    inner = Scope("function", node, scope, bindings(body) | own)
    names.inner |= inner.bound
    for part in body:
        _visit(part, inner, names)


def _visit_comprehension(node: Comprehension, scope: Scope, names: Names) -> None:
    targets = bindings(generator.target for generator in node.generators)
    inner = Scope("comprehension", node, scope, targets)
    names.inner |= targets
    for number, generator in enumerate(node.generators):
        # The first iterable is evaluated outside, where the targets are not yet known.
        _visit(generator.iter, inner if number else scope, names)
        for part in (generator.target, *generator.ifs):
            _visit(part, inner, names)
    for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
        _visit(part, inner, names)


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters, in the order in which they are written."""
    extra = (arguments.vararg, *arguments.kwonlyargs, arguments.kwarg)
    return [*arguments.posonlyargs, *arguments.args, *(one for one in extra if one is not None)]
