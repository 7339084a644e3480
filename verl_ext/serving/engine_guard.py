"""Catches a rollout engine that serves other weights than the actor trains.

verl compares the probabilities that the engine reported with those the actor computes, but samples that waited in a
buffer come from older weights and differ rightly. The guard looks only at the tokens that the current weights
generated: there any difference beyond rounding means that the weight synchronisation did not reach the engine.
"""

from collections.abc import Sequence
from typing import Any

from verl import DataProto
from verl.utils.debug.metrics import calculate_debug_metrics

from verl_ext.core.errors import StaleEngineError
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta


def check_engine(batch: KVBatchMeta, current_version: int, max_probs_diff: float) -> dict[str, float]:
    """Compare engine and actor on the batch's fresh rows.

    Args:
        batch: rows that hold `rollout_log_probs` and `old_log_probs`, tagged with `min_global_steps`.
        current_version: weight version that the engine should serve.
        max_probs_diff: largest mean |p_rollout - p_actor| that counts as equal.

    Returns:
        Metrics `engine_guard/*`; without fresh rows only their number, 0.

    Raises:
        StaleEngineError: the difference exceeds `max_probs_diff`.
    """
    keys = _fresh_keys(batch.keys, batch.tags, current_version)
    if not keys:
        return {"engine_guard/fresh_rollouts": 0.0}
    fields = ["response_mask", "responses", "rollout_log_probs", "old_log_probs"]
    data = data_plane.read(keys, batch.partition_id, fields)
    debug = calculate_debug_metrics(DataProto(batch=data.to_padded_tensor()))
    metrics = {
        "engine_guard/fresh_rollouts": float(len(keys)),
        "engine_guard/probs_diff_mean": float(debug["training/rollout_probs_diff_mean"]),
        "engine_guard/probs_diff_max": float(debug["training/rollout_probs_diff_max"]),
        "engine_guard/pearson_corr": float(debug["training/rollout_actor_probs_pearson_corr"]),
    }
    if metrics["engine_guard/probs_diff_mean"] > max_probs_diff:
        raise StaleEngineError(
            f"The rollout engine serves other weights than the actor trains: over {len(keys)} rollouts of weight "
            f"version {current_version} the probabilities of engine and actor differ by "
            f"{metrics['engine_guard/probs_diff_mean']:.2g} on average (allowed: {max_probs_diff:g}), correlation "
            f"{metrics['engine_guard/pearson_corr']:.3f}. The weight synchronisation did not reach the engine, or both "
            "compute in different precision: raise engine_guard.max_probs_diff if the latter is intended."
        )
    return metrics


def _fresh_keys(keys: Sequence[str], tags: Sequence[dict[str, Any]], current_version: int) -> list[str]:
    return [
        key
        for key, tag in zip(keys, tags, strict=True)
        if not tag.get("is_padding", False) and tag.get("min_global_steps") == current_version
    ]
