"""The scored samples of an evaluation, saved as they are made, so that a killed evaluation can continue. Pure.

The file is JSON lines: a header with the settings, then one line per prompt. A prompt is identified by its data file's
content and its row, so the same file works for more data sets, a higher `--limit`, another `--k`, `--by` or
`--success_threshold`.
"""

import fcntl
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_ext.core.errors import SignalError
from verl_ext.core.json_lines import JsonLines

_HEADER = "evaluation_settings"


@dataclass(frozen=True)
class ScoredResponse:
    """One scored response.

    Attributes:
        response: Its text.
        score: The reward function's score.
        correct: Whether it was right by the success threshold at sampling; a report judges again.
        pred: The answer that the reward function extracted; None if it reports none.
        truncated: Whether the length limit cut it off.
        num_tokens: Its length.
        acc: The reward function's `acc`; None if it reports none.
    """

    response: str
    score: float
    correct: bool
    pred: str | None
    truncated: bool
    num_tokens: int
    acc: float | None = None

    @property
    def reward(self) -> float:
        """`acc` if the reward function reports it, otherwise `score`: the value that verl's validation averages."""
        return self.score if self.acc is None else self.acc


@dataclass(frozen=True)
class PromptKey:
    """Identifies a prompt: the hash of its data file's content, and its row."""

    data_hash: str
    row: int


class SampleStore:
    """Samples by prompt; in a file if there is a path, otherwise only in memory.

    Args:
        path: The file, which is continued if it exists; its folder is created.
        settings: All settings that the samples depend on besides the data, as JSON values.

    Raises:
        SignalError: If the file has samples of other settings, is not a sample file, or is in use.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self._samples: dict[PromptKey, list[ScoredResponse]] = {}
        self._lines: JsonLines | None = None
        if path is None:
            return
        self._lines = JsonLines(path)
        self._lock = path.open("ab")  # stays open: the lock is released with it, however this process ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise SignalError(
                f"{path} is in use by another evaluation. Wait for it or choose another --output."
            ) from error
        try:
            self._load(path, json.loads(json.dumps(dict(settings))))
        except BaseException:
            self.close()
            raise

    def _load(self, path: Path, settings: dict[str, Any]) -> None:
        assert self._lines is not None
        content = path.read_bytes()
        # A killed process may have left an incomplete line.
        complete = content[: content.rfind(b"\n") + 1]
        self._lines.cut_back_to(len(complete))
        if not complete:
            self._lines.append([{_HEADER: settings}])
            return
        try:
            header, *records = [json.loads(line) for line in complete.splitlines()]
            stored = header[_HEADER]
            for record in records:
                key = PromptKey(record["data_hash"], record["row"])
                self._samples[key] = [ScoredResponse(**sample) for sample in record["samples"]]
        except (ValueError, KeyError, TypeError) as error:
            raise SignalError(
                f"{path} is not a file of samples ({error!r}). Remove it to start over, or choose another --output."
            ) from error
        names = [name for name in {**stored, **settings} if stored.get(name) != settings.get(name)]
        if names:
            changes = "; ".join(f"{name} was {stored.get(name)!r}, is {settings.get(name)!r}" for name in names)
            raise SignalError(
                f"{path} holds samples of other settings: {changes}. Samples of both would be mixed: choose another "
                "--output, or remove the file to start over."
            )

    def __contains__(self, key: PromptKey) -> bool:
        return key in self._samples

    def __getitem__(self, key: PromptKey) -> list[ScoredResponse]:
        return self._samples[key]

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, data: str, prompts: Iterable[tuple[PromptKey, Sequence[ScoredResponse]]]) -> None:
        """Keep the samples of some prompts of one data set; known ones are unchanged."""
        new = {key: list(samples) for key, samples in prompts if key not in self}
        self._samples |= new
        if self._lines is not None:
            self._lines.append({"data": data, **asdict(key), "samples": list(map(asdict, new[key]))} for key in new)

    def close(self) -> None:
        """Let another evaluation use the file."""
        if self._lines is not None:
            self._lock.close()
