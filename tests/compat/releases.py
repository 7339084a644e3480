"""The contract tests on several releases of verl, each in its own environment, to run before our own releases.

    make releases                             # the supported releases and the one before
    make releases VERL="0.9.0 ../verl"        # versions on the package index, wheels, or sources

verl's newest main branch is not among the defaults, as it changes from day to day; give its sources:

    git clone --depth 1 https://github.com/verl-project/verl ../verl
    make releases VERL="0.9.1 ../verl"

Each environment is made from the project's own lock with another verl in it (outputs/releases/NAME; about 30 seconds
and, with uv's cache on the same disk, little space). `pytest tests/compat` runs in it: names and signatures, defaults,
the composition of every configuration, imports, and what verl states about itself. `make test` shows that a run works.

Prints a row per release: names and defaults that differ from `contract.json`, and tests passed and failed. Exits with 1
if a supported release differs or fails.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_ext.core.compat import SUPPORTED_VERSIONS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "outputs/releases"
REQUIREMENTS = ROOT / "configs/requirements"
UV = ROOT / ".venv/bin/uv"
BEFORE = "0.9.0"
LOG = "compat.log"
_COUNT = re.compile(r"(\d+) (passed|failed|error|errors)\b")
_DIFFERENCES = re.compile(r"^(\d+) differ:", re.MULTILINE)


@dataclass(frozen=True)
class Release:
    """One release of verl.

    Attributes:
        name: Name of its environment.
        requirement: What is installed: `verl==0.9.0`, or the path of a wheel or of sources.
    """

    name: str
    requirement: str

    @classmethod
    def of(cls, text: str) -> "Release":
        """The release of a version, or of a path."""
        path = Path(text)
        if path.exists():
            return cls(path.resolve().stem or "sources", str(path.resolve()))
        return cls(text, f"verl=={text}")

    @property
    def python(self) -> Path:
        return FOLDER / self.name / "bin/python"


def requirements_with(release: Release, lock: str) -> str:
    """The lock with this verl in place of its own.

    Raises:
        ValueError: The lock does not have exactly one verl.
    """
    lines = lock.splitlines()
    own = [line for line in lines if re.match(r"verl(\[.*\])?==", line)]
    if len(own) != 1:
        raise ValueError(f"expected one line verl==… in the lock, got {own}")
    return "\n".join(release.requirement if line == own[0] else line for line in lines) + "\n"


def make_environment(release: Release) -> None:
    """Install the lock with this verl; raises CalledProcessError if that fails."""
    folder = FOLDER / release.name
    subprocess.run([UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
    file = folder / "requirements.txt"
    file.write_text(requirements_with(release, (REQUIREMENTS / "cpu.txt").read_text(encoding="utf-8")))
    install = [UV, "pip", "install", "--quiet", "--python", release.python]
    # Other releases pin other versions of their requirements; we test our code with the rest of the lock.
    subprocess.run([*install, "--no-deps", "-r", file], check=True)
    subprocess.run([*install, "--no-deps", "--editable", ROOT], check=True)


def run_in(release: Release, *arguments: str | Path) -> str:
    """What a program prints in a release's environment, whatever its exit code."""
    ended = subprocess.run(
        [release.python, *arguments], cwd=ROOT, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}
    )
    return ended.stdout + ended.stderr


def counts(printed: str) -> dict[str, int]:
    """Tests passed and failed (errors among them), from pytest's last line."""
    found = {"passed": 0, "failed": 0}
    last = [line for line in printed.splitlines() if _COUNT.search(line)][-1:]
    for number, kind in _COUNT.findall("".join(last)):
        found["passed" if kind == "passed" else "failed"] += int(number)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    supported = SUPPORTED_VERSIONS["verl"]
    parser.add_argument(
        "--verl",
        nargs="+",
        default=[*supported, BEFORE],
        metavar="VERSION|PATH",
        help="default: %(default)s; for verl's newest main, the folder of a clone",
    )
    args = parser.parse_args(arguments)
    failed = False
    print("| verl | differences from contract.json | tests/compat: passed | failed |\n|---|---|---|---|", flush=True)
    for release in map(Release.of, args.verl):
        make_environment(release)
        # The package in this environment.
        package = run_in(release, "-c", "import pathlib, verl; print(pathlib.Path(verl.__file__).parent.parent)")
        printed = run_in(release, "tests/compat/contract.py", "--verl", package.strip().splitlines()[-1])
        differences = int(_DIFFERENCES.findall(printed)[0])
        output = run_in(release, "-m", "pytest", "-q", "--continue-on-collection-errors", "tests/compat")
        (FOLDER / release.name / LOG).write_text(printed + output, encoding="utf-8")
        tests = counts(output)
        print(f"| {release.name} | {differences} | {tests['passed']} | {tests['failed']} |", flush=True)
        failed |= release.name in supported and bool(differences or tests["failed"])
    print(f"Every difference and failure: {FOLDER.relative_to(ROOT)}/VERSION/{LOG}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
