"""The releases of verl that the contract tests run on: what is installed, and what pytest said."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))

from releases import Release, counts, requirements_with

ROOT = Path(__file__).resolve().parents[2]


def test_a_release_is_a_version_or_a_path(tmp_path: Path):
    assert Release.of("0.9.0") == Release("0.9.0", "verl==0.9.0")
    wheel = tmp_path / "verl-0.9.2-py3-none-any.whl"
    wheel.touch()
    assert Release.of(str(wheel)) == Release("verl-0.9.2-py3-none-any", str(wheel))


def test_the_lock_gets_another_verl_and_nothing_else():
    lock = (ROOT / "configs/requirements/cpu.txt").read_text(encoding="utf-8")
    (own,) = [line for line in lock.splitlines() if line.startswith("verl==")]
    changed = requirements_with(Release.of("0.1"), lock)
    assert set(changed.splitlines()) ^ set(lock.splitlines()) == {"verl==0.1", own}
    with pytest.raises(ValueError, match="expected one line verl=="):
        requirements_with(Release.of("0.9.0"), "torch==2.13.0\n")


def test_errors_count_as_failures():
    assert counts("...\n12 passed, 3 failed, 2 errors in 5.0s\n") == {"passed": 12, "failed": 5}
    assert counts("= 4 passed in 1s =\nwarning\n") == {"passed": 4, "failed": 0}
    assert counts("") == {"passed": 0, "failed": 0}
