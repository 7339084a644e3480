"""The statements that an entry function needs, however indirectly, and a name for each (tree shaking). Pure."""

import ast
from dataclasses import dataclass, field

from verl_ext.arc.importer.modules import (
    BUILTINS,
    Imported,
    Library,
    Module,
    Statement,
    Symbol,
    check_import,
    names_of,
    needed_order,
)
from verl_ext.arc.importer.scopes import RefusedError

_BUILTINS = """
    breakpoint compile eval exec exit globals help input locals memoryview open quit __import__ __loader__
"""
_ATTRIBUTES = """
    __base__ __bases__ __builtins__ __closure__ __getattribute__ __globals__ __import__
    __loader__ __mro__ __subclasses__ ctypeslib fromfile genfromtxt load loadtxt memmap save savetxt savez
    savez_compressed tofile
"""
REACHING_BUILTINS = frozenset(_BUILTINS.split())
REACHING_ATTRIBUTES = frozenset(_ATTRIBUTES.split())
# Names of the generated function.
RESERVED = frozenset({"input_grid", "result", "solve"})
# Names used by the conversion of grids.
CONVERTING = frozenset({"int", "list", "map", "tuple", "zip"})


@dataclass
class Selection:
    """The parts of a candidate.

    Attributes:
        imports: Imports of Python's own libraries, by the symbol that they define.
        statements: Statements of the program and its libraries, in execution order.
        entry: The symbol of the entry function.
        names: Name of each symbol in the candidate.
        uses: The symbol of each node that names one (a name, or an attribute of a library), by the node's id.
        identifiers: Every identifier in the statements.
        inner: Identifiers that a function, class or comprehension in them binds locally.
        own: Builtins that the statements use.
    """

    entry: Symbol
    imports: list[Symbol] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    names: dict[Symbol, str] = field(default_factory=dict)
    uses: dict[int, Symbol] = field(default_factory=dict)
    identifiers: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=lambda: set(CONVERTING))

    def fresh(self, name: str) -> str:
        """An unused identifier similar to `name`."""
        number = 2
        while f"{name}_{number}" in self.identifiers | self.own | BUILTINS | set(self.names.values()):
            number += 1
        return f"{name}_{number}"


def select(module: Module, entry: str, library: Library) -> Selection:
    """The statements that `entry` of a module needs.

    Raises:
        RefusedError: A dependency is missing, does more than compute, or cannot be moved into a function.
    """
    selection = Selection(Symbol(module, entry))
    chosen: set[Statement] = set()
    spelled: dict[Symbol, set[str]] = {}
    waiting = list[Statement]()
    _need(selection.entry, selection, spelled, waiting, entry)
    while waiting:
        statement = waiting.pop()
        if statement in chosen:
            continue
        chosen.add(statement)
        _check(statement, library)
        names = names_of(statement)
        selection.identifiers |= names.identifiers
        selection.inner |= names.inner
        for name in sorted(statement.bound):
            _need(Symbol(statement.module, name), selection, spelled, waiting, name)
        for node in names.outside:
            found = library.find(statement.module, node.id)
            used: ast.Name | ast.Attribute = node
            spelling = node.id
            while isinstance(found, Module):
                attribute = names.attributes.get(id(used))
                if attribute is None or used is not node:
                    raise RefusedError(
                        f"uses the library {found.name} as a value: expected a name in it, as `{node.id}.name`"
                    )
                used, spelling, found = attribute, "", library.find(found, attribute.attr)
            if found is None:
                selection.own.add(node.id)
                if node.id in REACHING_BUILTINS:
                    raise RefusedError(f"calls `{node.id}`, which reaches out of the program", "unsafe")
            else:
                selection.uses[id(used)] = found
                _need(found, selection, spelled, waiting, spelling)
    order = needed_order({statement.module for statement in chosen}, module, library)
    selection.statements = [one for each in order for one in each.statements if one in chosen]
    _name(selection, spelled)
    return selection


def _need(
    symbol: Symbol, selection: Selection, spelled: dict[Symbol, set[str]], waiting: list[Statement], spelling: str
) -> None:
    """Record that a symbol is used under a spelling; empty: as an attribute."""
    if symbol not in spelled:
        spelled[symbol] = set()
        if isinstance(symbol.owner, Module):
            # Later definitions of a function replace earlier ones.
            defining = symbol.owner.defining[symbol.name]
            replaced = all(isinstance(one.node, ast.FunctionDef) and not one.node.decorator_list for one in defining)
            waiting += defining[-1:] if replaced else defining
            waiting += symbol.owner.changing.get(symbol.name, [])
        else:
            selection.imports.append(symbol)
    spelled[symbol].add(spelling)


def _check(statement: Statement, library: Library) -> None:
    """Check that a statement only computes.

    Raises:
        RefusedError: It does more.
    """
    for node in names_of(statement).imports:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."]
        for name in modules:
            if library.module(name):
                raise RefusedError(
                    f"imports the library `{name}` inside a function: move the import to the top of the file"
                )
            check_import(name)
    for node in ast.walk(statement.node):
        if isinstance(node, ast.Attribute) and node.attr in REACHING_ATTRIBUTES:
            raise RefusedError(f"asks for `.{node.attr}`, which reaches files or the interpreter", "unsafe")
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.AsyncFunctionDef):
            raise RefusedError("waits for something (`async`): expected a function that computes")


def _name(selection: Selection, spelled: dict[Symbol, set[str]]) -> None:
    """Unambiguous names, the program's own if possible."""
    taken: dict[str, Symbol] = {}
    # The program's names come first, then those of its libraries.
    symbols = sorted(spelled, key=lambda symbol: symbol.owner is not selection.entry.owner)
    clashing: list[Symbol] = []
    for symbol in symbols:
        # Written differently (`library.name`, `as`), it may be used where a local variable has the same name.
        hidden = spelled[symbol] != {symbol.name} and symbol.name in selection.inner
        if symbol.name in taken or symbol.name in RESERVED or symbol.name in selection.own or hidden:
            clashing.append(symbol)
        else:
            taken[symbol.name] = symbol
            selection.names[symbol] = symbol.name
    for symbol in clashing:
        name = selection.fresh("transform" if symbol.name == "solve" else symbol.name)
        if name.startswith("transform_") and "transform" not in selection.identifiers | taken.keys():
            name = "transform"
        selection.names[symbol] = name
        taken[name] = symbol


def import_line(symbol: Symbol, name: str) -> str:
    """The import that defines a symbol of Python's own libraries under a name."""
    assert isinstance(symbol.owner, Imported)
    return str(Imported(symbol.owner.module, symbol.owner.attribute, name))
