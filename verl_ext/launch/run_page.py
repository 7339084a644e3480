"""The page of a finished run, written at its end by the documented command."""

import contextlib
import shlex
import subprocess
import sys
from importlib.util import find_spec

from verl_ext.run.run_folder import RunFolder

_SECONDS = 300


def write_page(folder: RunFolder) -> None:
    """Write RUN_DIR/report.html and print its path, or how to write it if the extra `report` is not installed.

    In another process, because it must not affect a successful run: if it fails, nothing is printed.
    """
    if folder.read_summary() is None:
        return
    arguments = ["-m", "verl_ext.report", "run", str(folder.path.resolve())]
    if find_spec("plotly") is None:
        shown = shlex.join(["python", *arguments])
        print(f"\nno page, plotly is missing: pip install 'verl-signal[report]', then {shown}")
        return
    command = [sys.executable, *arguments]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        print(f"\n{done.stdout.strip()}")
