"""How prompts are told apart by their text. Pure."""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any


def text_identity(messages: str | Sequence[Mapping[str, Any]]) -> str:
    """Hash of a prompt's text, equal for texts that differ in case, white space or compatibility forms (NFKC).

    The identity to prefer: it finds a prompt that two files have under different indices. Instructions around a
    question are part of the text.

    Args:
        messages: The `prompt` column: chat messages with a `content`, or plain text.

    Returns:
        64 hexadecimal digits (SHA-256).
    """
    text = messages if isinstance(messages, str) else "\n".join(str(message["content"]) for message in messages)
    normal = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return hashlib.sha256(normal.encode()).hexdigest()
