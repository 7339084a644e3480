"""Training entries of a run, kept for the trace viewer, for people, and to start a later run from. Pure.

`record_schema.py` has the schema. `warm_start` reads entries back for their states, targets and rewards; entries that
a much older policy made are left out, by how many weight versions they are behind.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recipe.golden_redaction.credit import StateCredit
from recipe.golden_redaction.record_schema import SCHEMA_VERSION, RecordError, find_problems
from verl_ext.json_lines import JsonLines


class TrainingRecords:
    """The entries of a run. A resumed run calls `cut_back_to` with the `num_bytes` of its checkpoint.

    Args:
        path: The file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    @property
    def num_bytes(self) -> int:
        """Length of the file."""
        return self._lines.num_bytes

    def append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write entries at the end.

        Raises:
            RecordError: if one does not follow the schema. Nothing is written then.
        """
        for number, entry in enumerate(entries):
            if problems := find_problems(entry):
                raise RecordError(f"{self._lines.path}: entry {number} of those to append", problems)
        self._lines.append(entries)

    def cut_back_to(self, num_bytes: int) -> None:
        """Drop what was written past a checkpoint."""
        self._lines.cut_back_to(num_bytes)


@dataclass(frozen=True)
class WarmStart:
    """Entries to start from.

    Attributes:
        entries: Valid and fresh, in the file's order.
        num_read: Entries in the file.
        num_stale: Left out, because their policy is too old.
        is_cut: The last line was incomplete (the run was killed while writing it) and is left out.
    """

    entries: list[dict[str, Any]]
    num_read: int
    num_stale: int
    is_cut: bool


def make_entry(
    *,
    step: int,
    weight_version: int,
    problem: str,
    k: int,
    prompt_ids: Sequence[int],
    teacher: int,
    tokens: Sequence[int],
    rollouts: Sequence[Sequence[Mapping[str, Any]]],
    credit: StateCredit,
    targets: Sequence[float] | np.ndarray,
    log_probs_before: Sequence[float] | np.ndarray,
    log_probs_after_trainer: Sequence[float] | np.ndarray | None = None,
    log_probs_after_engine: Sequence[float] | np.ndarray | None = None,
    log_probs_reference: Sequence[float] | np.ndarray | None = None,
    prompt_log_probs: Mapping[str, Sequence[float | None]] | None = None,
) -> dict[str, Any]:
    """An entry of the schema from the arrays that the algorithm has; NaN becomes null.

    Args:
        tokens: The K actions; so many `rollouts` lists of {text, reward, statuses}, targets and log-probs.
        credit: Of the same tokens.
        targets: (K,), NaN where the advantage is 0.
        log_probs_after_trainer, log_probs_after_engine, log_probs_reference: (K,) or None: not measured.

        prompt_log_probs: Of the tokens of `prompt_ids`, see the schema; None: not measured.

    Raises:
        ValueError: if not everything is there for each of the K tokens.
    """
    columns: dict[str, Sequence[Any] | np.ndarray] = {
        "rollouts": [[dict(rollout) for rollout in token] for token in rollouts],
        "reward": credit.rewards,
        "confidence": 1.0 - credit.p_values,
        "advantage": credit.advantages,
        "target": targets,
        "log_prob_before": log_probs_before,
    }
    for name, values in (
        ("log_prob_after_trainer", log_probs_after_trainer),
        ("log_prob_after_engine", log_probs_after_engine),
        ("log_prob_reference", log_probs_reference),
    ):
        columns[name] = [None] * len(tokens) if values is None else values
    lengths = {name: len(values) for name, values in columns.items()}
    if any(length != len(tokens) for length in lengths.values()):
        raise ValueError(f"expected one of everything for each of {len(tokens)} tokens, got {lengths}")
    actions = [
        {"token": int(token)} | {name: _plain(values[number]) for name, values in columns.items()}
        for number, token in enumerate(tokens)
    ]
    optional = {} if prompt_log_probs is None else {"prompt_log_probs": prompt_log_probs}
    return optional | {
        "schema": SCHEMA_VERSION,
        "step": step,
        "weight_version": weight_version,
        "problem": problem,
        "k": k,
        "prompt_ids": [int(token) for token in prompt_ids],
        "teacher": int(teacher),
        "state_reward": _plain(credit.state_reward),
        "coverage": _plain(credit.coverage),
        "actions": actions,
    }


def warm_start(path: Path, max_staleness: int | None, weight_version: int | None = None) -> WarmStart:
    """Read a file of entries back.

    Args:
        path: The file.
        max_staleness: Weight versions that an entry may be behind `weight_version`, at least 0; None: any number.
        weight_version: Of the policy that the run starts from; None: the newest of the file, for a run that goes on
            from the weights which that run ended with.

    Raises:
        RecordError: if there is no such file, or a line (other than an incomplete last one) is no valid entry.
        ValueError: if `max_staleness` is below 0.
    """
    if max_staleness is not None and max_staleness < 0:
        raise ValueError(f"max_staleness must be at least 0 weight versions or None, got {max_staleness}")
    if not path.is_file():
        raise RecordError(str(path), ["there is no such file: give the JSON lines of an earlier run, or null"])
    entries, is_cut = [], False
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            # Every complete line ends in a line break, so only what follows the last one can be incomplete.
            if number == len(lines):
                is_cut = True
                break
            raise RecordError(f"{path}, line {number}", [f"not a line of JSON ({error})"]) from None
        if problems := find_problems(entry):
            raise RecordError(f"{path}, line {number}", problems)
        entries.append(entry)
    newest = max((entry["weight_version"] for entry in entries), default=0)
    fresh = list(_fresh(entries, newest if weight_version is None else weight_version, max_staleness))
    return WarmStart(fresh, len(entries), len(entries) - len(fresh), is_cut)


def _fresh(
    entries: Iterable[dict[str, Any]], weight_version: int, max_staleness: int | None
) -> Iterable[dict[str, Any]]:
    for entry in entries:
        behind = weight_version - entry["weight_version"]
        # A policy ahead of ours is another one, and as far from ours as one that is behind.
        if max_staleness is None or abs(behind) <= max_staleness:
            yield entry


def _plain(value: Any) -> Any:
    """A value for JSON: numpy numbers as Python's, NaN as null."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value
