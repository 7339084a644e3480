r"""The ground truth in a row of a mathematics data set: one text that a response's `\boxed{}` is compared with.

Lists are read by their entries. Several entries are one answer if the row says so (`is_multiple_answer`, as
OlympiadBench's rows do): "2, -2", which a response may give in any order. Without this field it is unknown whether they
are parts or alternatives, so the row cannot be used. Units (OlympiadBench's `unit`) are ignored: the reward compares
numbers, and `166\text{ cm}^2` is right for 166.
"""

import re
from collections.abc import Mapping
from typing import Any

from data_preprocess.math.columns import MISSING, value_at
from data_preprocess.math.text import answer_text, has_matching_braces, is_float_artefact, last_boxed
from verl_ext.data.row_report import UnusableRow

# The limit above which the reward refuses to compare (verl_ext.rewards.math_answer.MAX_ANSWER_CHARACTERS).
LONGEST_ANSWER = 1000

# OlympiadBench's answers: "$69$,$84$". Anything else with dollar signs, such as a sentence, is unchanged.
_IN_DOLLARS = re.compile(r"\$[^$]+\$(?:\s*,\s*\$[^$]+\$)*")


def read_answer(row: Mapping[str, Any], column: str) -> str:
    r"""The ground truth in any column: after the last "####", or the last `\boxed{}` of a solution, or all of the text.

    Args:
        row: Raw row.
        column: Name as in `value_at`.

    Raises:
        UnusableRow: There is no answer, or several, or it cannot be checked.
    """
    value = value_at(row, column)
    if isinstance(value, Mapping):
        raise UnusableRow(f"{column} is a record, not an answer")
    given = "" if value is MISSING else only_answer(value, row)
    if "####" in given:
        given = answer_text(given.rpartition("####")[2])
    elif "\\boxed" in given or "\\fbox" in given:
        given = answer_text(last_boxed(given))
    return checkable(given)


def only_answer(given: object, row: Mapping[str, Any]) -> str:
    """The answer in a value or in a list; empty if there is none.

    Args:
        given: A text, a number, or a list of them.
        row: With several of them, its `is_multiple_answer` says that they are one answer.

    Raises:
        UnusableRow: There are several answers.
    """
    answers = list(dict.fromkeys(text for text in map(_without_dollars, as_list(given)) if text))
    if len(answers) > 1 and str(row.get("is_multiple_answer")).casefold() != "true":
        raise UnusableRow("several answers")
    return ", ".join(answers)


def checkable(answer: str) -> str:
    """The answer.

    Raises:
        UnusableRow: It is empty, or no response could equal it.
    """
    if not answer:
        raise UnusableRow("no answer")
    if len(answer) > LONGEST_ANSWER:
        raise UnusableRow(f"answer has more than {LONGEST_ANSWER:,} characters")
    if not has_matching_braces(answer):
        raise UnusableRow("braces of the answer do not match")
    if is_float_artefact(answer):
        raise UnusableRow("answer is a rounded double")
    return answer


def as_list(value: object) -> list[object]:
    """The entries of a list, a single value as one entry, and no entries for None."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _without_dollars(answer: object) -> str:
    text = answer_text(answer)
    return text.replace("$", "") if _IN_DOLLARS.fullmatch(text) and "\\$" not in text else text
