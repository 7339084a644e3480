"""The page of a finished run, written at its end by the documented command."""

import contextlib
import subprocess
import sys
from importlib.util import find_spec

from verl_ext.run.run_folder import RunFolder

_SECONDS = 300


def write_page(folder: RunFolder) -> None:
    """Write RUN_DIR/report.html and print its path.

    In another process, because it must not affect a successful run: if it fails, nothing is printed.
    """
    if find_spec("plotly") is None or folder.read_summary() is None:
        return
    command = [sys.executable, "-m", "verl_ext.report", "run", str(folder.path.resolve())]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        print(f"\n{done.stdout.strip()}")
