"""Tasks of reasoning-gym: about a hundred generators of problems, each with its own scorer, which may give partial
credit.

    python -m data_preprocess.reasoning_gym --tasks chain_sum:max_terms=3,max_digits=2 spell_backward --size 500 \\
        --local_save_dir outputs/data/reasoning_gym

Writes train.parquet and val.parquet, with --size and --val_size problems per task and no duplicate questions. A task's
own settings follow its name (numbers, true or false, texts). Each question comes after --examples worked examples of
the same task, as turns of a chat, with answers in the library's form, `<answer>7</answer>`; without examples, an
instruction for this form follows the question. Rewards are the library's grades (`verl_ext.rewards.reasoning_gym`).

The package is optional: pip install reasoning-gym (Apache-2.0).
"""

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_preprocess.ending import errors_in_one_line
from verl_ext.data.row_report import SourceError
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.rewards.reasoning_gym import PREFIX, check_task, library, score_entry

INSTRUCTION = "Put your final answer between <answer> and </answer> tags."
# Attempts per wanted problem before a task counts as exhausted.
_TRIES = 20


@dataclass(frozen=True)
class Task:
    """A generator with its settings."""

    name: str
    settings: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "Task":
        """Parse `NAME` or `NAME:KEY=VALUE,KEY=VALUE`.

        Raises:
            ValueError: The text has another form.

        Example:
            >>> Task.parse("chain_sum:max_terms=3,allow_negation=true").settings
            {'max_terms': 3, 'allow_negation': True}
        """
        name, _, rest = text.partition(":")
        settings: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            key, is_set, value = part.partition("=")
            if not is_set or not key:
                raise ValueError(f"--tasks {text}: expected NAME or NAME:KEY=VALUE,KEY=VALUE, got {part!r} in it")
            try:
                settings[key] = json.loads(value)
            except ValueError:
                settings[key] = value
        return cls(name, settings)


@dataclass(frozen=True)
class Problem:
    """A generated problem."""

    question: str
    answer: str
    metadata: str  # JSON

    @property
    def turns(self) -> list[dict[str, str]]:
        """The two chat messages of a worked example."""
        return [
            {"role": "user", "content": self.question},
            {"role": "assistant", "content": f"<answer>{self.answer}</answer>"},
        ]


def draw_problems(task: Task, count: int, seed: int) -> list[Problem]:
    """Distinct problems of a task.

    Raises:
        TaskError: The package or the task does not exist, or its responses cannot be scored here.
        SourceError: Its settings are wrong, it has fewer problems, or the library scores its own answer 0.
    """
    check_task(task.name)
    # The library adds a problem's number to its seed, so neighbouring seeds would give nearly the same problems.
    own_seed = int.from_bytes(hashlib.sha256(f"{seed}\n{task.name}".encode()).digest()[:4])
    try:
        generator = library().create_dataset(task.name, seed=own_seed, size=count * _TRIES, **task.settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise SourceError(f"--tasks {task.name}: its settings are not accepted ({error}). Change them.") from None
    problems: dict[str, Problem] = {}
    for number in range(count * _TRIES):
        problem = _problem(task, generator, generator[number])
        problems.setdefault(problem.question, problem)
        if len(problems) == count:
            return list(problems.values())
    raise SourceError(f"--tasks {task.name}: found {len(problems)} different problems of {count}. Ask for fewer.")


def _problem(task: Task, generator: Any, entry: Mapping[str, Any]) -> Problem:
    """The problem of an entry, whose own answer must score the same from a file as from the library itself."""
    answer = entry["answer"]
    try:
        metadata = json.dumps(entry["metadata"])
    except (TypeError, ValueError):
        raise SourceError(f"--tasks {task.name}: its problems cannot be written as JSON. Leave it out.") from None
    stored = {"question": entry["question"], "answer": answer, "metadata": json.loads(metadata)}
    worth = score_entry(task.name, answer, stored) if isinstance(answer, str) else 0.0
    if worth <= 0 or abs(worth - generator.score_answer(answer, entry)) > 1e-6:
        raise SourceError(f"--tasks {task.name}: the answer to a problem scores 0 when read from a file. Leave it out.")
    return Problem(entry["question"], answer, metadata)


def build_rows(task: Task, sizes: Mapping[str, int], examples: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Rows of each file, by its name; the worked examples are in none of them.

    Args:
        task: Task to draw from.
        sizes: Problems per file.
        examples: Worked examples before every question.
        seed: Same seed, same rows.

    Raises:
        TaskError: As in `draw_problems`.
        SourceError: As in `draw_problems`.
    """
    problems = iter(draw_problems(task, examples + sum(sizes.values()), seed))
    turns = [turn for _ in range(examples) for turn in next(problems).turns]
    return {
        split: [_row(task.name, next(problems), turns, number, split) for number in range(size)]
        for split, size in sizes.items()
    }


def _row(task: str, problem: Problem, turns: Sequence[Mapping[str, str]], number: int, split: str) -> dict[str, Any]:
    content = problem.question if turns else f"{problem.question}\n{INSTRUCTION}"
    return make_row(
        f"{PREFIX}{task}",
        [*turns, {"role": "user", "content": content}],
        problem.answer,
        index=f"{task}_{split}/{number}",
        split=split,
        ability="reasoning",
        extra_info={"task": task, "question": problem.question, "metadata": problem.metadata},
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Write train.parquet and val.parquet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the parquet files")
    parser.add_argument("--tasks", required=True, nargs="+", metavar="TASK", help="NAME or NAME:KEY=VALUE,KEY=VALUE")
    parser.add_argument("--size", type=int, default=500, help="problems per task in train.parquet (500)")
    parser.add_argument("--val_size", type=int, default=100, help="problems per task in val.parquet (100)")
    parser.add_argument("--examples", type=int, default=3, help="worked examples before a question (3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws")
    args = parser.parse_args(argv)
    if min(args.size, args.val_size) < 1 or args.examples < 0:
        parser.error(f"--size and --val_size must be at least 1, got {args.size} and {args.val_size}")
    try:
        tasks = [Task.parse(text) for text in args.tasks]
    except ValueError as error:
        parser.error(str(error))
    if len({task.name for task in tasks}) < len(tasks):
        parser.error("--tasks: a task is named twice")
    with errors_in_one_line(args.local_save_dir):
        sizes = {"train": args.size, "val": args.val_size}
        made = [build_rows(task, sizes, args.examples, args.seed) for task in tasks]
        for split in sizes:
            path = args.local_save_dir / f"{split}.parquet"
            write_parquet([row for rows in made for row in rows[split]], path)
            print(f"{path}: {sizes[split]} problems of each of {', '.join(task.name for task in tasks)}")


if __name__ == "__main__":
    main()
