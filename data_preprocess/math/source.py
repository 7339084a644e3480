"""The question in a row of a mathematics data set, raw or in verl's schema."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_ext.data.math_instructions import strip_instructions
from verl_ext.data.row_source import SourceError, read_file

QUESTION_FIELDS = ("problem", "question", "prompt")


def question_of(row: Mapping[str, Any]) -> str:
    """The question of a row, raw or in verl's schema, without instructions; empty if it has none."""
    texts = (question_text(row.get(field)) for field in QUESTION_FIELDS)
    return next(filter(None, texts), "")


def question_text(value: object) -> str:
    """The question in a text, or in the last user message of a conversation; empty if there is none.

    Args:
        value: A text, or a list of messages `{role, content}`, whose content is a text or a list of parts
            `{type: "text", text}`.
    """
    if isinstance(value, list):
        messages = [message for message in value if isinstance(message, Mapping) and message.get("role") == "user"]
        value = _content_text(messages[-1].get("content")) if messages else ""
    return strip_instructions(value) if isinstance(value, str) else ""


def _content_text(content: object) -> object:
    if not isinstance(content, list):
        return content
    parts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "\n".join(part for part in parts if isinstance(part, str))


def read_questions(path: Path) -> list[str]:
    """The questions of a test file, for comparison.

    Raises:
        SourceError: If no row has a question.
    """
    questions = [question for row in read_file(path) if (question := question_of(row))]
    if not questions:
        raise SourceError(f"{path}: no row has a question. Expected one of the fields {', '.join(QUESTION_FIELDS)}.")
    return questions
