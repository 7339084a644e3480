"""Checks that validation prompts are never trained on, and how prompts are identified. Pure.

If a sample's own prompt is in the validation set, its score only says that training on a prompt helps this prompt; the
selection would be biased.
"""

from collections.abc import Hashable, Sequence

from verl_ext.core.errors import SignalError

_SHOWN = 5


class ValidationOverlapError(SignalError):
    """Prompts of the validation gradient are trained on."""


def check_disjoint(
    train_identities: Sequence[Hashable], val_identities: Sequence[Hashable], val_texts: Sequence[str] | None = None
) -> None:
    """Reject a validation set that shares prompts with the training set.

    Args:
        train_identities: One per training prompt: `text_identity`, or (data_source, extra_info.index) where an index
            belongs to one prompt over all files.
        val_identities: One per validation prompt, of the same kind.
        val_texts: Text of each validation prompt, for the message; None: the identities are shown.

    Raises:
        ValidationOverlapError: lists the shared prompts and says what to do.
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
