"""An append-only file of JSON records whose length can travel with a checkpoint. Pure."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class JsonLines:
    """One JSON object a line.

    A run that is killed and resumed repeats what came after its checkpoint. Cutting the file back to the length that
    the checkpoint remembers keeps every record exactly once.

    Args:
        path: the file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def num_bytes(self) -> int:
        """Length of the file; 0 if there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write the records at the end."""
        text = "".join(json.dumps(record) + "\n" for record in records)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(text)

    def cut_back_to(self, num_bytes: int) -> None:
        """Drop what was written past `num_bytes`; a file that is shorter (it was removed) stays as it is."""
        if self.num_bytes > num_bytes:
            with self.path.open("r+b") as stream:
                stream.truncate(num_bytes)

    def read(self) -> list[dict[str, Any]]:
        """All records, in order."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
