"""Problems with a worked solution as text: GSM8K, MATH, or any data with a column `golden_solution`.

The prompt is the row's own, the golden tokens are those of the solution, and the run's reward function judges an
answer. Pure but for reading files.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from recipe.golden_redaction.method.problems import Problem
from verl_ext.arc.prompts import SizeLimits, Tokenizer, decode_answer
from verl_ext.core.errors import ConfigError
from verl_ext.data.file_checks import check_files
from verl_ext.data.row_report import reasons
from verl_ext.data.schema import DataFileError
from verl_ext.launch.preflight.verdicts import Case

COLUMN = "golden_solution"


@dataclass(frozen=True, kw_only=True)
class WorkedProblem(Problem):
    """A row.

    Attributes:
        case: The reward function's inputs besides the answer.
    """

    case: Case


@dataclass(frozen=True)
class RowFormat:
    """How a run reads its rows.

    Attributes:
        prompt_key: The prompts' column, `data.prompt_key`.
        template: Arguments of the chat template.
    """

    prompt_key: str = "prompt"
    template: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_worked(
    files: Sequence[str | Path], tokenizer: Tokenizer, limits: SizeLimits, rows: RowFormat
) -> tuple[list[WorkedProblem], Counter[str]]:
    """The problems of parquet files in verl's schema, those with the shortest solutions first.

    Args:
        files: With the column `golden_solution`. A row without a solution is left out.
        tokenizer: The policy's.
        limits: Larger problems are left out.
        rows: How the run reads its rows.

    Returns:
        The problems, and how many rows were left out for which reason ("rows read" included).

    Raises:
        ConfigError: A file is not what it should be, or no problem is left.
    """
    counts: Counter[str] = Counter()
    problems: dict[str, WorkedProblem] = {}
    for row, where in _read(files):
        counts["rows read"] += 1
        solution = (row[COLUMN] or "").strip()
        if not solution:
            counts["no golden solution"] += 1
            continue
        problem = _problem(row, solution, where, tokenizer, rows)
        if problem.id in problems:
            raise ConfigError(f"extra_info.index={problem.id} is in the files twice: give each file once")
        reason = limits.exceeded_by(None, problem.prompt_ids, problem.golden_ids)
        if reason is None:
            problems[problem.id] = problem
        else:
            counts[reason] += 1
    if not problems:
        raise ConfigError(
            f"none of the {counts['rows read']} row(s) in {', '.join(map(str, files))} can be used "
            f"({reasons(counts)}): give rows with a golden_solution, or raise golden.limits"
        )
    return sorted(problems.values(), key=lambda problem: len(problem.golden_ids)), counts


def _read(files: Sequence[str | Path]) -> Iterator[tuple[dict[str, Any], str]]:
    try:
        check_files(files)
        for file in files:
            for number, row in enumerate(pq.read_table(file).to_pylist()):
                if COLUMN not in row:
                    raise ConfigError(
                        f"golden.verifier=reward needs the column {COLUMN}, and {file} has none: run "
                        "`data_preprocess.gsm8k --solutions` or math_train's, or add the column to your file"
                    )
                yield row, f"{file}, row {number}"
    except (DataFileError, OSError, ValueError) as error:
        raise ConfigError(f"data.train_files: {error}") from None


def _problem(row: dict[str, Any], solution: str, where: str, tokenizer: Tokenizer, rows: RowFormat) -> WorkedProblem:
    extra_info = row.get("extra_info") or {}
    index = extra_info.get("index")
    if index is None:
        raise ConfigError(f"{where}: extra_info.index must identify the problem, and there is none")
    golden_ids = list(tokenizer(solution, add_special_tokens=False)["input_ids"])
    if decode_answer(golden_ids, tokenizer) != solution:
        raise ConfigError(
            f"{where}: the tokenizer does not give the solution's text back, {solution[:40]!r} becomes "
            f"{decode_answer(golden_ids, tokenizer)[:40]!r}: use another tokenizer, or change the text"
        )
    return WorkedProblem(
        id=str(index),
        prompt_ids=tuple(_encode_prompt(row[rows.prompt_key], tokenizer, rows.template)),
        golden_ids=tuple(golden_ids),
        case=Case(row["data_source"], row["reward_model"]["ground_truth"], extra_info, where),
    )


def _encode_prompt(
    messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer, template: Mapping[str, Any]
) -> list[int]:
    """Ids of the messages with the assistant's turn opened; thinking is switched off where a template can do so."""
    own = str(template.get("chat_template") or tokenizer.chat_template)
    switch = {"enable_thinking": False} if "enable_thinking" in own else {}
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **{**switch, **template})
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def check_solutions(problems: Sequence[WorkedProblem], passes: Sequence[bool], tokenizer: Tokenizer) -> None:
    """The golden solutions must pass, or no rollout from a state is ever rewarded for following them.

    Args:
        problems: Tried problems.
        passes: Whether the reward function calls each one's golden solution right.
        tokenizer: The policy's.

    Raises:
        ConfigError: A golden solution does not pass.
    """
    wrong = [problem for problem, right in zip(problems, passes, strict=True) if not right]
    if wrong:
        first = wrong[0]
        text = decode_answer(first.golden_ids, tokenizer)
        raise ConfigError(
            f"the reward function calls {len(wrong)} of {len(problems)} golden solutions wrong, such as that of "
            f"{first.case.where}, which ends in {text[-60:]!r} where the ground truth is "
            f"{first.case.ground_truth!r}: a golden solution must end as answers are read"
        )
