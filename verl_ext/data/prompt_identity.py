"""Identifies prompts by their text. Pure."""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.data.math_instructions import strip_instructions


def text_identity(messages: str | Sequence[Mapping[str, Any]]) -> str:
    """Hash of a prompt's text, equal for texts that differ in case, white space or compatibility forms (NFKC).

    The preferred identity: it recognises a prompt that two files have under different indices. Instructions around a
    mathematics question (ours, verl's, DAPO's) are not part of it; any others are.

    Args:
        messages: The `prompt` column: chat messages with a `content`, or plain text.

    Returns:
        64 hexadecimal digits (SHA-256).
    """
    text = messages if isinstance(messages, str) else "\n".join(str(message["content"]) for message in messages)
    normal = " ".join(unicodedata.normalize("NFKC", strip_instructions(text)).casefold().split())
    return hashlib.sha256(normal.encode()).hexdigest()
