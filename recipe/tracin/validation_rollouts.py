"""Validation rollouts of TracIn on verl: made by the agent loops and kept in a separate partition."""

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from recipe.tracin.method.rollout_choice import two_halves
from recipe.tracin.method.validation import ValidationSet
from verl_ext.core.errors import GenerationFailedError
from verl_ext.influence.batches import ROLLOUT_LOG_PROBS, VALIDATION_ADVANTAGE
from verl_ext.serving import data_plane
from verl_ext.serving.agent_loop import AS_IN_TRAINING, PromptReport
from verl_ext.serving.data_plane import KVBatchMeta

# Between two refreshes; verl's own partitions are "train" and "val", where rollouts are made.
PARTITION = "influence"
MADE_IN = data_plane.VALIDATION

# Fields of a rollout that the actor's forward and the validation loss need.
FIELDS = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask", ROLLOUT_LOG_PROBS)

# Marks the keys of padding rows.
_FILLER = "_filler_"


class ValidationRollouts:
    """Makes rollouts when `ValidationSet` requests them and returns the chosen ones.

    Args:
        chooser: Decides on prompts, rollouts and advantages.
        dataset: verl's data set of validation prompts.
    """

    def __init__(self, chooser: ValidationSet, dataset: Any) -> None:
        self.chooser = chooser
        self.dataset = dataset
        self._keys: list[str] = []

    def refresh(self, step: int, agent_loop_manager: Any, num_ranks: int) -> int:
        """Make new rollouts if this step needs them; the engines must be awake.

        Args:
            step: The current step.
            agent_loop_manager: Generates rollouts.
            num_ranks: Data-parallel ranks of the actor, among which the rollouts are divided.

        Returns:
            The number of rollouts made.

        Raises:
            GenerationFailedError: all of them failed.
        """
        if not self.chooser.needs_refresh(step):
            return 0
        positions = self.chooser.prompts_to_roll_out(step).tolist()
        rows = collate_fn([self.dataset[position] for position in positions])
        uids = [str(uuid.uuid4()) for _ in positions]
        rows["uid"] = np.array(uids, dtype=object)
        batch = tu.get_tensordict(rows)
        num_rollouts = self.chooser.settings.rollouts_per_prompt
        tu.assign_non_tensor_stack(batch, "__rollout_n__", [num_rollouts] * len(uids))
        tu.assign_non_tensor_stack(batch, AS_IN_TRAINING, [True] * len(uids))
        tu.assign_non_tensor_data(batch, "global_steps", step)
        tu.assign_non_tensor_data(batch, "validate", True)
        reports: dict[str, PromptReport] = agent_loop_manager.generate_and_report(batch)
        made = [
            (rollout, place) for uid, place in zip(uids, positions, strict=True) for rollout in reports[uid].rollouts
        ]
        if not made:
            errors = [error for report in reports.values() for error in report.errors]
            raise GenerationFailedError(
                f"None of {len(uids)} validation prompts of TracIn got a rollout; the last error: {errors[-1:]}"
            )
        choice = self.chooser.choose(
            step,
            [rollout.reward for rollout, _ in made],
            [place for _, place in made],
            _surprises([rollout.keys for rollout, _ in made]) if self.chooser.settings.orders_by_surprise else None,
        )
        prompts = np.array([made[index][1] for index in choice.indices], dtype=np.int64)
        # All outputs of a session get its advantage, as in verl's training.
        halves = [
            [
                (key, float(choice.advantages[position]))
                for position in half
                for key in made[choice.indices[position]][0].keys
            ]
            for half in two_halves(choice.advantages, prompts)
        ]
        self._keep(halves, num_ranks)
        data_plane.clear([*uids, *(key for rollout, _ in made for key in rollout.keys)], MADE_IN)
        return len(made)

    def batch(self, temperature: float) -> KVBatchMeta | None:
        """The rollouts of the validation gradient; None if the choice is degenerate."""
        if not self._keys:
            return None
        num_rows = sum(_FILLER not in key for key in self._keys)
        extra_info = {"global_batch_size": num_rows, "temperature": temperature, "calculate_entropy": False}
        tags = [{} for _ in self._keys]
        return KVBatchMeta(partition_id=PARTITION, keys=list(self._keys), tags=tags, extra_info=extra_info)

    def _keep(self, halves: Sequence[Sequence[tuple[str, float]]], num_ranks: int) -> None:
        """Replace the stored rollouts by these keys with their advantages.

        The halves take turns, padded with masked rows to the same multiple of the ranks: each rank gets an even number
        of rows, of which every other one belongs to the first half, as `compute_validation_gradient` expects.
        """
        self.clear()
        keys = [key for half in halves for key, _ in half]
        if not keys:
            return
        rows = data_plane.read(keys, MADE_IN, FIELDS)
        stored = {name: dict(zip(keys, rows[name].unbind(), strict=True)) for name in FIELDS}
        length = -(-max(map(len, halves)) // num_ranks) * num_ranks
        padded = [
            [*half, *[(f"{keys[0]}{_FILLER}{number}_{place}", 0.0) for place in range(len(half), length)]]
            for number, half in enumerate(halves)
        ]
        in_turns = [row for pair in zip(*padded, strict=True) for row in pair]
        self._keys = [key for key, _ in in_turns]
        columns = {
            name: [column[key] if key in column else _filler(name, column[keys[0]]) for key in self._keys]
            for name, column in stored.items()
        }
        rows = data_plane.as_columns(columns)
        rows[VALIDATION_ADVANTAGE] = torch.tensor([advantage for _, advantage in in_turns], dtype=torch.float64)
        data_plane.write(self._keys, PARTITION, rows, [{} for _ in self._keys])

    def clear(self) -> None:
        """Forget the stored rollouts."""
        data_plane.clear(self._keys, PARTITION)
        self._keys = []

    # ------------------------------ checkpoints ------------------------------

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; the rollouts themselves are in the data plane's checkpoint."""
        return {"chooser": self.chooser.state_dict(), "keys": list(self._keys)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the choice; rollouts missing from the restored data plane are made again."""
        self.chooser.load_state_dict(state["chooser"])
        self._keys = list(state["keys"])
        if not data_plane.tags(PARTITION).keys() >= set(self._keys):
            self._keys = []
            self.chooser.forget_rollouts()


def _filler(field: str, value: torch.Tensor) -> torch.Tensor:
    """The field of a padding row, by that of another row: its masks are 0."""
    return torch.zeros_like(value) if field.endswith("mask") else value


def _surprises(rollouts: Sequence[Sequence[str]]) -> list[float]:
    """Mean of 1 - p over the tokens that the policy wrote, by rollout, each given by the keys of its outputs."""
    rows = data_plane.read([key for keys in rollouts for key in keys], MADE_IN, (ROLLOUT_LOG_PROBS, "response_mask"))
    written = iter(
        log_probs[mask.bool()]
        for log_probs, mask in zip(rows[ROLLOUT_LOG_PROBS].unbind(), rows["response_mask"].unbind(), strict=True)
    )
    return [float(1 - torch.cat([next(written) for _ in keys]).exp().mean()) for keys in rollouts]
