"""`make demo` and `make demo-arc` from a fresh clone, as on a bare machine: no compiler, and no files of earlier runs.

The environment has only the settings for package sources. The home and temporary folders are empty, and the programs on
the path are those that every Debian has and those that the README asks for.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab import ROOT

pytestmark = [pytest.mark.release, pytest.mark.timeout(5400)]

# From Debian's essential packages, and what the README asks for: make (and git, for the clone) and Python 3.11.
PROGRAMS = (
    *(
        "bash",
        "sh",
        "make",
        "git",
        "env",
        "test",
        "[",
        "true",
        "false",
        "echo",
        "printf",
        "cat",
        "cp",
        "mv",
        "rm",
        "ln",
    ),
    *(
        "ls",
        "mkdir",
        "rmdir",
        "touch",
        "chmod",
        "chown",
        "head",
        "tail",
        "sort",
        "uniq",
        "cut",
        "tr",
        "tee",
        "wc",
        "seq",
    ),
    *("grep", "sed", "awk", "find", "xargs", "tar", "gzip", "dirname", "basename", "readlink", "realpath", "mktemp"),
    *("id", "uname", "hostname", "date", "sleep", "timeout", "nproc", "stty", "lscpu", "mount", "umount", "unshare"),
)
# Settings for package sources, which a machine may have only in its environment.
PACKAGE_SETTINGS = ("PIP_", "UV_", "SSL_CERT_", "REQUESTS_CA_", "CURL_CA_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class BareMachine:
    """A clone, and the whole environment of its commands."""

    clone: Path
    environment: dict[str, str]

    def make(self, target: str) -> str:
        """Run `make` and return its output, the end of which is also printed."""
        result = subprocess.run(
            ["make", target], cwd=self.clone, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=5000, check=False,
        )  # fmt: skip
        print(result.stdout[-3000:])
        assert result.returncode == 0, result.stdout[-6000:]
        return result.stdout

    def summary(self, run: str) -> dict:
        return json.loads((self.clone / f"outputs/{run}/summary.json").read_text())


@pytest.fixture(scope="module")
def machine() -> Iterator[BareMachine]:
    # A short name: Ray's sockets are in the temporary folder, and their paths may have at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="bare", dir="/tmp"))
    try:
        for name in ("bin", "home", "t"):
            (folder / name).mkdir()
        for program in PROGRAMS:
            found = shutil.which(program)
            if found is not None:
                (folder / "bin" / program).symlink_to(found)
        # Not a pyenv shim, which looks for its versions in the home folder.
        (folder / "bin/python3.11").symlink_to(Path(sys._base_executable).resolve())
        environment = {name: value for name, value in os.environ.items() if name.upper().startswith(PACKAGE_SETTINGS)}
        own_settings = Path.home() / ".config/pip/pip.conf"
        if own_settings.exists():
            environment.setdefault("PIP_CONFIG_FILE", str(own_settings))
        environment |= {
            "PATH": str(folder / "bin"),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "t"),
            "CXX": "/nonexistent",
        }
        assert shutil.which("g++", path=environment["PATH"]) is None
        subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, folder / "clone"], check=True)
        yield BareMachine(folder / "clone", environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compiled(machine: BareMachine) -> list[Path]:
    folders = [Path(machine.environment[name]) for name in ("TMPDIR", "HOME")]
    return [path for folder in folders for path in folder.rglob("torchinductor*/**/*") if path.is_file()]


def test_make_demo_trains_to_the_end(machine: BareMachine):
    printed = machine.make("demo")
    summary = machine.summary("fast_dapo_demo")
    assert summary["global_steps"] == summary["total_training_steps"] == 40
    assert summary["val_accuracy_after"] > summary["val_accuracy_before"] + 0.1
    # Batches of 32 prompts with 2 to 4 rollouts each, and none is discarded.
    assert 40 * 32 * 2 < summary["rollouts_generated"] == summary["rollouts_trained"] < 40 * 32 * 4
    assert "validation accuracy" in printed
    assert _compiled(machine) == []


def test_make_demo_arc_trains_to_the_end(machine: BareMachine):
    printed = machine.make("demo-arc")
    summary = machine.summary("golden_redaction_demo")
    assert summary["global_steps"] == summary["total_training_steps"] == 160
    golden = summary["golden"]
    assert golden["labelled_tokens"] > 100
    assert golden["intended_way"] > 0.8
    assert golden["k_after"] > golden["k_before"]
    assert "labelled tokens" in printed
    assert _compiled(machine) == []
