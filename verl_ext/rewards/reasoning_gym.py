r"""Reward of reasoning-gym's tasks: the score of the library's own scorer for the answer, from 0 to 1.

In a run's configuration (not needed for rows of `data_preprocess.reasoning_gym`):

    reward.custom_reward_function.path: pkg://verl_ext.rewards.reasoning_gym
    reward.custom_reward_function.name: compute_score

The answer is the content of the last `<answer>…</answer>`, the library's form; without any, the text that `math_answer`
reads: the last `\boxed{}`, or the line of "Answer:".

Some scorers run a response as Python (`eval`, or sympy's `parse_expr`, which is the same). Their tasks are refused: a
model trained on them would be rewarded for what its text does to this machine.

The package is optional: pip install reasoning-gym (Apache-2.0).
"""

import functools
import importlib
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from verl_ext.core.errors import SignalError
from verl_ext.rewards import math_answer

# Prefix of a row's data_source; the name of its task follows.
PREFIX = "reasoning_gym/"
# Their scorers run the response as Python (reasoning-gym 0.1.25).
RUNS_RESPONSES = frozenset(
    {
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)
MAX_ANSWER_CHARACTERS = 4000

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
# A solver in C without a built package: only the zebra puzzles use it, and the library imports it for all.
_SOLVER, _NEEDS_SOLVER = "pycosat", "zebra_puzzles"


class TaskError(SignalError):
    """A task that the library does not have, or that cannot be scored here."""


def judges(data_source: str) -> bool:
    """Whether rows of a data source are judged here unless a run names another reward."""
    return data_source.startswith(PREFIX)


@functools.cache
def library() -> Any:
    """The package reasoning_gym.

    Raises:
        TaskError: It is not installed.
    """
    has_solver = _has_solver()
    if not has_solver:
        sys.modules[_SOLVER] = ModuleType(_SOLVER)
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # of its imports
            return importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise TaskError(
            f"Tasks of reasoning-gym need the package, which cannot be imported ({error}): pip install reasoning-gym"
        ) from None
    finally:
        if not has_solver:
            sys.modules.pop(_SOLVER, None)


def _has_solver() -> bool:
    return importlib.util.find_spec(_SOLVER) is not None


@functools.cache
def check_task(task: str) -> None:
    """Whether responses to a task can be scored here.

    Raises:
        TaskError: The package or the task does not exist, or its scorer would run a response.
    """
    known = importlib.import_module(f"{library().__name__}.factory").DATASETS
    if task not in known:
        raise TaskError(f"reasoning-gym has no task {task!r}. It has: {', '.join(sorted(known))}.")
    if task in RUNS_RESPONSES:
        raise TaskError(
            f"reasoning-gym's scorer of {task} runs the response as Python, which is not safe. Leave it out."
        )
    if task == _NEEDS_SOLVER and not _has_solver():
        raise TaskError(f"reasoning-gym's {task} needs the package {_SOLVER}: pip install {_SOLVER}, with a C compiler")


@functools.cache
def _scorer(task: str) -> Any:
    check_task(task)
    return library().get_score_answer_fn(task)


def extract_answer(response: str) -> str:
    r"""The answer's text, without spaces at its ends; "" if there is none.

    Example:
        >>> extract_answer("<answer>3</answer> No: <answer>\n4 </answer>"), extract_answer(r"So it is \boxed{5}.")
        ('4', '5')
    """
    tagged = _ANSWER.findall(response)
    return tagged[-1].strip() if tagged else math_answer.extract_answer(response)


def score_entry(task: str, answer: str, entry: Mapping[str, Any]) -> float:
    """The library's score of an answer.

    Args:
        task: Its name in the library.
        answer: Without tags.
        entry: `question`, `answer` and `metadata`, as created by the library.

    Raises:
        TaskError: As in `check_task`.
    """
    scorer = _scorer(task)
    if not answer or len(answer) > MAX_ANSWER_CHARACTERS:
        return 0.0
    try:
        return float(scorer(answer, dict(entry)))
    # The entry was scored when the row was made, so an error of the scorer is due to the answer.
    except Exception:
        return 0.0


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Score one response.

    Args:
        data_source: `reasoning_gym/TASK`.
        solution_str: The response as text.
        ground_truth: The library's own answer.
        extra_info: `question` and `metadata` (JSON) of the row, which some scorers read.
        **kwargs: Unused; other arguments that verl passes to reward functions.

    Returns:
        `score`, the library's grade from 0 to 1; `acc`, 1.0 for the full grade, else 0.0; `pred`, the answer's text.

    Raises:
        TaskError: The package is missing, or the row is not from `data_preprocess.reasoning_gym`.
    """
    task = data_source.removeprefix(PREFIX)
    if extra_info is None or not {"question", "metadata"} <= set(extra_info):
        raise TaskError(
            f"data_source {data_source}: expected question and metadata in extra_info. Make the rows with "
            "data_preprocess.reasoning_gym."
        )
    metadata = json.loads(extra_info["metadata"])
    entry = {"question": extra_info["question"], "answer": ground_truth, "metadata": metadata}
    answer = extract_answer(solution_str)
    score = score_entry(task, answer, entry)
    return {"score": score, "acc": float(score >= 1.0), "pred": answer[:MAX_ANSWER_CHARACTERS]}
