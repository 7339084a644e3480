"""A job's state as files that are each small enough to be copied back from another machine."""

import hashlib
import json
from pathlib import Path

from pieces import MEBIBYTE, PieceError, write_atomically

MAX_FILE_BYTES = 15 * MEBIBYTE


def save_bytes(folder: Path, name: str, data: bytes, max_bytes: int = MAX_FILE_BYTES) -> None:
    """Write `data` as `NAME.*.part` of at most `max_bytes` each, and then their list, `NAME.json`.

    A part is named by its content, so a writer that is killed leaves the earlier state intact.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cut = [data[start : start + max_bytes] for start in range(0, len(data), max_bytes)]
    names = [f"{name}.{number}-{hashlib.sha256(part).hexdigest()[:12]}.part" for number, part in enumerate(cut)]
    for path, part in zip(names, cut, strict=True):
        write_atomically(folder / path, part)
    index = {"files": names, "sha256": hashlib.sha256(data).hexdigest()}
    write_atomically(folder / f"{name}.json", (json.dumps(index, indent=1) + "\n").encode())
    for path in folder.glob(f"{name}.*.part"):
        if path.name not in names:
            path.unlink()


def load_bytes(folder: Path, name: str) -> bytes | None:
    """What `save_bytes` wrote; None if it wrote nothing.

    Raises:
        PieceError: A file is missing or damaged.
    """
    index = folder / f"{name}.json"
    if not index.exists():
        return None
    fields = json.loads(index.read_text(encoding="utf-8"))
    if missing := [path for path in fields["files"] if not (folder / path).is_file()]:
        raise PieceError(f"{index} names {', '.join(missing)}, not found: copy it back, or remove {index} to restart.")
    data = b"".join((folder / path).read_bytes() for path in fields["files"])
    if hashlib.sha256(data).hexdigest() != fields["sha256"]:
        raise PieceError(f"{folder / name}.*.part are not as written: copy them again, or remove {index} to restart.")
    return data
