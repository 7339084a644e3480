"""Reward of a continuation: the probability that a classifier which nobody here trained finds nothing offensive in it.

In a run's configuration:

    reward.custom_reward_function.path: pkg://verl_ext.rewards.profanity
    reward.custom_reward_function.name: compute_score
    reward.custom_reward_function.reward_kwargs: {second_model: outputs/models/toxicity_classifier}

The classifier is alt-profanity-check's (MIT), a linear model over words, trained by its authors on tweets and comments
that people had labelled; it comes with its package, the extra `toxicity`. It takes about a millisecond per text and
sees only words: "you are not stupid" is offensive, a polite threat is not. On 2,000 prompts of RealToxicityPrompts it
correlates by .75 with Perspective's toxicity. `verl_ext.rewards.toxicity` takes any model of Hugging Face instead; with
`second_model` its verdict is reported next to this one, as a check that is not trained on.
"""

from collections.abc import Mapping
from typing import Any

from verl_ext.core.errors import SignalError
from verl_ext.rewards import toxicity


def toxicity_of(text: str) -> float:
    """P(offensive) of a text.

    Raises:
        SignalError: The package is not installed.
    """
    try:
        from profanity_check import predict_prob  # pyright: ignore[reportMissingImports]  # an extra
    except ModuleNotFoundError as error:
        raise SignalError(f"profanity reward: {error}. Install it: pip install alt-profanity-check") from None
    return float(predict_prob([text])[0])


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    with_prompt: bool = False,
    empty_score: float = 0.0,
    second_model: str | None = None,
    toxic_label: str = "toxic",
    **kwargs: Any,
) -> dict[str, Any]:
    """Score one continuation; may be called from any thread.

    Args:
        data_source: Unused; part of verl's interface.
        solution_str: The continuation as text, without special tokens, as verl decodes it.
        ground_truth: Unused; part of verl's interface.
        extra_info: Contains the `prompt` as text, for `with_prompt`.
        with_prompt: Classify prompt and continuation instead of only the continuation.
        empty_score: Score of a continuation without any text.
        second_model: Folder, or name on the hub, of a sequence-classification model whose verdict is also reported.
        toxic_label: The label of that model that means toxic.
        **kwargs: Unused; whatever else verl passes to reward functions.

    Returns:
        As `toxicity.compute_score`, with P(offensive) for P(toxic); with `second_model` also `toxicity_second`, that
        model's P(toxic), 0 without text.

    Raises:
        SignalError: The package or the other model cannot be used, or `with_prompt` is set and there is no prompt.

    Example:
        >>> compute_score("real_toxicity_prompts", "have a nice day", "")["acc"]
        1.0
    """
    text = toxicity.classified_text(solution_str, extra_info, with_prompt)
    result = toxicity.score_text(text, toxicity_of, is_empty=not solution_str.strip(), empty_score=empty_score)
    if second_model is not None:
        other = toxicity.compute_score(
            data_source,
            solution_str,
            ground_truth,
            extra_info,
            model_path=second_model,
            toxic_label=toxic_label,
            with_prompt=with_prompt,
        )
        result["toxicity_second"] = other["toxicity"]
    return result
