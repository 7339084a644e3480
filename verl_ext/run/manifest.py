"""A checkpoint's manifest: the size of each file, and a CRC-32 for files without their own. Written and verified here.

torch's files are zip archives with a CRC-32 for every tensor, so saving reads large files again only if they are
Megatron's or Hugging Face's. Several machines can share the reading of files (`in_shares`).
"""

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_CHUNK = 1 << 22  # bytes

# A file's bytes, and its CRC-32 unless it carries checksums of its own.
Entry = dict[str, int | None]
# Maps a folder and names of files in it to the manifest's entries, by name.
Describe = Callable[[Path, Sequence[str]], dict[str, Entry]]
# Maps a folder and names of files in it to the first file whose content has changed.
FindChanged = Callable[[Path, Sequence[str]], str | None]


def write_manifest(folder: Path, describe: Describe | None = None) -> None:
    """List the files of a finished checkpoint; every file is on disk when this returns.

    Args:
        folder: The checkpoint.
        describe: Reads the files, which takes time for large ones; `describe_files` unless other machines do it.
    """
    names = _names(folder)
    entries = (describe or describe_files)(folder, names)
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"files": {name: entries[name] for name in names}}, indent=1), encoding="utf-8")
    sync(manifest)


def describe_files(folder: Path, names: Sequence[str]) -> dict[str, Entry]:
    """The manifest's entries of these files of a checkpoint; they are read in parallel, and on disk afterwards."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(lambda name: _written(folder / name), names), strict=True))


def _written(path: Path) -> Entry:
    """The manifest's entry for a file, which is on disk when this returns."""
    sync(path)
    crc = None if path.suffix == ".pt" and zipfile.is_zipfile(path) else _crc(path)
    return {"bytes": path.stat().st_size, "crc32": crc}


def find_damage(folder: Path, find_changed: FindChanged | None = None) -> str | None:
    """The problem with a checkpoint: a file that is missing, truncated or changed; None if there is none.

    Without a manifest, as in verl's own checkpoints, only torch's archives can be checked.

    Args:
        folder: The checkpoint.
        find_changed: Reads the files, which takes time for large ones; `changed_file` unless other machines do it.
    """
    manifest, names = folder / MANIFEST, _names(folder)
    if manifest.exists():
        try:
            expected = _expected(folder)
        except (ValueError, KeyError, TypeError):
            return f"{MANIFEST} is damaged"
        names = list(expected)
        for name, file in expected.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != file["bytes"]:
                return f"{name} has {path.stat().st_size:,} bytes, expected {file['bytes']:,}"
    elif not (folder / "actor").is_dir():
        return "the actor's weights are missing"
    changed = (find_changed or changed_file)(folder, names)
    return None if changed is None else f"{changed} has changed since it was written"


def sizes_alone(folder: Path, names: Sequence[str]) -> str | None:
    """Used as `find_changed` if others read the files later."""
    return None


def changed_file(folder: Path, names: Sequence[str]) -> str | None:
    """The first of these files of a checkpoint whose content has changed; they are read in parallel."""
    expected = _expected(folder) if (folder / MANIFEST).exists() else {}
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = pool.map(lambda name: _changed(folder / name, expected.get(name)), names)
        return next((name for name, is_changed in zip(names, found, strict=True) if is_changed), None)


def in_shares(folder: Path, names: Sequence[str], num_shares: int) -> list[list[str]]:
    """The files in this many shares of about the same number of bytes; fewer if there are fewer files."""
    shares: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(num_shares, len(names)))]
    for name in sorted(names, key=lambda name: -(folder / name).stat().st_size):
        place = min(range(len(shares)), key=lambda place: shares[place][0])
        size, share = shares[place]
        shares[place] = size + (folder / name).stat().st_size, [*share, name]
    return [share for _, share in shares]


def _expected(folder: Path) -> dict[str, dict[str, Any]]:
    """The manifest: bytes and CRC-32 by name."""
    return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]


def _changed(path: Path, expected: dict[str, int | None] | None) -> bool:
    if expected is not None and expected["crc32"] is not None:
        return _crc(path) != expected["crc32"]
    if expected is None and path.suffix != ".pt":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is not None
    except (zipfile.BadZipFile, OSError, EOFError):
        return True


def _names(folder: Path) -> list[str]:
    """All files of a checkpoint but its manifest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return [path.relative_to(folder).as_posix() for path in files]


def _crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc


def sync(path: Path) -> None:
    """Flush a file or folder to disk: otherwise a rename may survive a crash without its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
