"""A reward for answers of the small model that have as many tokens as allowed (`rollout.ignore_eos=true`)."""

from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **kwargs: Any
) -> dict[str, float]:
    """Whether the answer is right up to the token that would have ended it, which verl decodes to nothing."""
    score = float(solution_str.startswith(ground_truth))
    return {"score": score, "acc": score}
