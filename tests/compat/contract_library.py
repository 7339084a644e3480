"""What an installed library has under a name, read from its source: nothing is imported, so this takes seconds.

    Libraries().describe("verl.trainer.ppo.v1.trainer_base.PPOTrainer.step")   ->   "def(self, metrics, timing_raw)"

Annotations are left out: they change without consequences. What exists only after a module has run (an enumeration
filled by calls) is only found by its name, "named in the module".
"""

import ast
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIBRARIES = ("ray", "tensordict", "transfer_queue", "verl", "vllm")
_MAX_VALUE = 80


@dataclass(frozen=True)
class Module:
    """A module or package: its dotted name and its file."""

    name: str
    file: Path

    @property
    def is_package(self) -> bool:
        return self.file.name == "__init__.py"


@dataclass(frozen=True)
class Found:
    """A definition and the module that contains it; for a method or attribute, without its class."""

    node: ast.AST
    module: Module


class Libraries:
    """The sources of installed packages.

    Args:
        folders: Folder of each package by its name; by default those of `LIBRARIES` in this environment.
    """

    def __init__(self, folders: dict[str, Path] | None = None) -> None:
        self._folders = folders if folders is not None else {name: folder_of(name) for name in LIBRARIES}
        self._found: dict[str, Module | Found | None] = {}
        self._under_way: set[str] = set()

    def describe(self, name: str) -> str | None:
        """The signature of a function or class, a short value, or the kind of the definition; None if it is missing."""
        found = self.find(name)
        if isinstance(found, Module):
            return "module"
        if found is not None:
            return self._text(found)
        owner, _, last = name.rpartition(".")
        holder = self.find(owner) if owner else None
        if holder is None:
            return None
        # Names that exist only after the module has run: searched in its source, as a name or a string.
        module = holder if isinstance(holder, Module) else holder.module
        return "named in the module" if last in _words(module.file) else None

    def parameters(self, name: str) -> ast.arguments | None:
        """The parameters of a function, method or class, including `self`; None if they are unknown."""
        found = self.find(name)
        if found is None or isinstance(found, Module):
            return None
        if isinstance(found.node, ast.ClassDef):
            found = self._attribute(found, "__init__")
        node = None if found is None else found.node
        return node.args if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None

    def is_bound(self, name: str) -> bool:
        """Whether a call of `name` leaves out the first parameter: a class, or a method that is not static."""
        found = self.find(name)
        owner = self.find(name.rpartition(".")[0])
        if isinstance(found, Found) and isinstance(found.node, ast.ClassDef):
            return True
        if not (isinstance(owner, Found) and isinstance(owner.node, ast.ClassDef) and isinstance(found, Found)):
            return False
        # Or one that is only called on its class, as in verl's registry of checkpoint engines.
        first = next((argument.arg for argument in found.node.args.args), "self")
        return "staticmethod" not in _decorators(found.node) and first in ("self", "cls")

    def belongs_to_an_object(self, name: str) -> bool:
        """Whether the name belongs to an object of unknown class, whose attributes are therefore unknown."""
        owner = self.find(name.rpartition(".")[0])
        return isinstance(owner, Found) and not isinstance(owner.node, ast.ClassDef)

    def find(self, name: str) -> Module | Found | None:
        """The definition behind a dotted name, through re-exports and base classes."""
        if name not in self._found:
            if name in self._under_way:  # modules that import each other
                return None
            self._under_way.add(name)
            self._found[name] = self._find(name)
            self._under_way.remove(name)
        return self._found[name]

    def _find(self, name: str) -> Module | Found | None:
        owner, _, last = name.rpartition(".")
        if not owner:
            return Module(name, self._folders[name] / "__init__.py") if name in self._folders else None
        holder = self.find(owner)
        if isinstance(holder, Module):
            return self._in_module(holder, last)
        is_class = holder is not None and isinstance(holder.node, ast.ClassDef)
        return self._attribute(holder, last) if is_class else None

    def _in_module(self, module: Module, name: str) -> Module | Found | None:
        found = None
        for node in _statements(_tree(module.file).body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name == name and "overload" not in _decorators(node):
                    found = Found(node, module)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                if name in _targets(node):
                    found = Found(node, module)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                target = imported(node, name, module.name, module.is_package)
                found = (self.find(target) if target else None) or found
                if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and found is None:
                    source = absolute(node, module.name, module.is_package)
                    found = self.find(f"{source}.{name}")
        return found or self._submodule(module, name)

    def _submodule(self, module: Module, name: str) -> Module | None:
        if not module.is_package:
            return None
        folder = module.file.parent
        for file in (folder / name / "__init__.py", folder / f"{name}.py"):
            if file.exists():
                return Module(f"{module.name}.{name}", file)
        return None

    def _attribute(self, found: Found, name: str) -> Found | None:
        owner = found.node
        assert isinstance(owner, ast.ClassDef)
        inside = None
        for node in _statements(owner.body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node.name == name and "overload" not in _decorators(node):
                    inside = node
            elif isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
                inside = node
        if inside is not None:
            return Found(inside, found.module)
        through_self = _through_self(owner).get(name)
        if through_self is not None and isinstance(through_self.ctx, ast.Store):
            return Found(through_self, found.module)
        for base in owner.bases:
            parent = self._expression(base, found.module)
            if isinstance(parent, Found) and isinstance(parent.node, ast.ClassDef) and parent != found:
                inherited = self._attribute(parent, name)
                if inherited is not None:
                    return inherited
        # A mixin reads attributes that are set by the class that it is mixed into.
        return None if through_self is None else Found(through_self, found.module)

    def _expression(self, node: ast.expr, module: Module) -> Module | Found | None:
        if isinstance(node, ast.Subscript):
            node = node.value
        path = ast.unparse(node)
        if not all(part.isidentifier() for part in path.split(".")):
            return None
        return self.find(f"{module.name}.{path}")

    def _text(self, found: Found) -> str:
        node = found.node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(name.endswith("property") for name in _decorators(node)):
                return "property"
            return f"{'async def' if isinstance(node, ast.AsyncFunctionDef) else 'def'}({_arguments(node.args)})"
        if isinstance(node, ast.ClassDef):
            init = self._attribute(found, "__init__")
            if init is not None and isinstance(init.node, ast.FunctionDef):
                return f"class({_arguments(init.node.args)})"
            fields = [_field(child) for child in node.body if isinstance(child, ast.AnnAssign)]
            return f"class with {', '.join(fields)}" if fields else "class"
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = ast.unparse(node.value)
            return f"= {value}" if isinstance(node.value, ast.Constant) and len(value) <= _MAX_VALUE else "value"
        return "attribute"


def absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module that `from … import` names, relative ones resolved."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def imported(node: ast.Import | ast.ImportFrom, name: str, module: str, is_package: bool) -> str | None:
    """The dotted name that an import binds to `name`, or None."""
    for alias in node.names:
        if (alias.asname or alias.name) == name:
            is_from = isinstance(node, ast.ImportFrom)
            return f"{absolute(node, module, is_package)}.{alias.name}" if is_from else alias.name
    return None


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def _words(file: Path) -> frozenset[str]:
    """Names and constants of a file."""
    nodes = list(ast.walk(_tree(file)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(names | {str(node.value) for node in nodes if isinstance(node, ast.Constant)})


@cache
def _through_self(owner: ast.ClassDef) -> dict[str, ast.Attribute]:
    """Attributes that a class's methods set through `self`, or else read."""
    nodes = [node for node in ast.walk(owner) if isinstance(node, ast.Attribute)]
    mine = [node for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "self"]
    return {node.attr: node for node in sorted(mine, key=lambda node: isinstance(node.ctx, ast.Store))}


def folder_of(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.origin is not None, f"{name} has no file of its own"
    return Path(spec.origin).parent


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that a module or class runs, including those under conditions."""
    for node in body:
        yield node
        for block in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _statements(getattr(node, block, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _statements(handler.body)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _decorators(node: ast.AST) -> list[str]:
    decorators = getattr(node, "decorator_list", [])
    called = (decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in decorators)
    return [ast.unparse(decorator).rpartition(".")[2] for decorator in called]


def _arguments(arguments: ast.arguments) -> str:
    bare = ast.parse(f"def f({ast.unparse(arguments)}): pass").body[0]
    assert isinstance(bare, ast.FunctionDef)
    for argument in ast.walk(bare.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(bare.args)


def _field(node: ast.AnnAssign) -> str:
    return ast.unparse(node.target) + ("" if node.value is None else f"={ast.unparse(node.value)}")
