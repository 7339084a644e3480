"""The question in a row of a mathematics data set, raw or in verl's schema."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_preprocess.math.text import strip_instructions
from verl_ext.data.row_source import SourceError, read_file

QUESTION_FIELDS = ("problem", "question", "prompt")


def question_of(row: Mapping[str, Any]) -> str:
    """The question of a row, raw or in verl's schema, without instructions; empty if it has none."""
    for field in QUESTION_FIELDS:
        value = row.get(field)
        if isinstance(value, str) and value.strip():
            return strip_instructions(value)
        if isinstance(value, list):
            users = [message["content"] for message in value if message.get("role") == "user"]
            return strip_instructions(users[-1]) if users and users[-1] else ""
    return ""


def read_questions(path: Path) -> list[str]:
    """The questions of a test file, for comparison.

    Raises:
        SourceError: If no row has a question.
    """
    questions = [question for row in read_file(path) if (question := question_of(row))]
    if not questions:
        raise SourceError(f"{path}: no row has a question. Expected one of the fields {', '.join(QUESTION_FIELDS)}.")
    return questions
