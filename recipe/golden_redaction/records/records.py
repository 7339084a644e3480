"""Training entries of a run, for the trace viewer, for people, and to start a later run from. Pure.

`schema.py` has the schema; an entry is a visit in JSON. `warm_start` reads visits back with their rollouts and
separates those of a much older policy, by weight versions. `method/earlier_run.py` uses them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recipe.golden_redaction.method.visits import Recorded, Rollout, StateVisit
from recipe.golden_redaction.records.schema import SCHEMA_VERSION, RecordError, find_problems
from verl_ext.core.json_lines import JsonLines


class TrainingRecords:
    """The entries of a run. A resumed run calls `cut_back_to` with the `num_bytes` of its checkpoint.

    Args:
        path: The file; its folder is created.
    """

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    @property
    def num_bytes(self) -> int:
        """Length of the file."""
        return self._lines.num_bytes

    def append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries.

        Raises:
            RecordError: if one violates the schema. Nothing is written then.
        """
        for number, entry in enumerate(entries):
            if problems := find_problems(entry):
                raise RecordError(f"{self._lines.path}: entry {number} of those to append", problems)
        self._lines.append(entries)

    def cut_back_to(self, num_bytes: int) -> None:
        """Truncate the file to a checkpoint."""
        self._lines.cut_back_to(num_bytes)


@dataclass(frozen=True)
class WarmStart:
    """Visits to start from.

    Attributes:
        visits: Visits of valid and fresh entries, rolled out, in the file's order.
        history: Visits of all valid entries.
        num_read: Entries in the file.
        num_stale: Entries skipped because their policy is too old.
        is_cut: Whether the last line was incomplete (the run was killed while writing it) and was skipped.
    """

    visits: list[StateVisit]
    history: list[StateVisit]
    num_read: int
    num_stale: int
    is_cut: bool


def make_entry(visit: StateVisit, step: int) -> dict[str, Any]:
    """The entry of a credited visit; NaN and log-probs that were not measured become null.

    Raises:
        ValueError: if a value is missing for one of the K tokens.
    """
    unknown = [None] * len(visit.tokens)
    columns: dict[str, Sequence[Any] | np.ndarray] = {
        "rollouts": [[_pack(rollout) for rollout in action] for action in visit.rollouts],
        "reward": visit.credit.rewards,
        "confidence": 1.0 - visit.credit.p_values,
        "advantage": visit.credit.advantages,
        "target": visit.targets.log_probs,
        "log_prob_before": visit.trainer["before"],
        "log_prob_after_trainer": visit.trainer.get("after", unknown),
        "log_prob_after_engine": visit.engine.get("after", unknown),
        "log_prob_reference": unknown if visit.reference is None else visit.reference,
    }
    lengths = {name: len(values) for name, values in columns.items()}
    if any(length != len(visit.tokens) for length in lengths.values()):
        raise ValueError(f"expected all values for each of {len(visit.tokens)} tokens, got {lengths}")
    actions = [
        {"token": token} | {name: _plain(values[number]) for name, values in columns.items()}
        for number, token in enumerate(visit.tokens)
    ]
    optional = {"prompt_log_probs": visit.own_log_probs, "golden_start": visit.golden_start}
    return {name: value for name, value in optional.items() if value is not None} | {
        "schema": SCHEMA_VERSION,
        "step": step,
        "weight_version": visit.weight_version,
        "problem": visit.problem,
        "k": visit.k,
        "prompt_ids": list(visit.ids),
        "teacher": visit.teacher,
        "state_reward": _plain(visit.credit.state_reward),
        "coverage": _plain(visit.credit.coverage),
        "actions": actions,
    }


def read_visit(entry: Mapping[str, Any]) -> StateVisit:
    """The visit that a valid entry records, rolled out: credit and log-probs are those of the policy to be updated."""
    return StateVisit(
        problem=entry["problem"],
        k=entry["k"],
        ids=tuple(entry["prompt_ids"]),
        teacher=entry["teacher"],
        tokens=tuple(action["token"] for action in entry["actions"]),
        weight_version=entry["weight_version"],
        rollouts=tuple(tuple(map(_unpack, action["rollouts"])) for action in entry["actions"]),
        golden_start=entry.get("golden_start"),
        recorded=Recorded(tuple(action["log_prob_before"] for action in entry["actions"]), entry["state_reward"]),
    )


def _pack(rollout: Rollout) -> dict[str, Any]:
    packed = {"text": rollout.text, "reward": rollout.reward, "statuses": list(rollout.statuses)}
    return packed if rollout.outputs is None else packed | {"outputs": list(rollout.outputs)}


def _unpack(packed: Mapping[str, Any]) -> Rollout:
    outputs = packed.get("outputs")
    if outputs is not None:
        outputs = tuple(None if grid is None else tuple(map(tuple, grid)) for grid in outputs)
    return Rollout(packed["text"], packed["reward"], tuple(packed["statuses"]), outputs)


def warm_start(path: Path, max_staleness: int | None, weight_version: int | None = None) -> WarmStart:
    """Read a file of entries.

    Args:
        path: The file.
        max_staleness: Weight versions that an entry may be behind `weight_version`, at least 0; None: any number.
        weight_version: Of the policy that the run starts from; None: the newest of the file, for a run that starts from
            that run's final weights.

    Raises:
        RecordError: if the file does not exist, or a line (other than an incomplete last one) is not a valid entry.
        ValueError: if `max_staleness` is below 0.
    """
    if max_staleness is not None and max_staleness < 0:
        raise ValueError(f"max_staleness must be at least 0 weight versions or None, got {max_staleness}")
    if not path.is_file():
        raise RecordError(str(path), ["no such file: give the JSON lines of an earlier run, or null"])
    visits: list[StateVisit] = []
    is_cut = False
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            # Every complete line ends in a line break, so only the text after the last one can be incomplete.
            if number == len(lines):
                is_cut = True
                break
            raise RecordError(f"{path}, line {number}", [f"not a line of JSON ({error})"]) from None
        if problems := find_problems(entry):
            raise RecordError(f"{path}, line {number}", problems)
        visits.append(read_visit(entry))
    newest = max((visit.weight_version for visit in visits), default=0)
    version = newest if weight_version is None else weight_version
    # A policy ahead of the current one is as far away as one that is behind.
    fresh = [v for v in visits if max_staleness is None or abs(version - v.weight_version) <= max_staleness]
    return WarmStart(fresh, visits, len(visits), len(visits) - len(fresh), is_cut)


def _plain(value: Any) -> Any:
    """A value for JSON: numpy numbers as Python's, NaN as null."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value
