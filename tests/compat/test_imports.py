"""The pure modules stay pure, and `recipe` stays a namespace that others can share."""

import dis
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from pure_modules import PURE, PURE_TORCH

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN = ("ray", "verl", "vllm", "transfer_queue", "torch.distributed", "tensordict")


def _imported_modules(path: Path) -> set[str]:
    """Every module that the file's code imports, at its top or inside functions."""
    names, codes = set(), [compile(path.read_text(encoding="utf-8"), str(path), "exec")]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        module = ""
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                module = instruction.argval
                names.add(module)
            elif instruction.opname == "IMPORT_FROM":
                names.add(f"{module}.{instruction.argval}")
    return names


@pytest.mark.parametrize("file", PURE + PURE_TORCH)
def test_pure_module_imports_nothing_distributed(file: str):
    bad = {
        name
        for name in _imported_modules(ROOT / file)
        if any(name == forbidden or name.startswith(f"{forbidden}.") for forbidden in FORBIDDEN)
    }
    assert not bad, f"{file} is pure but imports {sorted(bad)}"


@pytest.mark.parametrize("file", PURE + PURE_TORCH)
def test_pure_module_is_type_checked(file: str):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pyright"]
    assert settings["typeCheckingMode"] == "strict"
    assert any(Path(file).is_relative_to(included) for included in settings["include"])


def test_pure_modules_do_not_load_the_heavy_libraries_indirectly():
    modules = [file.removesuffix(".py").replace("/", ".") for file in PURE]
    code = f"import sys, {', '.join(modules)}; print(sorted({{'ray', 'verl', 'vllm', 'torch'}} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_recipe_is_a_namespace_package():
    # TransferQueue's wheel installs a top-level `recipe/`, too: an __init__.py on either side would hide the other.
    assert not (ROOT / "recipe" / "__init__.py").exists()
    assert not (ROOT / "recipe" / "fast_dapo" / "__init__.py").exists()
    assert not (ROOT / "recipe" / "tracin" / "__init__.py").exists()
