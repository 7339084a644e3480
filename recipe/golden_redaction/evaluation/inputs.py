"""Inputs of a golden-redaction evaluation: the states that training visited, and fresh pairs. Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.records.records import warm_start
from recipe.golden_redaction.records.schema import is_int
from verl_ext.arc.solutions import read_pairs
from verl_ext.core.errors import SignalError
from verl_ext.data.arc_tasks import Pair


def read_fresh(path: Path, problems: Mapping[str, Problem]) -> dict[str, tuple[Pair, ...]]:
    """Fresh pairs of the given tasks, by task.

    Raises:
        SignalError: The file cannot be read, or has no pairs of these tasks.
    """
    found = {name: tuple(pairs.values()) for name, pairs in read_pairs((), path).items() if name in problems and pairs}
    if not found:
        raise SignalError(f"{path} has no fresh pairs of the {len(problems)} tasks: give the file of these tasks")
    return found


def read_states(path: Path, problems: Mapping[str, Problem], counts: Counter[str]) -> dict[str, set[int]]:
    """The k that training visited, by task.

    Args:
        path: JSON lines with `problem` and `k`. Lines with `schema` are training entries: their token ids must be those
            of this evaluation's states.
        problems: Tasks of the evaluation, by id; states of others are left out.
        counts: Receives the number of states left out.

    Raises:
        SignalError: The file cannot be read, has no state of these tasks, or was made with another tokenizer or other
            golden solutions.
        RecordError: A training entry does not follow its schema.
    """
    visited: dict[str, set[int]] = {}
    others: set[tuple[str, int]] = set()
    for name, k, ids in _read_lines(path):
        if name not in problems:
            others.add((name, k))
            continue
        if not problems[name].has_state(k, ids):
            raise SignalError(
                f"{path}: the state {name} with k={k} is not one of this model and these golden solutions "
                f"({len(problems[name].golden_ids)} tokens): give the states, model and solutions of the same run"
            )
        visited.setdefault(name, set()).add(k)
    if others:
        counts["states of tasks that are not evaluated"] = len(others)
    if not visited:
        raise SignalError(f"{path} has no state of the {len(problems)} tasks of --data ({len(others)} of others)")
    return visited


def _read_lines(path: Path) -> list[tuple[str, int, Sequence[int] | None]]:
    """Problem and k of each line, and the state's token ids if given."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines and "schema" in json.loads(lines[0]):
            return [(visit.problem, visit.k, visit.ids) for visit in warm_start(path, None).visits]
        rows = [dict(json.loads(line)) for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, TypeError) as error:
        raise SignalError(f"--states {path}: expected JSON lines with problem and k ({error})") from None
    for row in rows:
        name, k = row.get("problem"), row.get("k")
        if not isinstance(name, str) or not is_int(k, 1):
            raise SignalError(f"{path}: expected a problem id and k >= 1 in each line, got {name!r} and {k!r}")
    return [(row["problem"], row["k"], row.get("prompt_ids")) for row in rows]
