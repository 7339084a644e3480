"""How many prompts of each age the next batch must take so that none gets too old: earliest deadline first. Pure.

A prompt whose oldest sample is of weight version v is trained on under version v + S at the latest, where S is
`max_staleness`. K batches of M prompts are taken under every version, and L are left under the current one, c. So
prompts of version v or older can still be trained on in

    batches(v) = L + K (v + S - c)

batches, the next one included. If more prompts of these versions are live than the M (batches(v) - 1) that fit into the
later batches, the rest must be in the next batch (`required`), or some will get too old. If every batch does this and
no more prompts are admitted than fit (`capacity`), all are trained on in time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

# Floating-point tolerance for sums of shares.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Deadlines:
    """The batches to come.

    Attributes:
        batch_size: M, prompts per batch.
        batches_per_version: K.
        batches_left: L, under the current version.
        version: c, the current weights'.
        max_staleness: S.
    """

    batch_size: int
    batches_per_version: int
    batches_left: int
    version: int
    max_staleness: int

    @property
    def capacity(self) -> int:
        """Prompts that fit into the batches which rollouts generated now may still join."""
        return self.batch_size * self._batches(self.version)

    def required(self, live: Mapping[int, float]) -> dict[int, int]:
        """Prompts of each version or older that the next batch must take, from the oldest version up.

        Args:
            live: By version, how many prompts wait for a batch or are expected to.

        Returns:
            At most M each; what cannot be trained on in time is not waited for.
        """
        required: dict[int, int] = {}
        total = 0.0
        for version in sorted(live):
            total += live[version]
            later = self.batch_size * max(0, self._batches(version) - 1)
            required[version] = min(self.batch_size, max(0, math.ceil(total - later - _ROUNDING)))
        return required

    def _batches(self, version: int) -> int:
        return self.batches_left + self.batches_per_version * (version + self.max_staleness - self.version)
