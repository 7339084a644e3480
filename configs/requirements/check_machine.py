"""What `make setup` needs that pip cannot install: each thing that is missing is named in one sentence.

    python3 configs/requirements/check_machine.py

Runs on the machine's own Python, whatever its version: only the standard library, no newer syntax than 3.7's.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

# The environment takes 4.4 GB, a demo's checkpoints little.
NEEDED_GB = 6


class Machine(NamedTuple):
    """What is looked at."""

    platform: str
    python: tuple[int, int]
    has_venv: bool
    has_libnuma: bool
    free_gb: float

    @classmethod
    def here(cls) -> Machine:
        """This machine, with the disk of the current folder."""
        return cls(
            sys.platform,
            sys.version_info[:2],
            importlib.util.find_spec("ensurepip") is not None and importlib.util.find_spec("venv") is not None,
            _can_load("libnuma.so.1"),
            shutil.disk_usage(Path.cwd()).free / 1e9,
        )


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def missing(machine: Machine) -> list[str]:
    """A sentence for each thing that is missing; none on a machine that has everything."""
    found = "{}.{}".format(*machine.python)
    sentences = []
    if machine.platform != "linux":
        sentences.append(f"Linux is needed, found {machine.platform}: vLLM's CPU engine has packages for Linux only.")
    if machine.python != (3, 11):
        sentences.append(f"Python 3.11 is needed, found {found}: install it, or set BASE_PYTHON=/path/to/python3.11.")
    if not machine.has_venv:
        sentences.append(f"Python's venv is missing: on Debian, apt-get install python{found}-venv.")
    if not machine.has_libnuma:
        sentences.append(
            "The library libnuma.so.1, which vLLM links to, is missing: on Debian, apt-get install libnuma1."
        )
    if machine.free_gb < NEEDED_GB:
        sentences.append(f"{NEEDED_GB} GB of disk are needed in this folder, {machine.free_gb:.1f} GB are free.")
    return sentences


if __name__ == "__main__":
    sys.exit("\n".join(missing(Machine.here())) or 0)
