"""Small wheels for tests of the GPU kit, written by hand: a module with the version, and metadata."""

import zipfile
from collections.abc import Sequence
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """A wheel that pip installs; the same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
    files = {
        f"{name.replace('-', '_').lower()}_made.py": f"VERSION = {version!r}\n",
        f"{stem}.dist-info/METADATA": "\n".join(["Metadata-Version: 2.1", *lines, ""]),
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: made\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{stem}.dist-info/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{stem}.dist-info/RECORD"])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return path
