"""Rounds float32 weights to bfloat16 so that updates far below its resolution still change the served weights. Pure
torch.

A published checkpoint is in bfloat16: rounded to nearest, a weight stays the same in serving until updates have added
up to half a step of bfloat16, 0.2 to 0.4 % of the weight. Here a weight between two bfloat16 numbers is rounded to the
larger in magnitude if its position between them, from 0 to 1, passes a threshold:

    served = lower + (upper - lower) * [place + threshold >= 1],        threshold uniform on [0, 1)

so averaged over thresholds, the served weight equals the weight, and its change equals the update. A weight
representable in bfloat16 is served unchanged.

Each weight always has the same threshold: a hash of its tensor's name and of its index in the full tensor. All ranks
and replicas, any sharding, a resumed run and any device serve the same bits, and nothing is stored. Between two updates
only weights that pass their threshold change, while new thresholds would also change weights that no update has touched
(docs/benchmarks.md).
"""

import hashlib
from collections.abc import Iterable, Iterator

import torch

# Elements per pass, with temporaries of 4 bytes each.
_CHUNK = 1 << 20
_BITS_DROPPED = 16


def rounded(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Full tensors by name as served: float32 through `round_to_bfloat16`, others unchanged.

    Only one tensor is in memory at a time.
    """
    for name, weight in weights:
        yield name, round_to_bfloat16(weight, name) if weight.dtype == torch.float32 else weight


def round_to_bfloat16(values: torch.Tensor, name: str, seed: int = 0) -> torch.Tensor:
    """`values` in bfloat16, rounded by the thresholds of the tensor `name`.

    Args:
        values: float32, any shape, any device, but the full tensor: a shard would have other indices. It is not
            changed.
        name: Name of the tensor.
        seed: Determines the thresholds.

    Returns:
        Rounded values of the same shape and device. Infinities and NaN stay; values beyond the largest bfloat16 number
        become infinities.

    Raises:
        TypeError: `values` is not float32.
    """
    if values.dtype != torch.float32:
        raise TypeError(f"expected float32 values of {name} to round, got {values.dtype}")
    flat = values.detach().reshape(-1)
    result = torch.empty(flat.shape, dtype=torch.bfloat16, device=flat.device)
    stride, offset = _keys(name, seed)
    counters = torch.arange(min(_CHUNK, flat.numel()), dtype=torch.int32, device=flat.device).mul_(stride)
    for start in range(0, flat.numel(), _CHUNK):
        part = flat[start : start + _CHUNK]
        # The dropped bits are the position between the neighbours: position plus threshold carries, or does not.
        bits = _hashed(counters[: part.numel()] + _as_int32(offset + start * stride)).add_(part.view(torch.int32))
        found = bits.bitwise_and_(-(1 << _BITS_DROPPED)).view(torch.float32)
        # Infinities and NaN have all exponent bits set, which a carry would change.
        result[start : start + _CHUNK] = torch.where(part.isfinite(), found, part)
    return result.view(values.shape)


def _keys(name: str, seed: int) -> tuple[int, int]:
    """A tensor's odd stride and offset, as int32, which make its counters differ from those of other tensors."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big", signed=True) | 1, int.from_bytes(digest[4:8], "big", signed=True)


def _as_int32(number: int) -> int:
    """The value wrapped to int32."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _hashed(state: torch.Tensor) -> torch.Tensor:
    """The upper half of a hash of int32 counters, 0 to 65,535; `state` is changed.

    Wellons' lowbias32 (https://nullprogram.com/blog/2018/07/31/), without its last step, which only changes the lower
    half. int32 wraps around, and its shifts copy the sign, which the masks remove.
    """
    state ^= (state >> 16).bitwise_and_(0xFFFF)
    state *= 0x7FEB352D
    state ^= (state >> 15).bitwise_and_(0x1FFFF)
    state *= _as_int32(0x846CA68B)
    return (state >> _BITS_DROPPED).bitwise_and_(0xFFFF)
