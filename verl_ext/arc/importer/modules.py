"""A program and its libraries as statements, and where a name is defined. Pure: reads text, runs nothing."""

import ast
import builtins
import importlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from verl_ext.arc.importer.scopes import Names, RefusedError, analyse, bindings

# Modules that only compute; the sandbox has them.
_COMPUTING = """
    abc array bisect cmath collections collections.abc contextlib copy dataclasses decimal enum fractions functools
    heapq itertools math numbers numpy numpy.lib.stride_tricks numpy.typing operator queue random re statistics string
    textwrap time types typing typing_extensions warnings
"""
_REACHING = """
    asyncio builtins concurrent ctypes glob http importlib inspect io marshal multiprocessing os pathlib pdb pickle
    requests runpy shelve shutil signal socket sqlite3 ssl subprocess sys tempfile threading urllib urllib3 webbrowser
"""
COMPUTING = frozenset(_COMPUTING.split())
REACHING = frozenset(_REACHING.split())
MAX_BYTES = 1 << 20
BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True)
class Imported:
    """A name defined by an import.

    Attributes:
        module: As it is written, without leading dots.
        attribute: Attribute of the module; None for the module itself.
        name: Its name in the code.
    """

    module: str
    attribute: str | None
    name: str

    def __str__(self) -> str:
        wanted = self.attribute or self.module
        renamed = "" if self.name == wanted else f" as {self.name}"
        return f"from {self.module} import {wanted}{renamed}" if self.attribute else f"import {wanted}{renamed}"


@dataclass(eq=False)
class Statement:
    """One statement of a module's top level, other than an import.

    Attributes:
        module: Where it is.
        node: Its syntax tree.
        names: Names in it.
        bound: Names that it defines in the module.
        changed: Names whose value it changes without binding them, as in `TABLE[0] = 1` and `TABLE.update(…)`.
        text: Its text in a candidate if nothing is renamed; empty until computed.
    """

    module: "Module"
    node: ast.stmt
    names: Names
    bound: frozenset[str]
    changed: frozenset[str]
    text: str = ""


@dataclass(eq=False)
class Module:
    """A parsed text.

    Attributes:
        name: Its name in messages and in imports of a library.
        lines: Lines of the text as bytes, because the columns of a syntax tree count bytes.
        tree: Syntax tree of the text.
        statements: Statements in order, without imports.
        defining: The statements that bind a name, by the name, in order.
        changing: Those that change its value without binding it.
        imports: Imports by the name that they define.
        stars: Modules imported with `*`, in order.
    """

    name: str
    lines: list[bytes]
    tree: ast.Module
    statements: list[Statement] = field(default_factory=list)
    defining: dict[str, list[Statement]] = field(default_factory=dict)
    changing: dict[str, list[Statement]] = field(default_factory=dict)
    imports: dict[str, Imported] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


def parse_module(name: str, text: str) -> Module:
    """A text as a module.

    Raises:
        RefusedError: It is not valid Python, or too large.
    """
    if len(text) > MAX_BYTES:
        raise RefusedError(f"{name} has {len(text)} characters: expected at most {MAX_BYTES}. Give the program only.")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes in strings
            tree = ast.parse(text)
        module = Module(name, [line.encode() for line in text.split("\n")], tree)
        for node in tree.body:
            _add(module, node)
    except SyntaxError as error:
        raise RefusedError(f"line {error.lineno} of {name} is not valid Python: {error.msg}") from None
    except (ValueError, MemoryError) as error:
        raise RefusedError(f"{name} is not valid Python: {error}") from None
    except RecursionError:
        raise RefusedError(f"{name} is nested too deeply to be read") from None
    return module


def _add(module: Module, node: ast.stmt) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            wanted = alias.name if alias.asname else name
            module.imports[name] = Imported(wanted, None, name)
    elif isinstance(node, ast.ImportFrom):
        source = node.module or ""
        for alias in node.names:
            if alias.name == "*":
                module.stars.append(source)
            elif not source:  # from . import library
                module.imports[alias.asname or alias.name] = Imported(alias.name, None, alias.asname or alias.name)
            elif source != "__future__":
                name = alias.asname or alias.name
                module.imports[name] = Imported(source, alias.name, name)
    elif not _only_when_started(node):
        # For functions, only problems of the used ones matter.
        names = analyse(node) if not isinstance(node, ast.FunctionDef) else Names()
        bound = bindings([node])
        changed = frozenset() if isinstance(node, ast.FunctionDef | ast.ClassDef) else frozenset(_changed(node))
        statement = Statement(module, node, names, bound, changed - bound)
        module.statements.append(statement)
        for where, found in ((module.defining, bound), (module.changing, statement.changed)):
            for name in found:
                where.setdefault(name, []).append(statement)


def names_of(statement: Statement) -> Names:
    """The names of a statement; those of a function are found when first asked for.

    Raises:
        RefusedError: See `analyse`.
    """
    if isinstance(statement.node, ast.FunctionDef) and not statement.names.identifiers:
        statement.names = analyse(statement.node)
    return statement.names


def _only_when_started(node: ast.stmt) -> bool:
    """Whether the statement is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _changed(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript | ast.Attribute) and not isinstance(part.ctx, ast.Load):
            yield from _root(part)
        elif isinstance(part, ast.Expr | ast.For) or (isinstance(part, ast.Call) and not isinstance(node, ast.Assign)):
            call = part.value if isinstance(part, ast.Expr) else part
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                yield from _root(call.func)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


# ------------------------------ where a name is defined ------------------------------


@dataclass(frozen=True)
class Symbol:
    """A name of a module as a separate definition.

    Attributes:
        owner: The module that defines it; imports of Python's own libraries are equal wherever they are.
        name: Its name there.
    """

    owner: Module | Imported
    name: str


class Library:
    """Modules that a program may import.

    Args:
        modules: Modules by the name under which they are imported, without packages.
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self._modules = dict(modules or {})

    def module(self, name: str) -> Module | None:
        """The library that an import of `name` refers to; None if it was not given."""
        return self._modules.get(name.rpartition(".")[2])

    def find(self, module: Module, name: str) -> Symbol | Module | None:
        """The meaning of a top-level name of a module: a symbol, a library, or None for a builtin.

        Raises:
            RefusedError: It is not defined, or its definition is not available.
        """
        found = self._find(module, name, set())
        if found is None and name not in BUILTINS:
            absent = [star for star in module.stars if self.module(star) is None and star not in COMPUTING]
            by = (
                f": give {' or '.join(f'{one.rpartition(chr(46))[2]}.py' for one in absent)} as --library"
                if absent
                else ""
            )
            raise RefusedError(f"uses `{name}`, which {module.name} does not define{by}")
        return found

    def _find(self, module: Module, name: str, seen: set[Module]) -> Symbol | Module | None:
        seen.add(module)
        if name in module.defining:
            return Symbol(module, name)
        if name in module.imports:
            return self._imported(module.imports[name], seen)
        for star in reversed(module.stars):
            library = self.module(star)
            if library is None and star in COMPUTING and name in _public_names(star):
                return Symbol(Imported(star, name, name), name)
            # As in Python, a star does not import names that begin with an underscore.
            if library is not None and library not in seen and not name.startswith("_"):
                found = self._find(library, name, seen)
                if found is not None:
                    return found
        return None

    def _imported(self, imported: Imported, seen: set[Module]) -> Symbol | Module:
        library = self.module(imported.module)
        if library is not None:
            found = library if imported.attribute is None else self._find(library, imported.attribute, set())
            if found is None:
                raise RefusedError(f"imports `{imported.attribute}` from {library.name}, which does not define it")
            return found
        check_import(imported.module)
        return Symbol(imported, imported.name)


def check_import(module: str) -> None:
    """Check that a program may import it.

    Raises:
        RefusedError: It reaches out of the program, or does not exist.
    """
    if module in COMPUTING:
        return
    top = module.partition(".")[0]
    if top in REACHING:
        raise RefusedError(
            f"imports `{module}`, which reaches out of the program (files, processes, a terminal, a network)", "unsafe"
        )
    raise RefusedError(
        f"imports `{module}`, which the sandbox does not have: expected numpy, a computing part of the standard "
        "library, or a file given as --library"
    )


@cache
def _public_names(module: str) -> frozenset[str]:
    """The names that `from module import *` defines, for a module of `COMPUTING`."""
    loaded = importlib.import_module(module)
    return frozenset(getattr(loaded, "__all__", [name for name in dir(loaded) if not name.startswith("_")]))


def needed_order(modules: Iterable[Module], entry: Module, library: Library) -> list[Module]:
    """Modules in the order in which Python would have run them: a library before its importers."""
    wanted, order, seen = set(modules), list[Module](), set[Module]()

    def visit(module: Module) -> None:
        seen.add(module)
        names = [*module.stars, *(imported.module for imported in module.imports.values())]
        for other in map(library.module, names):
            if other is not None and other not in seen:
                visit(other)
        if module in wanted:
            order.append(module)

    visit(entry)
    return order
