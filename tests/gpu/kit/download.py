"""Downloads the wheels of the gpu extra for another Python and platform, with pip's own configuration."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pieces import PieceError
from wheels import UNUSED, is_of_pytorch, is_present, normal

# Published as sources only, but plain Python: a wheel built here installs anywhere.
ONLY_SOURCES = ("antlr4-python3-runtime==4.9.3",)


@dataclass(frozen=True)
class Target:
    """The machine: its Python, such as "3.12", and pip's names of its platform, the best first."""

    python: str
    platforms: tuple[str, ...]

    def options(self) -> list[str]:
        """Options for pip."""
        platforms = [word for platform in self.platforms for word in ("--platform", platform)]
        return [
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={self.python}",
            *platforms,
        ]


def download(requirements: Sequence[str], target: Target, folder: Path, present: Mapping[str, str]) -> list[str]:
    """Fetch wheels of the requirements and their dependencies, except the machine's packages and PyTorch's own.

    A second call only fetches what is missing.

    Args:
        requirements: As for pip.
        target: The machine.
        folder: Folder for the wheels.
        present: Versions of the machine's packages, by normal name.

    Returns:
        `NAME==VERSION` of the packages that belong to PyTorch and were left out.

    Raises:
        PieceError: pip failed; its last line says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for requirement in ONLY_SOURCES:
        if not _has(folder, *requirement.split("==")):
            _pip("wheel", "--no-deps", "--wheel-dir", str(folder), requirement)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        words = ["install", "--dry-run", "--ignore-installed", "--quiet", f"--find-links={folder}"]
        _pip(*words, "--target", scratch, "--report", str(report), *target.options(), *requirements)
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    left_out: list[str] = []
    for item in items:
        name, version = normal(item["metadata"]["name"]), item["metadata"]["version"]
        if is_of_pytorch(name):
            left_out.append(f"{name}=={version}")
        elif name in UNUSED:
            continue
        elif not is_present(name, version, present) and not _has(folder, name, version):
            _pip("download", "--no-deps", "--dest", str(folder), *target.options(), f"{name}=={version}")
    return sorted(left_out)


def _has(folder: Path, name: str, version: str) -> bool:
    wanted = normal(name), version
    parts = [path.name.split("-") for path in folder.glob("*.whl")]
    return any((normal(first), second) == wanted for first, second, *_ in parts)


def _pip(*words: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise PieceError(f"pip {words[0]} failed: {last}")
