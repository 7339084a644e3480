"""Validation prompts are never trained on: how prompts are told apart, and the check. Pure.

The score of a sample whose own prompt is in the validation set says that training on the prompt helps that prompt; the
selection would favour the samples that it should judge.
"""

import hashlib
import unicodedata
from collections.abc import Hashable, Mapping, Sequence

from verl_ext.core.errors import SignalError
from verl_ext.data.math_instructions import strip_instructions

_SHOWN = 5


class ValidationOverlapError(SignalError):
    """Prompts of the validation gradient are trained on."""


def text_identity(messages: str | Sequence[Mapping[str, str]]) -> str:
    """Hash of a prompt's text, equal for texts that differ in case, white space or compatibility forms (NFKC).

    The identity to prefer: it finds a prompt that two files have under different indices. Instructions around a
    question of mathematics (ours, verl's, DAPO's) are no part of it; any others are.

    Args:
        messages: The `prompt` column: chat messages with a `content`, or plain text.

    Returns:
        64 hexadecimal digits (SHA-256).
    """
    text = messages if isinstance(messages, str) else "\n".join(str(message["content"]) for message in messages)
    normal = " ".join(unicodedata.normalize("NFKC", strip_instructions(text)).casefold().split())
    return hashlib.sha256(normal.encode()).hexdigest()


def check_disjoint(
    train_identities: Sequence[Hashable], val_identities: Sequence[Hashable], val_texts: Sequence[str] | None = None
) -> None:
    """Refuse a validation set that shares prompts with the training set.

    Args:
        train_identities: One a training prompt: `text_identity`, or (data_source, extra_info.index) where an index
            belongs to one prompt over all files.
        val_identities: One a validation prompt, of the same kind.
        val_texts: Text of each validation prompt, for the message; None: the identities are shown.

    Raises:
        ValidationOverlapError: says how many are shared, which, and what to do.
    """
    first: dict[Hashable, int] = {}
    for position, identity in enumerate(train_identities):
        first.setdefault(identity, position)
    shared = [position for position, identity in enumerate(val_identities) if identity in first]
    if not shared:
        return
    lines = [
        f"  - validation row {position} is training row {first[val_identities[position]]}: "
        f"{str(val_texts[position] if val_texts is not None else val_identities[position])[:80]!r}"
        for position in shared[:_SHOWN]
    ]
    if len(shared) > _SHOWN:
        lines.append(f"  - and {len(shared) - _SHOWN} more")
    raise ValidationOverlapError(
        f"Validation prompts of TracIn must not be trained on, but {len(shared)} of {len(val_identities)} are:\n"
        + "\n".join(lines)
        + "\nRemove these rows from the training files or from the validation file, or set "
        "tracin.validation.strategy=in_batch, which needs no validation prompts."
    )
