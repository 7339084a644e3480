"""What an evaluation of golden redaction runs and reads: programs through an executor, states, fresh pairs. Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipe.golden_redaction.golden_tasks import read_pairs
from recipe.golden_redaction.problems import Problem
from recipe.golden_redaction.prompts import state_ids
from recipe.golden_redaction.record_schema import is_int
from recipe.golden_redaction.records import warm_start
from verl_ext.errors import SignalError
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.results import Pair, ProgramResult, Status

ATTEMPTS = 3


class Programs:
    """Runs identical programs once, and tries again what met an infrastructure error, `ATTEMPTS` times in all.

    Args:
        executor: Runs them.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._results: dict[tuple[str, str, str], ProgramResult] = {}

    def run(
        self,
        kind: str,
        jobs: Sequence[tuple[str, str]],
        pairs: Mapping[str, Sequence[Pair]],
        stop_at_first_failure: bool = False,
    ) -> list[ProgramResult]:
        """Results in the order of the jobs.

        Args:
            kind: Of the pairs: a task has the same ones under a kind in every call.
            jobs: Task and program.
            pairs: By task.
            stop_at_first_failure: See `Executor`; the same in every call of a kind.
        """
        waiting = [key for key in dict.fromkeys((kind, *job) for job in jobs) if key not in self._results]
        for _ in range(ATTEMPTS):
            if not waiting:
                break
            results = self._executor.check_many(
                [(program, pairs[problem]) for _, problem, program in waiting], stop_at_first_failure
            )
            self._results |= dict(zip(waiting, results, strict=True))
            waiting = [key for key in waiting if _is_unknown(self._results[key])]
        return [self._results[kind, problem, program] for problem, program in jobs]


def _is_unknown(result: ProgramResult) -> bool:
    return any(run.status is Status.INFRASTRUCTURE_ERROR for run in result.pairs)


def read_fresh(path: Path, problems: Mapping[str, Problem]) -> dict[str, tuple[Pair, ...]]:
    """Fresh pairs of the given tasks, by task.

    Raises:
        SignalError: The file cannot be read, or has pairs of none of these tasks.
    """
    found = {
        name: tuple(Pair([list(row) for row in pair.input], [list(row) for row in pair.output]) for pair in pairs)
        for name, pairs in read_pairs((), path).items()
        if name in problems and pairs
    }
    if not found:
        raise SignalError(f"{path} has fresh pairs of none of the {len(problems)} tasks: give the file of these tasks")
    return found


def read_states(path: Path, problems: Mapping[str, Problem], counts: Counter[str]) -> dict[str, set[int]]:
    """The k that training visited, by task.

    Args:
        path: JSON lines with `problem` and `k`. Lines with `schema` are training entries: their token ids must be those
            of this evaluation's states.
        problems: Tasks of the evaluation, by id; states of others are left out.
        counts: Is told how many.

    Raises:
        SignalError: The file cannot be read, has no state of these tasks, or is of another tokenizer or other golden
            solutions.
        RecordError: A training entry does not follow its schema.
    """
    visited: dict[str, set[int]] = {}
    others = set()
    for entry in _read_entries(path):
        name, k = entry.get("problem"), entry.get("k")
        if not isinstance(name, str) or not isinstance(k, int) or not is_int(k, 1):
            raise SignalError(f"{path}: expected a problem id and k >= 1 in each line, got {name!r} and {k!r}")
        if name not in problems:
            others.add((name, k))
            continue
        problem = problems[name]
        if k > len(problem.golden_ids) or (
            "prompt_ids" in entry and entry["prompt_ids"] != state_ids(problem.prompt_ids, problem.golden_ids, k)
        ):
            raise SignalError(
                f"{path}: the state {name} with k={k} is not one of this model and these golden solutions "
                f"({len(problem.golden_ids)} tokens): give the states, model and solutions of the same run"
            )
        visited.setdefault(name, set()).add(k)
    if others:
        counts["states of tasks that are not evaluated"] = len(others)
    if not visited:
        raise SignalError(f"{path} has no state of the {len(problems)} tasks of --data ({len(others)} of others)")
    return visited


def _read_entries(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines and "schema" in json.loads(lines[0]):
            return warm_start(path, None).entries
        return [dict(json.loads(line)) for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, TypeError) as error:
        raise SignalError(f"--states {path}: expected JSON lines with problem and k ({error})") from None
