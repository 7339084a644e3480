"""Every shell script of the repository passes shellcheck; those made from templates are in test_submit.py."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
NOT_OURS = {".venv", ".git", "outputs", "node_modules"}


def _is_shell_script(path: Path) -> bool:
    if path.suffix in (".sh", ".bash", ".sbatch"):
        return True
    if path.suffix or not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline()
    return first.startswith(b"#!") and first.rstrip().endswith((b"bash", b"/sh", b" sh"))


SCRIPTS = sorted(
    path.relative_to(ROOT)
    for path in ROOT.rglob("*")
    if not NOT_OURS & set(path.relative_to(ROOT).parts) and _is_shell_script(path)
)


def test_there_are_scripts_to_check():
    assert Path(".ci/run") in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_script_passes_shellcheck(script: Path):
    result = subprocess.run([SHELLCHECK, ROOT / script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
