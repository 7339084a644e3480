"""Reward of the arithmetic task: the completion is exactly the answer, or it is wrong.

In a run's configuration:

    reward.custom_reward_function.path: pkg://verl_ext.rewards.arithmetic
    reward.custom_reward_function.name: compute_score
"""

from collections.abc import Mapping
from typing import Any

DATA_SOURCE = "arithmetic"

# verl decodes without special tokens, other callers may not: the answer ends at whichever comes first.
_ENDS = ("<|endoftext|>", "\n")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Score one completion.

    Nothing is stripped or searched for: digits after the answer, spaces and leading zeros are wrong. A reward that
    finds the answer anywhere in the text would reward rambling.

    Args:
        data_source: Unused; part of verl's interface.
        solution_str: The completion as text, with or without the end-of-text token.
        ground_truth: The answer.
        extra_info: Unused; part of verl's interface.
        **kwargs: Unused; other arguments that verl passes to reward functions.

    Returns:
        `score` and `acc`, both 1.0 or 0.0, and `pred`, the text that was compared.

    Example:
        >>> compute_score("arithmetic", "5621<|endoftext|>", "5621")
        {'score': 1.0, 'acc': 1.0, 'pred': '5621'}
    """
    pred = solution_str
    for end in _ENDS:
        pred = pred.split(end, 1)[0]
    score = float(pred == ground_truth)
    return {"score": score, "acc": score, "pred": pred}
