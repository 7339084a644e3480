"""The success of a rollout, from the result of the reward function."""

from recipe.fast_dapo.curriculum.grading import Grading
from verl_ext.core.errors import SignalError
from verl_ext.serving.agent_loop import RolloutReport


def success_of(rollout: RolloutReport, metric: str, grading: Grading) -> float:
    """The value of `curriculum.success_metric` for one rollout.

    Args:
        rollout: The rollout as the agent loop reports it.
        metric: An entry of the reward's result, or "reward" for the reward itself.
        grading: Whether the value is compared with a threshold or is a grade.

    Raises:
        SignalError: the reward function does not return the metric, or its value is not a grade from 0 to 1.
    """
    if metric == "reward":
        success = rollout.reward
    elif metric in rollout.reward_extra_info:
        success = float(rollout.reward_extra_info[metric])
    else:
        raise SignalError(
            f"curriculum.success_metric={metric!r} is not among what the reward function returns: "
            f"{sorted(rollout.reward_extra_info)}. Use one of these, or 'reward' for the reward itself."
        )
    if grading.is_graded and not 0 <= success <= 1:
        raise SignalError(
            f"curriculum.success_metric={metric} is {success:g} for a rollout, and curriculum.success_threshold=null "
            "expects a grade from 0 to 1: scale it in the reward function, or set a threshold."
        )
    return success
