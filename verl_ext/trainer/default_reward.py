"""The reward for rows of this package's data sets, by their `data_source`; verl's own for all others.

    reward.custom_reward_function.path: pkg://verl_ext.trainer.default_reward
    reward.custom_reward_function.name: compute_score

`verl_ext.launch` sets this if a configuration names no reward function, and the evaluation command uses it, so that
training and evaluation score alike.
"""

from collections.abc import Mapping
from typing import Any

from verl_ext.rewards import arithmetic, math_answer, reasoning_gym

PATH = "pkg://verl_ext.trainer.default_reward"


class NoRewardError(NotImplementedError):
    """Neither this package nor verl has a reward function for a data source."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **kwargs: Any
) -> Any:
    """Score one response.

    Args:
        data_source: `data_source` of the row.
        solution_str: The response.
        ground_truth: Ground truth of the row.
        extra_info: `extra_info` of the row.
        **kwargs: Passed to verl's function.

    Returns:
        The score, or a dict with `score` and more.

    Raises:
        NoRewardError: No function supports the data source.
    """
    row = {"solution_str": solution_str, "ground_truth": ground_truth, "extra_info": extra_info}
    if data_source == arithmetic.DATA_SOURCE:
        return arithmetic.compute_score(data_source, **row)
    if math_answer.judges(data_source):
        return math_answer.compute_score(data_source, **row)
    if reasoning_gym.judges(data_source):
        return reasoning_gym.compute_score(data_source, **row)
    from verl.utils.reward_score import default_compute_score

    try:
        return default_compute_score(data_source, **row, **kwargs)
    except NotImplementedError as error:
        raise NoRewardError(
            f"neither verl nor this package has a reward function for data_source {data_source!r}: name yours in "
            "reward.custom_reward_function.path and .name"
        ) from error
