"""The problems of a run: ARC tasks with their token ids, golden solutions and pairs. Pure except for reading files."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import Field

from recipe.golden_redaction.method.prompt_format import check_prompt
from verl_ext.arc.prompts import (
    DEFAULT,
    PromptSettings,
    SizeLimits,
    Tokenizer,
    encode_golden,
    encode_prompt,
    state_ids,
)
from verl_ext.arc.solutions import GOLDEN, GoldenError, read_pairs, read_solution, solution_names
from verl_ext.core.errors import ConfigError
from verl_ext.core.settings import Settings
from verl_ext.data.arc_tasks import Pair, Task, parse_task
from verl_ext.data.file_checks import check_files
from verl_ext.data.row_report import UnusableRow, reasons
from verl_ext.data.schema import DataFileError

COLUMNS = ("extra_info", "reward_model", "test_pairs")


@dataclass(frozen=True)
class Problem:
    """One task.

    Attributes:
        id: Of an ARC task, eight hexadecimal digits.
        prompt_ids: Rendered prompt with the assistant prefix.
        other_prompts: Prompts with other examples.
        golden_ids: Golden solution after the prefix; empty for a task without one.
        pairs: The examples, which the first prompt shows.
        test_pairs: Pairs that a solution is tested on; never in the prompt.
        held_out: Pairs that a rewarded program must get right besides the examples; never in a prompt.
        spare: Further pairs, which other prompts may show; in no reward.
    """

    id: str
    prompt_ids: tuple[int, ...]
    golden_ids: tuple[int, ...]
    pairs: tuple[Pair, ...] = ()
    test_pairs: tuple[Pair, ...] = ()
    held_out: tuple[Pair, ...] = ()
    spare: tuple[Pair, ...] = ()
    other_prompts: tuple[tuple[int, ...], ...] = ()

    @property
    def reward_pairs(self) -> tuple[Pair, ...]:
        """All pairs that a reward is computed from, the examples first."""
        return self.pairs + self.held_out

    @property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        """All prompts, that of the data file first."""
        return self.prompt_ids, *self.other_prompts

    def state(self, k: int, prompt: int = 0) -> list[int]:
        """Token ids of a prompt's state with k golden tokens hidden; errors as of `prompts.state_ids`."""
        return state_ids(self.prompts[prompt], self.golden_ids, k)

    def given(self, k: int) -> tuple[int, ...]:
        """The golden tokens that stay visible."""
        return self.golden_ids[: len(self.golden_ids) - k]

    def has_state(self, k: int, ids: Sequence[int] | None = None) -> bool:
        """Whether k golden tokens can be hidden and, if ids are given, whether some prompt's state has these ids."""
        return 1 <= k <= len(self.golden_ids) and (ids is None or self.prompt_of(k, ids) is not None)

    def prompt_of(self, k: int, ids: Sequence[int]) -> int | None:
        """Number of the prompt whose state with k golden tokens hidden has these ids; None: no prompt's."""
        numbers = range(len(self.prompts))
        return next((number for number in numbers if self.state(k, number) == list(ids)), None)


class RewardSettings(Settings):
    """Pairs that a program must get right besides the examples, which it could copy from the prompt."""

    test_pairs: bool = True
    """Also every test pair of the task. Do not report them as generalization for trained tasks then."""

    fresh_pairs: str | None = Field(default=None, min_length=1)
    """Also pairs of this file, made by a generator or a rule: JSON lines {id, pairs: [{input, output}]}, or .gz of it.
    Tasks that it lacks have none. null: none."""

    num_fresh: int = Field(default=4, ge=1)
    """Number of pairs per task used from that file, from the first; evaluate on others, unless golden.num_prompts shows
    them to the policy."""


def hold_out(problems: Sequence[Problem], settings: RewardSettings) -> list[Problem]:
    """Add the pairs that rewards need besides the examples to the problems, each pair once, and those left over.

    Raises:
        ConfigError: The fresh pairs cannot be read, or have none of the problems.
    """
    fresh: dict[str, list[Pair]] = {}
    if settings.fresh_pairs is not None:
        try:
            read = read_pairs([], Path(settings.fresh_pairs))
        except GoldenError as error:
            raise ConfigError(f"golden.reward.fresh_pairs: {error}") from None
        fresh = {name: list(pairs.values()) for name, pairs in read.items()}
        if not any(fresh.get(problem.id) for problem in problems):
            raise ConfigError(
                f"golden.reward.fresh_pairs={settings.fresh_pairs} has no pair of any of the {len(problems)} "
                "problem(s): give a file of these tasks, or null"
            )
    found = []
    for problem in problems:
        own = [*(problem.test_pairs if settings.test_pairs else ()), *fresh.get(problem.id, ())[: settings.num_fresh]]
        held_out = tuple(pair for pair in dict.fromkeys(own) if pair not in problem.pairs)
        known = {*problem.pairs, *problem.test_pairs, *held_out}
        spare = tuple(pair for pair in dict.fromkeys(fresh.get(problem.id, ())) if pair not in known)
        found.append(replace(problem, held_out=held_out, spare=spare))
    return found


def vary_prompts(
    problems: Sequence[Problem], count: int, tokenizer: Tokenizer, limits: SizeLimits, prompt: PromptSettings = DEFAULT
) -> list[Problem]:
    """Give problems other prompts, each with as many examples as the first, drawn from its examples and spare pairs.

    The draws depend only on the task's id and the number of the prompt.

    Args:
        problems: After `hold_out`.
        count: Maximum number of prompts per problem; there are fewer if no other choice or order of examples exists.
        tokenizer: Tokenizer of the policy.
        limits: A prompt that would be too long shows the task's own examples, in another order.
        prompt: How tasks are shown.
    """
    return [_vary(problem, count, tokenizer, limits, prompt) for problem in problems]


def _vary(problem: Problem, count: int, tokenizer: Tokenizer, limits: SizeLimits, prompt: PromptSettings) -> Problem:
    found = [problem.prompt_ids]
    for number in range(1, count):
        rng = random.Random(f"{problem.id}/{number}")
        for pool in ((*problem.pairs, *problem.spare), problem.pairs):
            shown = tuple(rng.sample(pool, len(problem.pairs)))
            ids = tuple(encode_prompt(Task(problem.id, shown, problem.test_pairs), tokenizer, prompt))
            if ids not in found and limits.exceeded_by(None, ids) is None:
                found.append(ids)
                break
    return replace(problem, other_prompts=tuple(found[1:]))


def read_problems(
    files: Sequence[str | Path],
    tokenizer: Tokenizer,
    limits: SizeLimits,
    golden_folder: Path = GOLDEN,
    needs_golden: bool = True,
    prompt: PromptSettings = DEFAULT,
) -> tuple[list[Problem], Counter[str]]:
    """The problems of parquet files that `data_preprocess.arc` wrote, from easy to hard, tasks without a golden
    solution last.

    Args:
        files: Parquet files.
        tokenizer: Tokenizer of the policy. A column `prompt_ids` must have been made with it.
        limits: Size limits; larger tasks are left out.
        golden_folder: Folder of <task>.py files.
        needs_golden: Leave out tasks without a golden solution.
        prompt: How tasks are shown; the files' prompts must have been made the same way.

    Returns:
        The problems, and how many tasks were left out for which reason ("tasks read" included).

    Raises:
        ConfigError: A file is invalid, or no problem is left.
    """
    tasks: dict[str, Task] = {}
    stored_ids: dict[str, list[int]] = {}
    for row in _read_rows(files):
        task = _task(row)
        if task.id in tasks:
            raise ConfigError(f"task {task.id} is in the files twice: give each file once")
        tasks[task.id] = task
        check_prompt(task, row, prompt)
        if row.get("prompt_ids") is not None:
            stored_ids[task.id] = row["prompt_ids"]
    counts = Counter({"tasks read": len(tasks)})
    with_golden = [name for name in solution_names(golden_folder) if name in tasks]
    problems = []
    for name in [*with_golden, *(() if needs_golden else sorted(tasks.keys() - set(with_golden)))]:
        task = tasks[name]
        reason = limits.exceeded_by(task)  # the size in cells is known, so large tasks are never tokenized
        prompt_ids, golden_ids = [], []
        if reason is None:
            prompt_ids = encode_prompt(task, tokenizer, prompt)
            if name in with_golden:
                golden_ids = _encode_golden(name, golden_folder, tokenizer)
            if stored_ids.get(name, prompt_ids) != prompt_ids:
                raise ConfigError(
                    f"the prompt_ids of task {name} were made with another tokenizer: run data_preprocess.arc again "
                    "with --tokenizer and the model of this run, or without that option"
                )
            reason = limits.exceeded_by(task, prompt_ids, golden_ids)
        if reason is not None:
            counts[reason] += 1
            continue
        problems.append(Problem(name, tuple(prompt_ids), tuple(golden_ids), task.train, task.test))
    if needs_golden and len(with_golden) < len(tasks):
        counts["no golden solution"] += len(tasks) - len(with_golden)
    if not problems:
        raise ConfigError(
            f"none of the {len(tasks)} task(s) in {', '.join(map(str, files))} can be used ({reasons(counts)}): give "
            "tasks with a file in verl_ext/arc/golden/, or raise golden.limits"
        )
    return problems, counts


def _read_rows(files: Sequence[str | Path]) -> list[dict[str, Any]]:
    try:
        for file in files:
            check_files([file])
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    except (DataFileError, OSError, ValueError) as error:
        raise ConfigError(f"data.train_files: {error}") from None
    missing = sorted({name for row in rows for name in COLUMNS if name not in row})
    if missing:
        is_worked = all("golden_solution" in row for row in rows)
        remedy = ". With worked solutions as texts, set golden.verifier=reward" if is_worked else ""
        raise ConfigError(
            f"expected parquet files of data_preprocess.arc, but {', '.join(map(str, files))} lack "
            f"{', '.join(missing)}{remedy}"
        )
    return rows


def _task(row: dict[str, Any]) -> Task:
    name = row["extra_info"].get("task_id")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"extra_info.task_id must name the task, got {name!r}: use a file of data_preprocess.arc")
    try:
        examples = json.loads(row["reward_model"]["ground_truth"])["train"]
        return parse_task(name, {"train": examples, "test": json.loads(row["test_pairs"])})
    except (KeyError, TypeError, ValueError, UnusableRow) as error:
        raise ConfigError(f"task {name} was not written by data_preprocess.arc ({error}): make it again") from None


def _encode_golden(name: str, folder: Path, tokenizer: Tokenizer) -> list[int]:
    try:
        return encode_golden(read_solution(name, folder), tokenizer)
    except ValueError as error:
        raise ConfigError(f"the golden solution of {name}: {error}") from None
