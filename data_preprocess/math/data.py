"""Shared code of the mathematics scripts: converts raw rows to parquet files in verl's schema, with a report.

    python -m data_preprocess.gsm8k --local_save_dir outputs/data/math                       # from the hub
    python -m data_preprocess.dapo_math_17k --input dapo.jsonl.gz --local_save_dir outputs/data/math \\
        --exclude_overlap outputs/data/math/math500.parquet outputs/data/math/amc23.parquet

Rows without a usable question and answer are dropped; training sets also lose repeats of a question, and all copies of
a question with contradictory answers. Test sets are otherwise complete, so that results are comparable with published
ones. Files are named after the data set, so all of them can be in one folder. All have the same schema (verl can
train on several together): `extra_info` has `index` ("gsm8k/17": the row's number in its input, from 0; a test split
of a training set says "gsm8k_test/17"), `split`, and, as text, empty if unknown, `difficulty` and `subject`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_preprocess.math.answer import as_list, checkable, only_answer
from data_preprocess.math.source import question_of
from data_preprocess.math.text import (
    answer_text,
    integer_text,
    last_boxed,
    same_text_key,
    with_instruction,
)
from verl_ext.data.math_instructions import INSTRUCTION
from verl_ext.data.row_report import UnusableRow, require_unicode
from verl_ext.data.row_source import HubSource
from verl_ext.data.schema import make_row
from verl_ext.rewards.math_answer import compute_score

REPEATED = "repeat of an earlier question"
CONFLICT = "copies of it have different answers"
NOT_DRAWN = "not drawn (--max_rows)"


@dataclass(frozen=True)
class MathProblem:
    """A problem.

    Attributes:
        question: The question without any instruction.
        answer: The ground truth.
        difficulty: The data set's grade ("1" to "5" in MATH); empty if there is none.
        subject: "Algebra" …; empty if unknown.
        solution: A worked solution that ends in the answer, as answers are read; empty if the row has none.
    """

    question: str
    answer: str
    difficulty: str = ""
    subject: str = ""
    solution: str = ""


@dataclass(frozen=True)
class Entry:
    """A problem with its `extra_info.index` and the key that identifies its copies."""

    index: str
    problem: MathProblem
    key: str


def read_problem(row: Mapping[str, Any]) -> MathProblem:
    r"""The problem of a row with common field names.

    The answer is `answer`, `expected_answer`, `final_answer` (OlympiadBench) or `reward_model.ground_truth`; if these
    are empty or missing, it is the last `\boxed{}` of `solution`. `data_preprocess.math.answer` reads lists.

    Raises:
        UnusableRow: It has no question or no answer, or several, or an answer that cannot be checked.
    """
    question = question_of(row)
    if not question:
        raise UnusableRow("no question")
    rule = row.get("reward_model")
    given = [
        row.get("answer"),
        row.get("expected_answer"),
        row.get("final_answer"),
        rule.get("ground_truth") if isinstance(rule, Mapping) else None,
    ]
    solution = "\n".join(map(str, as_list(row.get("solution"))))
    answers = (only_answer(value, row) for value in given)
    answer = checkable(next(filter(None, answers), "") or answer_text(last_boxed(solution)))
    difficulty = row.get("difficulty", row.get("level"))
    subject = row.get("subject", row.get("type"))
    return MathProblem(
        question,
        answer,
        answer_text(difficulty).removeprefix("Level "),
        answer_text(subject),
        solution.strip() if last_boxed(solution) else "",
    )


def read_integer_problem(row: Mapping[str, Any]) -> MathProblem:
    """Same as `read_problem`, for contests whose answers are integers: "025" and 25.0 become "25".

    Raises:
        UnusableRow: As in `read_problem`.
    """
    problem = read_problem(row)
    return replace(problem, answer=integer_text(problem.answer))


@dataclass(frozen=True)
class WorkedExample:
    """A question with an answer in the form expected of the model; both without instructions."""

    question: str
    answer: str

    @property
    def turns(self) -> list[dict[str, str]]:
        """The two chat messages."""
        return [{"role": "user", "content": self.question}, {"role": "assistant", "content": self.answer}]


@dataclass(frozen=True)
class MathSet:
    """A data set.

    Attributes:
        name: The name of the file, and the `data_source`.
        hub: Where each split is on the hub; the splits are "train" and "test".
        read: Returns the problem of a raw row; raises `UnusableRow`.
        held_out: Name and size of a test set drawn from the training rows; None: no such set.
        validation: Name and size of a file with some of `held_out`'s questions; None: no such file.
        data_source: None: the name.
        instruction: Text of the user message after the question; may be empty.
        columns: The option and the name of each column that some row must have.
        examples: Worked examples before each question as turns of the chat; the question then has no instruction.
        has_solutions: Whether rows have worked solutions.
        with_solutions: Write them as column `golden_solution`; rows without one are left out.
    """

    name: str
    hub: Mapping[str, HubSource]
    read: Callable[[Mapping[str, Any]], MathProblem] = read_problem
    held_out: tuple[str, int] | None = None
    validation: tuple[str, int] | None = None
    data_source: str | None = None
    instruction: str = INSTRUCTION
    columns: Sequence[tuple[str, str]] = ()
    examples: Sequence[WorkedExample] = ()
    has_solutions: bool = False
    with_solutions: bool = False

    def prompt(self, question: str) -> list[dict[str, str]]:
        """The messages of a row."""
        turns = [turn for example in self.examples for turn in example.turns]
        content = with_instruction(question, "" if self.examples else self.instruction)
        return [*turns, {"role": "user", "content": content}]

    def file_name(self, split: str) -> str:
        """Name of a split's file, without its suffix."""
        return f"{self.name}_test" if split == "test" and "train" in self.hub else self.name


def collect(dataset: MathSet, split: str, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Entry], Counter[str]]:
    """The usable problems of a split in the order of the rows, and the number of dropped rows by reason.

    The counts include "rows read".
    """
    counts: Counter[str] = Counter()
    entries: dict[str, Entry] = {}
    copies: Counter[str] = Counter()
    in_conflict: set[str] = set()
    for number, row in enumerate(rows):
        counts["rows read"] += 1
        try:
            problem = dataset.read(row)
            require_unicode(problem.question, problem.answer, problem.difficulty, problem.subject, problem.solution)
            if dataset.with_solutions:
                _check_solution(problem)
        except UnusableRow as reason:
            counts[str(reason)] += 1
            continue
        key = same_text_key(problem.question)
        # Test sets are not deduplicated: the row's number makes their keys unique.
        identity = key if split == "train" else str(number)
        copies[identity] += 1
        first = entries.setdefault(identity, Entry(f"{dataset.file_name(split)}/{number}", problem, key))
        if same_text_key(first.problem.answer) != same_text_key(problem.answer):
            in_conflict.add(identity)
    for identity in in_conflict:
        del entries[identity]
        counts[CONFLICT] += copies[identity]
    repeats = sum(copies[identity] - 1 for identity in entries)
    if repeats:
        counts[REPEATED] = repeats
    return list(entries.values()), counts


def _check_solution(problem: MathProblem) -> None:
    """A golden solution that the reward calls wrong would never be rewarded.

    Raises:
        UnusableRow: The problem has no solution, or one with another answer.
    """
    if not problem.solution:
        raise UnusableRow("no worked solution")
    if not compute_score("", problem.solution, problem.answer)["acc"]:
        raise UnusableRow("its worked solution has another answer")


def to_rows(dataset: MathSet, split: str, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Rows of verl's schema."""
    return [
        make_row(
            dataset.data_source or dataset.name,
            dataset.prompt(entry.problem.question),
            entry.problem.answer,
            index=entry.index,
            split=split,
            ability="math",
            extra_info={"difficulty": entry.problem.difficulty, "subject": entry.problem.subject},
            **({"golden_solution": entry.problem.solution} if dataset.with_solutions else {}),
        )
        for entry in entries
    ]
