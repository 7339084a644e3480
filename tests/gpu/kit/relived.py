"""Restores a method of tests/benchmarks/sampling_methods.py to an earlier state, from the rollouts that it got.

Methods keep open generators and queues that cannot be written to a file. Each is a function of its seed and the
rollouts that it got, so a new one that gets the same rollouts is in the same state.
"""

from collections.abc import Sequence
from typing import Any

import torch
from learning_lab import Rollout
from sampling_methods import Method


class OtherRequestError(Exception):
    """The method asked for other prompts than it did: its code or its libraries have changed."""


class PastPolicy:
    """Stands in for the policy while a method is replayed.

    Args:
        log: Rollouts of each call of `sample`, in order.
    """

    def __init__(self, log: Sequence[list[Rollout]]) -> None:
        self.version = 0
        self.log = list(log)
        self._calls = iter(self.log)

    def sample(self, prompts: Sequence[int]) -> list[Rollout]:
        """The rollouts of the next call.

        Raises:
            OtherRequestError: They belong to other prompts.
        """
        rollouts = next(self._calls, [])
        if [rollout.prompt for rollout in rollouts] != list(prompts):
            raise OtherRequestError(f"expected {len(prompts)} rollouts of other prompts in the log")
        return rollouts

    def is_over(self) -> bool:
        """Whether every call has been replayed."""
        return next(self._calls, None) is None


def relive(method: Method, log: Sequence[list[Rollout]], num_updates: int) -> None:
    """Bring a new method to its state after `num_updates` updates.

    Raises:
        OtherRequestError: It made other requests than before.
    """
    past = PastPolicy(log)
    for _ in range(num_updates):
        method.next_batch(past)
        past.version += 1
    if not past.is_over():
        raise OtherRequestError("the log has more calls than the method asked for")


def plain_log(log: Sequence[Sequence[Rollout]]) -> list[dict[str, Any]]:
    """The log for `torch.save`, quick to read: the numbers of one call in a few tensors."""
    return [
        {
            "prompts": torch.tensor([rollout.prompt for rollout in rollouts]),
            "lengths": torch.tensor([len(rollout.response) for rollout in rollouts]),
            "responses": torch.tensor([token for rollout in rollouts for token in rollout.response]),
            "log_probs": torch.cat([rollout.log_probs for rollout in rollouts]),
            "rewards": torch.tensor([rollout.reward for rollout in rollouts], dtype=torch.float64),
        }
        for rollouts in log
    ]


def log_of_plain(calls: Sequence[dict[str, Any]]) -> list[list[Rollout]]:
    """Undo `plain_log`."""
    log: list[list[Rollout]] = []
    for call in calls:
        lengths = call["lengths"].tolist()
        columns = (call["prompts"].tolist(), call["responses"].split(lengths), call["log_probs"].split(lengths))
        log.append(
            [
                Rollout(prompt, response.tolist(), log_probs.clone(), reward)
                for prompt, response, log_probs, reward in zip(*columns, call["rewards"].tolist(), strict=True)
            ]
        )
    return log
