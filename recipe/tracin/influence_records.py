"""influence.jsonl: the scores of every sample of a run, and the texts of those that tell most."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recipe.tracin.run_files import INFLUENCE
from verl_ext.core.json_lines import JsonLines
from verl_ext.serving import data_plane
from verl_ext.trainer.parts import Trainer


class InfluenceRecords:
    """Writes them.

    Args:
        trainer: Whose run it is.
        num_texts: How many samples of each kind of `telling` have their texts kept per step.

    Attributes:
        lines: The file.
    """

    def __init__(self, trainer: Trainer, num_texts: int) -> None:
        self._trainer, self._num_texts = trainer, num_texts
        self.lines = JsonLines(trainer.run_folder.path / INFLUENCE)

    def write(
        self,
        partition_id: str,
        keys: Sequence[str],
        tags: Sequence[dict[str, Any]],
        *,
        rewards: np.ndarray,
        scores: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        """Add the B samples of an update.

        Args:
            partition_id: Of the data plane.
            keys: (B,) names of the samples there, with their `tags`.
            rewards: (B,) float.
            scores: (B,) float64.
            weights: (B,) float, of the selection.
        """
        rows = data_plane.read(keys, partition_id, ["index", "advantages", "response_mask"])
        pairs = zip(rows["advantages"].unbind(), rows["response_mask"].unbind(), strict=True)
        # Advantage of the tokens that the model wrote: tool tokens have none.
        advantages = [float((row * mask).sum() / mask.sum().clamp(min=1)) for row, mask in pairs]
        columns = zip(keys, list(rows["index"]), rewards, advantages, scores, weights, tags, strict=True)
        texts = self._texts(partition_id, [keys[place] for place in telling(scores, rewards, self._num_texts)])
        self.lines.append(
            {
                "step": self._trainer.global_steps,
                "index": index,
                "key": key,
                "reward": float(reward),
                "advantage": advantage,
                "score": float(score),
                "weight": float(weight),
                # Of the weights that generated its first and its last token.
                "versions": [tag.get("min_global_steps"), tag.get("max_global_steps")],
            }
            | texts.get(key, {})
            for key, index, reward, advantage, score, weight, tag in columns
        )

    def _texts(self, partition_id: str, keys: Sequence[str]) -> dict[str, dict[str, str]]:
        """Prompt and response of samples, by key."""
        if not keys:
            return {}
        rows = data_plane.read(keys, partition_id, ["prompts", "responses"])
        columns = {name.removesuffix("s"): rows[name].unbind() for name in ("prompts", "responses")}
        decode = self._trainer.tokenizer.decode
        return {
            key: {name: decode(column[row].tolist(), skip_special_tokens=True) for name, column in columns.items()}
            for row, key in enumerate(keys)
        }


def telling(scores: np.ndarray, rewards: np.ndarray, count: int) -> list[int]:
    """Positions of the samples that tell most: `count` at each end of the scores, and where scores and rewards disagree
    most (the highest scores of the lowest reward and vice versa)."""
    count, order = min(count, len(scores)), np.argsort(scores, kind="stable")
    ends = [*order[:count], *order[len(order) - count :]]
    if len(set(rewards)) > 1:
        failed, passed = order[rewards[order] == rewards.min()], order[rewards[order] == rewards.max()]
        ends += [*failed[max(0, len(failed) - count) :], *passed[:count]]
    return list(dict.fromkeys(map(int, ends)))
