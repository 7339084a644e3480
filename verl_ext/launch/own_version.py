"""The version of this project's code that a run was started with."""

import contextlib
import subprocess
from importlib import metadata
from pathlib import Path

_TIMEOUT_S = 5.0


def own_version(checkout: Path) -> dict[str, str]:
    """`verl-signal` with its version and, in a git checkout, `commit`, which also notes whether files differ from
    it."""
    found = {}
    with contextlib.suppress(metadata.PackageNotFoundError):  # run from the checkout without installation
        found["verl-signal"] = metadata.version("verl-signal")
    # The commit of an unrelated enclosing repository would be meaningless.
    if (checkout / ".git").exists():
        commit = _git(checkout, "rev-parse", "HEAD")
        if commit:
            changes = _git(checkout, "status", "--porcelain", "--untracked-files=no")
            found["commit"] = f"{commit[:12]}, with changes" if changes else commit[:12]
    return found


def _git(folder: Path, *arguments: str) -> str:
    """Output of git; empty if it fails."""
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()
