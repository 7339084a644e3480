"""The wheel of the tracked files, and commands that see nothing of the checkout."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("configs", "data_preprocess", "recipe", "verl_ext")
BUILT_FROM = (*PACKAGES, "setup.py", "pyproject.toml", "README.md", "LICENSE")


def run(*command: object, cwd: Path) -> str:
    """What the command prints, without the checkout on its path.

    Raises:
        AssertionError: It failed; the message is the end of what it printed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    result = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def tracked_files() -> list[Path]:
    """Files that the wheel is built from, relative to the checkout."""
    listed = run("git", "ls-files", *BUILT_FROM, cwd=ROOT).splitlines()
    return [Path(name) for name in listed if (ROOT / name).is_file()]


def build(folder: Path) -> Path:
    """Build the wheel in an empty folder, from copies."""
    for name in tracked_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    options = ("-q", "--no-deps", "--no-build-isolation", "-w", "dist", ".")
    run(sys.executable, "-m", "pip", "wheel", *options, cwd=folder)
    return next((folder / "dist").glob("*.whl"))
