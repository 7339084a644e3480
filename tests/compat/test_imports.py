"""The pure folders stay light and type-checked, and `recipe` stays a namespace that others can share.

Who may import whom is up to import-linter: its contracts are in pyproject.toml, and `make lint` checks them.
"""

import fnmatch
import subprocess
import sys
from pathlib import Path

from pure_folders import ROOT, SETTINGS, pure_files

# Pure folders whose files import torch at the top; elsewhere only functions that need it do.
WITH_TORCH = ("data_preprocess", "recipe/golden_redaction/loss", "verl_ext/influence/method", "verl_ext/log_probs.py")
# Solutions to tasks: data that golden redaction trains on.
GOLDEN = "verl_ext/arc/golden"


def _is_in(file: Path, patterns: list[str] | tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(f"{file}/", f"{pattern}/*") for pattern in patterns)


def test_pure_files_are_type_checked():
    settings = SETTINGS["pyright"]
    assert settings["typeCheckingMode"] == "strict"
    unchecked = [str(file) for file in pure_files() if not _is_in(file, settings["include"])]
    assert not unchecked, "pyproject.toml: [tool.pyright] include lacks these pure files"
    assert settings["exclude"] == [GOLDEN]


def test_pure_files_do_not_load_the_heavy_libraries():
    """import-linter follows our own imports; other libraries may also load heavy ones."""
    files = [file for file in pure_files() if not _is_in(file, (*WITH_TORCH, GOLDEN)) and file.stem != "server"]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    names = [name for name in names if not name.endswith("__main__")]
    assert len(names) > 80
    code = f"import sys, {', '.join(names)}; print(sorted({{'ray', 'verl', 'vllm', 'torch'}} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_recipe_is_a_namespace_package():
    # TransferQueue's wheel also installs a top-level `recipe/`: an __init__.py on either side would hide the other.
    assert not (ROOT / "recipe" / "__init__.py").exists()


def test_no_file_of_code_is_longer_than_350_lines():
    """A longer file has more than one idea: split it."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("data_preprocess", "recipe", "verl_ext")
        for path in (ROOT / folder).rglob("*.py")
    }
    too_long = {name: length for name, length in lengths.items() if length > 350}
    assert not too_long, f"expected at most 350 lines, got {too_long}: split by idea"
