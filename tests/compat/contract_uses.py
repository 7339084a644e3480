"""What our code uses of the libraries that it depends on, read from its source.

Found automatically: imported names, their attributes, methods that our classes override, call through `super()` or
reach through `self`, attributes of parameters that are annotated with a library's class, and the calls themselves. What
cannot be found (an object without a type annotation, a name in a string) is declared below a module's imports:

    RELIES_ON = {"self.engine": "verl.workers.engine.fsdp.transformer_impl.FSDPEngine"}

Then `self.engine.module` is an attribute of that class, in this file. Keys of the configuration are found where code
reads `config.actor_rollout_ref.…`.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from contract_library import LIBRARIES, absolute

FOLDERS = ("data_preprocess", "recipe", "verl_ext")
DECLARED = "RELIES_ON"
# verl_ext/core/compat.py: the plain class behind a Ray actor class.
_UNWRAPPING = "undecorated"


@dataclass(frozen=True)
class Use:
    """One use of a name.

    Attributes:
        name: Dotted name in the library.
        where: FILE:LINE in our code.
        required: Whether the library must have it. A method of our class may override one or be new.
        positional: Arguments that a call passes by position; None if this is not a call, or passes a sequence (`*`).
        keywords: Arguments that a call passes by name.
    """

    name: str
    where: str
    required: bool = True
    positional: int | None = None
    keywords: tuple[str, ...] = ()


@dataclass
class _Class:
    node: ast.ClassDef
    source: "_Source"
    bases: list[str]
    own: set[str] = field(default_factory=set)


class _Source:
    """One of our files, with the names that its imports bind."""

    def __init__(self, file: Path, root: Path) -> None:
        self.file, self.path = file, str(file.relative_to(root))
        self.module = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        self.tree = ast.parse(file.read_text(encoding="utf-8"))
        self.names: dict[str, str] = {}
        self.declared = _declared(self.tree)
        self.imports: list[tuple[str, int]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self.names[bound] = alias.name if alias.asname else bound
                    self.imports.append((alias.name, node.lineno))
            elif isinstance(node, ast.ImportFrom):
                source = absolute(node, self.module, file.name == "__init__.py")
                for alias in node.names:
                    self.names[alias.asname or alias.name] = f"{source}.{alias.name}"
                    self.imports.append((f"{source}.{alias.name}", node.lineno))

    def resolve(self, node: ast.expr) -> str | None:
        """The dotted name of an expression that starts at an import or at a class of this file."""
        if self.declared and isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in self.declared:
            return self.declared[ast.unparse(node)][0]
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            return None if owner is None else f"{owner}.{node.attr}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_UNWRAPPING) and node.args:
            return self.resolve(node.args[0])
        return None

    def at(self, node: ast.expr | ast.stmt) -> str:
        return f"{self.path}:{node.lineno}"


def is_library(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] in LIBRARIES


def collect(root: Path, folders: tuple[str, ...] = FOLDERS) -> list[Use]:
    """Every use in the Python files below the folders, in the order of files and lines."""
    sources = _sources(root, folders)
    classes = {f"{source.module}.{node.name}": _class(node, source) for source in sources for node in _classes(source)}
    uses: list[Use] = []
    for source in sources:
        uses += [Use(name, f"{source.path}:{line}") for name, line in source.imports if is_library(name)]
        uses += _accesses(source)
        uses += [Use(name, f"{source.path}:{line}") for name, line in source.declared.values()]
    for own in classes.values():
        uses += _inherited(own, classes)
    return uses


def config_keys(root: Path, folders: tuple[str, ...] = FOLDERS) -> list[tuple[tuple[str, ...], str]]:
    """Every `config.a.b.c` in the code as (a, b, c), with its place; what follows may be a method."""
    found: list[tuple[tuple[str, ...], str]] = []
    for source in _sources(root, folders):
        inner = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                parts: list[str] = []
                below: ast.expr = node
                while isinstance(below, ast.Attribute):
                    parts.insert(0, below.attr)
                    below = below.value
                parts.insert(0, below.id if isinstance(below, ast.Name) else "")
                if "config" in parts[:-1]:
                    found.append((tuple(parts[parts.index("config") + 1 :]), source.at(node)))
    return found


@cache
def _sources(root: Path, folders: tuple[str, ...]) -> list[_Source]:
    """All files that mention a library or `config`, which golden solutions, for example, do not."""
    files = sorted(file for folder in folders for file in (root / folder).rglob("*.py"))
    words = (*LIBRARIES, "config")
    return [_Source(file, root) for file in files if any(word in file.read_text(encoding="utf-8") for word in words)]


def _accesses(source: _Source) -> Iterator[Use]:
    called = {id(node.func): node for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = source.resolve(node)
            if not is_library(name) or name in LIBRARIES:
                continue
            assert name is not None
            if id(node) in called:
                yield _call(name, source, called[id(node)])
            elif id(node) not in inner:
                yield Use(name, source.at(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_parameters(node, source)


def _call(name: str, source: _Source, node: ast.Call) -> Use:
    is_open = any(isinstance(argument, ast.Starred) for argument in node.args)
    keywords = tuple(sorted(keyword.arg for keyword in node.keywords if keyword.arg))
    return Use(name, source.at(node), True, None if is_open else len(node.args), keywords)


def _of_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, source: _Source) -> Iterator[Use]:
    """Attributes of parameters that are annotated with a library's class, and of variables that are set to one."""
    types: dict[str, str] = {}
    for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]:
        annotation = argument.annotation
        if isinstance(annotation, ast.BinOp):  # X | None
            annotation = annotation.left
        name = None if annotation is None else source.resolve(annotation)
        if is_library(name) and name is not None:
            types[argument.arg] = name
    stored = [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    types = {name: kind for name, kind in types.items() if name not in stored}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            name, variable = source.resolve(node.value.func), node.targets[0].id
            # A class is recognized by its spelling; a variable that is set twice may hold something else.
            is_class = name is not None and name.rpartition(".")[2][:1].isupper()
            if is_class and is_library(name) and stored.count(variable) == 1 and name is not None:
                types[variable] = name
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in types:
            yield Use(f"{types[node.value.id]}.{node.attr}", source.at(node))


def _declared(tree: ast.Module) -> dict[str, tuple[str, int]]:
    """The entries of `RELIES_ON` by expression: the library's name for it, and the line."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == DECLARED:
            assert isinstance(node.value, ast.Dict)
            entries = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(key): (ast.literal_eval(value), value.lineno) for key, value in entries if key}
    return {}


def _classes(source: _Source) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef))


def _class(node: ast.ClassDef, source: _Source) -> _Class:
    bases = [source.resolve(base) or f"{source.module}.{ast.unparse(base)}" for base in node.bases]
    own = {name for name, _ in _members(node)}
    own |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute) and _is_self(part, ast.Store)}
    return _Class(node, source, bases, own)


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name, statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((target.id, statement) for target in targets if isinstance(target, ast.Name))


def _is_self(node: ast.Attribute, context: type[ast.expr_context]) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, context)


def _inherited(own: _Class, classes: dict[str, _Class]) -> Iterator[Use]:
    """What a class takes from the library classes that it inherits from, including through our own classes."""
    ours, theirs = _ancestors(own, classes)
    if not theirs:
        return
    known = set().union(own.own, *(parent.own for parent in ours))
    beyond_own = set().union(*(parent.own for parent in ours))
    # Our mixins meet the library's class only here.
    for part in [own, *(parent for parent in ours if not _ancestors(parent, classes)[1])]:
        for name, statement in _members(part.node):
            yield from (Use(f"{base}.{name}", part.source.at(statement), required=False) for base in theirs)
        for node in ast.walk(part.node):
            if not isinstance(node, ast.Attribute):
                continue
            is_super = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super"
            is_theirs = is_super and (part is not own or node.attr not in beyond_own)
            if is_theirs or (_is_self(node, ast.Load) and node.attr not in known):
                # With several bases, the name may belong to any of them.
                required = len(theirs) == 1
                yield from (Use(f"{base}.{node.attr}", part.source.at(node), required) for base in theirs)


def _ancestors(own: _Class, classes: dict[str, _Class]) -> tuple[list[_Class], list[str]]:
    ours: list[_Class] = []
    theirs: list[str] = []
    for base in own.bases:
        if base in classes:
            more, foreign = _ancestors(classes[base], classes)
            ours += [classes[base], *more]
            theirs += foreign
        elif is_library(base):
            theirs.append(base)
    return ours, list(dict.fromkeys(theirs))
