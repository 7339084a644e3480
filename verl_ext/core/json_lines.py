"""An append-only file of JSON records whose length is saved in checkpoints. Pure."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class JsonLines:
    """One JSON object per line.

    A killed and resumed run repeats the steps after its checkpoint. Truncating the file to the length saved in the
    checkpoint keeps every record exactly once.

    Args:
        path: the file; its folder is created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def num_bytes(self) -> int:
        """Length of the file; 0 if there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append the records."""
        text = "".join(json.dumps(record) + "\n" for record in records)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(text)

    def cut_back_to(self, num_bytes: int) -> None:
        """Truncate the file to `num_bytes`; a shorter file (it was removed) stays unchanged."""
        if self.num_bytes > num_bytes:
            with self.path.open("r+b") as stream:
                stream.truncate(num_bytes)

    def read(self) -> list[dict[str, Any]]:
        """All records, in order."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
