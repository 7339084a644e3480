"""Maps rows of a checkpoint's data to today's rows: its predictor knows prompts by their position. Pure."""

import base64
import hashlib
from collections.abc import Iterable

import numpy as np


def fingerprints(indices: Iterable[int | str]) -> np.ndarray:
    """(P,) uint64, a hash of each prompt's lasting identity; 7 and "7" count as the same."""
    digests = b"".join(hashlib.sha256(str(index).encode()).digest()[:8] for index in indices)
    return np.frombuffer(digests, dtype="<u8")


def pack(fingerprints_P: np.ndarray) -> str:
    """Pack for a checkpoint, 11 bytes per prompt."""
    return base64.b64encode(fingerprints_P.tobytes()).decode("ascii")


def order_since(packed: str, fingerprints_P: np.ndarray) -> np.ndarray:
    """(P,) int64, the position of each of today's prompts in the checkpoint's data.

    Args:
        packed: What `pack` returned.
        fingerprints_P: Fingerprints of today's prompts.

    Raises:
        ValueError: If the checkpoint's data had other prompts.
    """
    saved = np.frombuffer(base64.b64decode(packed), dtype="<u8")
    by_value = np.argsort(saved, kind="stable")
    places = np.searchsorted(saved[by_value], fingerprints_P).clip(max=max(0, len(saved) - 1))
    order = by_value[places] if len(saved) else places
    if len(saved) != len(fingerprints_P) or not np.array_equal(saved[order], fingerprints_P):
        same = len(np.intersect1d(saved, fingerprints_P))
        raise ValueError(
            f"data.train_files: {same:,} of its {len(fingerprints_P):,} prompts are among the {len(saved):,} of the "
            "checkpoint, whose predictor needs the same prompts. Resume with them, or start a new run."
        )
    return order
