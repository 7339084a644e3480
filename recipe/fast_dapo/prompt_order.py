"""Which row of the data a checkpoint's row is now: its predictor knows prompts by their position. Pure."""

import base64
import hashlib
from collections.abc import Iterable

import numpy as np


def fingerprints(indices: Iterable[int | str]) -> np.ndarray:
    """(P,) uint64, a hash of each prompt's lasting identity; 7 and "7" count as the same."""
    digests = b"".join(hashlib.sha256(str(index).encode()).digest()[:8] for index in indices)
    return np.frombuffer(digests, dtype="<u8")


def pack(fingerprints_P: np.ndarray) -> str:
    """For a checkpoint, 11 bytes per prompt."""
    return base64.b64encode(fingerprints_P.tobytes()).decode("ascii")


def order_since(packed: str, fingerprints_P: np.ndarray) -> np.ndarray:
    """(P,) int64, where each of today's prompts was in the data of a checkpoint.

    Args:
        packed: What `pack` gave.
        fingerprints_P: Of today's prompts.

    Raises:
        ValueError: If the data then had other prompts.
    """
    saved = np.frombuffer(base64.b64decode(packed), dtype="<u8")
    by_value = np.argsort(saved, kind="stable")
    places = np.searchsorted(saved[by_value], fingerprints_P).clip(max=max(0, len(saved) - 1))
    order = by_value[places] if len(saved) else places
    if len(saved) != len(fingerprints_P) or not np.array_equal(saved[order], fingerprints_P):
        same = len(np.intersect1d(saved, fingerprints_P))
        raise ValueError(
            f"data.train_files: {same:,} of its {len(fingerprints_P):,} prompts are among the {len(saved):,} of the "
            "checkpoint, whose predictor knows those. Resume with the same prompts, or start a new run."
        )
    return order
