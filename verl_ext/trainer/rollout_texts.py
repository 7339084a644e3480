"""Keeps the texts of a few rollouts of every step, to see what the policy writes."""

from typing import Any

from verl_ext.core.json_lines import JsonLines
from verl_ext.run.rollout_texts import ROLLOUTS, best_and_worst, draw_prompts, fit, read_rollout_texts
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.rollout_key import session_key, uid_of
from verl_ext.trainer.parts import Observer, Trainer


class RolloutRecorder(Observer):
    """Writes the best and the worst rollout of some prompts, before selectors remove rollouts from the batch.

    Attributes:
        records: The file.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.settings = read_rollout_texts(trainer.config)
        self.records = JsonLines(trainer.run_folder.path / ROLLOUTS)
        self._found: list[dict[str, Any]] = []

    def set_up_workers(self) -> None:
        if self._trainer.global_steps == 0:  # from a run that ended before its first checkpoint
            self.records.cut_back_to(0)

    def before_advantages(self, batch: KVBatchMeta) -> None:
        if self._trainer.local_trigger_step > 0:  # a further update of the same step
            return
        groups: dict[str, dict[str, str]] = {}
        for key, tag in zip(batch.keys, batch.tags, strict=True):
            if not tag.get("is_padding", False):
                # The last of several outputs of a rollout.
                groups.setdefault(uid_of(key), {})[session_key(key)] = key
        rollouts = {uid: list(keys.values()) for uid, keys in groups.items()}
        drawn = draw_prompts(rollouts, self.settings.prompts_per_step, self._trainer.global_steps)
        room = int(1000 * self.settings.max_kb_per_step) // max(1, 2 * len(drawn))
        self._found = [record for uid in drawn for record in self._records(rollouts[uid], batch.partition_id, room)]

    def observe(self, batch: KVBatchMeta) -> None:
        if self._found:
            self.records.append(self._found)
        self._found = []

    def _records(self, keys: list[str], partition: str, room: int) -> list[dict[str, Any]]:
        """The records of one prompt."""
        scores = data_plane.read(keys, partition, ["rm_scores"])["rm_scores"]
        rewards = [float(row.sum()) for row in scores.unbind()]
        chosen = best_and_worst(rewards)
        rows = data_plane.read([keys[place] for place in chosen], partition)
        prompts, responses = (list(rows[name].unbind()) for name in ("prompts", "responses"))
        found = []
        for row, place in enumerate(chosen):
            prompt, response = fit(self._text(prompts[row]), self._text(responses[row]), room)
            found.append(
                {
                    "step": self._trainer.global_steps,
                    "index": self._value(rows, "index", row),
                    "data_source": self._value(rows, "data_source", row),
                    "ground_truth": _ground_truth(self._value(rows, "reward_model", row)),
                    "prompt": prompt,
                    "response": response,
                    "reward": rewards[place],
                    "tokens": len(responses[row]),
                    "group": {"rollouts": len(keys), "mean_reward": sum(rewards) / len(rewards)},
                }
            )
        return found

    def _text(self, ids: Any) -> str:
        return self._trainer.tokenizer.decode(ids.tolist(), skip_special_tokens=True)

    def _value(self, rows: Any, column: str, place: int) -> Any:
        """A value of an optional column."""
        if column not in rows.keys():  # noqa: SIM118 - a TensorDict's `in` is about its values
            return None
        value = list(rows[column])[place]
        return value.item() if hasattr(value, "item") else value

    def state_dict(self) -> dict[str, Any]:
        return {"num_bytes": self.records.num_bytes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.records.cut_back_to(state["num_bytes"])


def _ground_truth(reward_model: Any) -> str | None:
    truth = reward_model.get("ground_truth") if isinstance(reward_model, dict) else None
    return None if truth is None else str(truth)[:500]
