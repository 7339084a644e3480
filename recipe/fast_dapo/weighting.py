"""The Horvitz-Thompson correction of the curriculum as a selector; `curriculum/correction.py` has the theory."""

from typing import Any

import numpy as np

from recipe.fast_dapo.collector import Curriculum
from recipe.fast_dapo.curriculum.correction import clip_weights, horvitz_thompson_weight
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.rollout_key import uid_of
from verl_ext.trainer.parts import Selector


class HorvitzThompson(Selector):
    """Multiplies the advantages of each group by 1 / P(kept | passes), before any other selector sees them.

    Args:
        curriculum: The curriculum, which has the groups of the step.
    """

    def __init__(self, curriculum: Curriculum) -> None:
        self._curriculum = curriculum

    def select(self, batch: KVBatchMeta) -> KVBatchMeta:
        weights, _ = self._weights()
        of_group = {group.prompt.uid: weight for group, weight in zip(self._curriculum.groups, weights, strict=True)}
        rows = data_plane.read(batch.keys, batch.partition_id, ["advantages"])["advantages"].unbind()
        # Padding rows belong to no group.
        of_row = [float(of_group.get(uid_of(key), 1.0)) for key in batch.keys]
        weighted = [row * weight for row, weight in zip(rows, of_row, strict=True)]
        data_plane.write(batch.keys, batch.partition_id, data_plane.as_columns({"advantages": weighted}))
        return batch

    def metrics(self) -> dict[str, Any]:
        weights, clipped_share = self._weights()
        return {
            "curriculum/correction_weight/mean": float(weights.mean()),
            "curriculum/correction_weight/max": float(weights.max()),
            "curriculum/correction_weight/clipped_share": clipped_share,
        }

    def _weights(self) -> tuple[np.ndarray, float]:
        """Weights of the step's groups, and the share that was clipped."""
        exact = [
            horvitz_thompson_weight(g.num_passes, len(g.samples), g.plan.max_fails, g.plan.max_passes)
            for g in self._curriculum.groups
        ]
        return clip_weights(np.array(exact), self._curriculum.settings.correction_clip)
