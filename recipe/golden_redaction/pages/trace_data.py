"""Training entries as the trace viewer's blocks. Pure except for reading golden solutions.

    index               all that the table shows, and the texts of the tokens
    problem-{p}         a problem's token ids (each once: its states are beginnings of each other), its golden solution,
                        grids, and every number of its actions
    rollouts-{p}-{n}    texts and statuses of rollouts, about `ROLLOUTS_SIZE` characters per block

Only the first is unpacked when the page opens, so that its size in rollouts hardly matters.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recipe.golden_redaction.method.movement import movement
from recipe.golden_redaction.pages.tokens import find_solution, token_texts
from recipe.golden_redaction.pages.trace_entries import check_log_probs, check_outputs
from verl_ext.data.arc_tasks import Task
from verl_ext.report.blocks import pack
from verl_ext.sandbox.results import Status

ROLLOUTS_SIZE = 200_000  # characters


class TraceBook:
    """Entries by problem, and their blocks; unchanged blocks are not packed again.

    Args:
        tokenizer: Tokenizer of the policy; None shows ids instead of texts.
        tasks: ARC tasks by id, for their grids.
        about: Lines about the source.
        name: Name of the run.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        tasks: Mapping[str, Task] | None = None,
        about: Sequence[str] = (),
        name: str = "a run",
    ) -> None:
        self._tokenizer = tokenizer
        self._tasks = tasks or {}
        self._about = list(about)
        self._name = name
        self._texts: dict[int, str] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all entries."""
        self._entries: list[dict[str, Any]] = []
        self._actions: list[list[dict[str, Any]]] = []
        self._by_problem: dict[str, list[int]] = {}
        self._numbers: dict[str, int] = {}
        # A state may occur twice in a step.
        self._seen: Counter[tuple[str, int, int]] = Counter()
        self._changed: set[str] = set()
        self._rows: list[list[Any]] = []
        self._blocks: dict[str, str] = {}

    def add(self, entries: Iterable[dict[str, Any]]) -> None:
        """Add valid entries, in the file's order."""
        for entry in entries:
            problem = entry["problem"]
            self._by_problem.setdefault(problem, []).append(len(self._entries))
            number = self._numbers.setdefault(problem, len(self._numbers))
            key = (problem, entry["k"], entry["step"])
            found = actions(entry)
            self._rows.append(_row(entry, found, number, self._seen[key]))
            self._seen[key] += 1
            self._changed.add(problem)
            self._entries.append(entry)
            self._actions.append(found)

    def blocks(self) -> dict[str, str]:
        """All blocks by name."""
        self._add_texts()
        for problem in self._changed:
            self._pack_problem(self._numbers[problem], problem)
        self._changed.clear()
        index = {
            "about": self._about,
            "name": self._name,
            "problems": list(self._numbers),
            "texts": self._texts if self._tokenizer is not None else None,
            "rows": self._rows,
            "num_rollouts": sum(row[_NUM_ROLLOUTS] for row in self._rows),
        }
        return {"index": pack(index)} | self._blocks

    def _add_texts(self) -> None:
        if self._tokenizer is None:
            return
        used: set[int] = set()
        for problem in self._changed:
            for place in self._by_problem[problem]:
                entry = self._entries[place]
                used.update(entry["prompt_ids"], (action["token"] for action in entry["actions"]))
        self._texts |= token_texts(sorted(used - self._texts.keys()), self._tokenizer)

    def _pack_problem(self, number: int, problem: str) -> None:
        places = self._by_problem[problem]
        entries = [self._entries[place] for place in places]
        solution = find_solution(entries, self._tokenizer, self._texts)
        # Tokens from the file that no state has shown yet also need texts.
        if self._tokenizer is not None:
            hidden = {token for token in solution.ids if token is not None} - self._texts.keys()
            self._texts |= token_texts(sorted(hidden), self._tokenizer)
        sequences: list[list[int]] = []
        detail = []
        parts = _Parts(f"rollouts-{number}-")
        for place, entry in zip(places, entries, strict=True):
            detail.append(
                {
                    "entry": place,
                    "sequence": _sequence(entry["prompt_ids"], sequences),
                    "length": len(entry["prompt_ids"]),
                    "start": solution.start_in(entry),
                    "fits": solution.fits(entry),
                    "log_probs": check_log_probs(entry),
                    "rollouts": parts.add(place, entry),
                    "actions": self._actions[place],
                }
            )
        task = self._tasks.get(problem)
        self._blocks |= {name: pack(part) for name, part in parts.blocks.items()}
        self._blocks[f"problem-{number}"] = pack(
            {
                "problem": problem,
                "sequences": sequences,
                "solution": {"ids": solution.ids, "is_complete": solution.is_complete},
                "entries": detail,
                "pairs": None
                if task is None
                else {
                    part: [[pair.input, pair.output] for pair in pairs]
                    for part, pairs in (("train", task.train), ("test", task.test))
                },
            }
        )


class _Parts:
    """Rollouts of a problem's entries, in blocks of bounded size."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._room = 0
        self.blocks: dict[str, dict[str, Any]] = {}

    def add(self, place: int, entry: Mapping[str, Any]) -> str:
        """Add an entry's rollouts; returns the block's name."""
        rollouts = [[_rollout(rollout) for rollout in action["rollouts"]] for action in entry["actions"]]
        if self._room <= 0:
            self._room = ROLLOUTS_SIZE
            self.blocks[f"{self._prefix}{len(self.blocks)}"] = {}
        self._room -= sum(len(rollout["text"]) + 100 for action in rollouts for rollout in action)
        name = list(self.blocks)[-1]
        self.blocks[name][str(place)] = rollouts
        return name


def _rollout(rollout: dict[str, Any]) -> dict[str, Any]:
    kept = {name: rollout[name] for name in ("text", "reward", "statuses")}
    outputs = check_outputs(rollout)
    return kept if outputs is None else kept | {"outputs": outputs}


def _sequence(ids: list[int], sequences: list[list[int]]) -> int:
    """Number of the sequence that begins with `ids`; a sequence that is a prefix of `ids` is extended."""
    for number, known in enumerate(sequences):
        shared = min(len(known), len(ids))
        if known[:shared] == ids[:shared]:
            if len(ids) > shared:
                sequences[number] = ids
            return number
    sequences.append(ids)
    return len(sequences) - 1


# ------------------------------ actions ------------------------------


def actions(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Everything about an entry's actions except the rollouts, with each one's movement (`movement.py`).

    The engine's movement is measured from the trainer's log-prob before, as that is the only one that entries have.
    """
    trainer = _movements(entry, "log_prob_after_trainer")
    engine = _movements(entry, "log_prob_after_engine")
    found = []
    for number, action in enumerate(entry["actions"]):
        labels = [rollout["reward"] for rollout in action["rollouts"] if rollout["reward"] is not None]
        found.append(
            {
                "token": action["token"],
                "is_teacher": action["token"] == entry["teacher"],
                "reward": action["reward"],
                "confidence": _short(action["confidence"]),
                "advantage": action["advantage"],
                "passes": int(sum(labels)),
                "labels": len(labels),
                "failures": sum(Status.INFRASTRUCTURE_ERROR in rollout["statuses"] for rollout in action["rollouts"]),
                "target": _short(action["target"]),
                "before": _short(action["log_prob_before"]),
                "trainer": _short(action["log_prob_after_trainer"]),
                "engine": _short(action["log_prob_after_engine"]),
                "reference": _short(action["log_prob_reference"]),
                "trainer_moved": trainer.get(number),
                "engine_moved": engine.get(number),
            }
        )
    return found


def _movements(entry: Mapping[str, Any], after: str) -> dict[int, dict[str, Any]]:
    """Kind, nats moved and nats to the target of each labelled action that was measured after the update."""
    measured = [number for number, action in enumerate(entry["actions"]) if action[after] is not None]
    rows = [entry["actions"][number] for number in measured]
    moved = movement(
        [action["log_prob_before"] for action in rows],
        [action[after] for action in rows],
        [0.0 if action["target"] is None else action["target"] for action in rows],
        [action["advantage"] for action in rows],
    )
    return {
        number: {"kind": kind, "moved": _short(float(moved.moved[row])), "asked": _short(float(moved.asked[row]))}
        for row, (number, kind) in enumerate(zip(measured, moved.kinds, strict=True))
        if kind
    }


# Columns of a row of the table; trace.js reads them by position.
_NUM_ROLLOUTS = 7


def _row(entry: Mapping[str, Any], found: Sequence[Mapping[str, Any]], problem: int, nth: int) -> list[Any]:
    """problem, k, step, weight version, state reward, coverage, nth of its kind, rollouts, infrastructure errors,
    actions as [token, reward, advantage, kind in the trainer or in the engine, is teacher], and over the labelled
    actions the largest movement of a log-prob and the largest distance from a target (nats)."""
    short = []
    for action in found:
        moved = _moved(action)
        short.append(
            [
                action["token"],
                _short(action["reward"]),
                action["advantage"],
                moved["kind"] if moved else "",
                int(action["is_teacher"]),
            ]
        )
    return [
        problem,
        entry["k"],
        entry["step"],
        entry["weight_version"],
        _short(entry["state_reward"]),
        _short(entry["coverage"]),
        nth,
        sum(len(action["rollouts"]) for action in entry["actions"]),
        sum(action["failures"] for action in found),
        short,
        _largest(abs(moved["moved"]) for action in found if (moved := _moved(action))),
        _largest(
            abs(moved["asked"] - moved["moved"])
            for action in found
            if action["target"] is not None and (moved := _moved(action))
        ),
    ]


def _moved(action: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Measured by the trainer, otherwise by the engine; both relative to `before`."""
    return action["trainer_moved"] or action["engine_moved"]


def _largest(values: Iterable[float]) -> float | None:
    return _short(max(values, default=None))


def _short(number: float | None) -> float | None:
    return None if number is None else round(number, 6)
