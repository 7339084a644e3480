"""What `make setup` says on a machine that lacks something. For one that lacks nothing: test_bare_machine.py."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "configs/requirements/check_machine.py"
CHECK = runpy.run_path(str(SCRIPT))
missing = CHECK["missing"]
WHOLE = CHECK["Machine"]("linux", (3, 11), has_venv=True, has_libnuma=True, free_gb=20.0)


def test_a_machine_with_everything_lacks_nothing():
    assert missing(WHOLE) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"platform": "darwin"}, "Linux is needed, found darwin"),
        ({"python": (3, 13)}, "Python 3.11 is needed, found 3.13: install it, or set BASE_PYTHON="),
        ({"has_venv": False}, "apt-get install python3.11-venv"),
        ({"has_libnuma": False}, "apt-get install libnuma1"),
        ({"free_gb": 1.26}, "1.3 GB are free"),
    ],
)
def test_what_is_missing_is_named_in_one_sentence(changes: dict, sentence: str):
    (said,) = missing(WHOLE._replace(**changes))
    assert sentence in said


def test_everything_that_is_missing_is_named_at_once():
    assert len(missing(WHOLE._replace(python=(3, 12), has_venv=False, has_libnuma=False))) == 3


def test_this_machine_has_everything():
    result = subprocess.run([sys.executable, SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("python", ["", "/nonexistent/python3.11"])
def test_make_setup_ends_without_a_python_and_makes_no_environment(python: str, tmp_path: Path):
    """An empty name, which is found where there is no Python, gives one sentence; a wrong one, the shell's error."""
    for name in ("Makefile", "setup.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    environment = {"PATH": os.environ["PATH"]}
    command = ["make", "setup", f"BASE_PYTHON={python}"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert not (tmp_path / ".venv").exists()
    said = result.stdout + result.stderr
    assert ("Python 3.11 is missing: on Debian, apt-get install" if not python else f"{python}: No such file") in said
