"""`make test-fast` begins: no test that it collects imports torch, verl or an engine."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_fast_tests_can_be_collected():
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--fast", "-p", "no:cacheprovider", "tests/unit"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:]
