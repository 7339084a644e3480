"""Training data of the base model of golden redaction's CPU demo: its tokenizer, and tasks with golden solutions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from data_preprocess.demo_models.arc_mistakes import Site, find_sites, replace_at
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from verl_ext.arc.order import LEVELS
from verl_ext.arc.prompts import (
    ASSISTANT_PREFIX,
    DEFAULT,
    FENCE,
    INSTRUCTION,
    PromptSettings,
    SizeLimits,
    Tokenizer,
    encode_golden,
    encode_prompt,
    golden_text,
)
from verl_ext.arc.solutions import read_solution, solution_names
from verl_ext.data.arc_tasks import Task, read_tasks
from verl_ext.data.row_source import SourceError

MIN_SITES = 6

_WHERE_FROM = (
    "ARC-AGI-1's training tasks are public (github.com/fchollet/ARC-AGI, Apache 2.0): clone that repository where "
    "there is a network, and pass its folder data/training, or one JSON file {id: {train, test}}: --input FILE"
)


class SavedTokenizer(Tokenizer, Protocol):
    """The used interface of the Hugging Face tokenizer that is trained here and saved with the model."""

    eos_token_id: Any
    pad_token_id: Any

    def __len__(self) -> int: ...

    def save_pretrained(self, save_directory: Path) -> Any: ...


@dataclass(frozen=True)
class Lesson:
    """A task, its golden solution, and both as ids.

    Attributes:
        task: The task, whose training pairs are in the prompt.
        source: Source of the golden solution.
        sites: Where copies of the source have mistakes.
        prompt_ids: Ids of the prompt with the assistant prefix.
        golden_ids: Ids of the source after the prefix.
    """

    task: Task
    source: str
    sites: tuple[Site, ...]
    prompt_ids: tuple[int, ...]
    golden_ids: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Number of tokens of prompt and golden solution together."""
        return len(self.prompt_ids) + len(self.golden_ids)


def tutorial_texts(max_sites: int) -> list[str]:
    """Texts for the tokenizer: the instruction, and every golden solution, both correct and with half its sites wrong.

    Grids are not needed: digits and the spaces between them are always separate tokens.
    """
    rng = np.random.default_rng(0)
    texts = [INSTRUCTION, ASSISTANT_PREFIX]
    for source in map(read_solution, solution_names()):
        texts += [golden_text(source), golden_text(replace_at(source, find_sites(source, max_sites), rng, 0.5))]
    return texts


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> SavedTokenizer:
    """Byte-level BPE of the texts; otherwise the arithmetic model's tokenizer.

    Its chat template gives only the contents of the messages, so that a prompt is plain text in verl and in
    `prompts.encode_prompt`.
    """
    raw = build_tokenizer()
    tokenizer = raw.train_new_from_iterator(texts, vocab_size, show_progress=False)
    tokenizer.chat_template = raw.chat_template
    return cast(SavedTokenizer, tokenizer)


def closing_ids(tokenizer: SavedTokenizer) -> list[int]:
    """The end of an answer: the fence on its own line, where a program is cut, and the end of the text."""
    return [*tokenizer(f"\n{FENCE}", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def make_lesson(
    task: Task,
    source: str,
    tokenizer: SavedTokenizer,
    max_sites: int | None = None,
    prompt: PromptSettings = DEFAULT,
) -> Lesson:
    """The lesson of a task.

    Raises:
        ValueError: The source does not have the form of a golden solution; see `prompts.encode_golden`.
    """
    return Lesson(
        task,
        source,
        tuple(find_sites(source, max_sites)),
        tuple(encode_prompt(task, tokenizer, prompt)),
        tuple(encode_golden(source, tokenizer)),
    )


def read_lessons(
    path: Path | None, tokenizer: SavedTokenizer, max_sites: int | None = None, prompt: PromptSettings = DEFAULT
) -> list[Lesson]:
    """Every task of a collection that has a golden solution, in the order of the solutions.

    Raises:
        SourceError: No collection is given, it cannot be read, or no task of it has a golden solution.
    """
    if path is None:
        raise SourceError(f"no tasks are given. {_WHERE_FROM}")
    if not path.exists():
        raise SourceError(f"{path}: no such file or folder. {_WHERE_FROM}")
    tasks = {task.id: task for task in read_tasks(path)[0]}
    names = [name for name in solution_names() if name in tasks]
    if not names:
        raise SourceError(f"{path}: no task of it has a golden solution. {_WHERE_FROM}")
    return [make_lesson(tasks[name], read_solution(name), tokenizer, max_sites, prompt) for name in names]


def choose(lessons: Iterable[Lesson], limits: SizeLimits, wanted: int | Sequence[str]) -> list[Lesson]:
    """Choose the lessons to learn.

    By number, levels of `order` take turns, for variety; each gives its smallest task first, if it is within the limits
    and has at least MIN_SITES sites.

    Args:
        lessons: Lessons to choose from.
        limits: Limits of prompt and golden tokens.
        wanted: Number of lessons, or their ids.

    Raises:
        SourceError: A named one is missing or over a limit, or there are not enough.
    """
    by_id = {lesson.task.id: lesson for lesson in lessons}
    problems = {
        name: limits.exceeded_by(lesson.task, lesson.prompt_ids, lesson.golden_ids) for name, lesson in by_id.items()
    }
    if not isinstance(wanted, int):
        for name in wanted:
            if name not in by_id:
                raise SourceError(f"{name}: no such task with a golden solution in --input. Check --tasks.")
            if problems[name]:
                raise SourceError(f"{name}: {problems[name]}. Raise --max_prompt_tokens or --max_golden_tokens.")
        return [by_id[name] for name in dict.fromkeys(wanted)]
    level_of = {name: place for place, names in enumerate(LEVELS) for name in names}
    levels: list[list[Lesson]] = [[] for _ in range(len(LEVELS) + 1)]
    for name, lesson in sorted(by_id.items(), key=lambda item: (item[1].num_tokens, item[0])):
        if problems[name] is None and len(lesson.sites) >= MIN_SITES:
            levels[level_of.get(name, len(LEVELS))].append(lesson)
    turns = [lesson for turn in zip_longest(*levels) for lesson in turn if lesson is not None]
    if not 1 <= wanted <= len(turns):
        raise SourceError(
            f"expected from 1 to {len(turns)} tasks (with a golden solution, within the limits, at least {MIN_SITES} "
            f"sites), got {wanted}. Change --num_tasks, or raise --max_prompt_tokens or --max_golden_tokens."
        )
    return turns[:wanted]
