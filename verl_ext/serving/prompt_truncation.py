"""`data.truncation` for prompts that are longer than `rollout.prompt_length`, with or without a chat template.

verl's agent loops ignore the setting and always truncate on the left, which is correct only for `left`. Importing this
module registers the single-turn agent loop that also truncates on the `right` or in the `middle`; `error` never gets
here, because the data is checked before the run (`verl_ext.launch.data_checks`). The whole token sequence is truncated,
as verl documents it: `left` also removes a begin-of-text token, `right` the end of a chat template.
"""

from collections.abc import Sequence

from verl.experimental.agent_loop.agent_loop import register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


def truncate(ids: Sequence[int], max_length: int, truncation: str) -> list[int]:
    """At most `max_length` of the token ids, truncated like `verl.utils.torch_functional.postprocess_data`.

    Args:
        ids: Token ids of a prompt.
        max_length: Maximum number of tokens to keep.
        truncation: The side to truncate: "left", "right" or "middle".

    Raises:
        ValueError: `truncation` is "error" or unknown, and the prompt is too long.
    """
    ids = list(ids)
    if len(ids) <= max_length:
        return ids
    if truncation == "left":
        return ids[len(ids) - max_length :]
    if truncation == "right":
        return ids[:max_length]
    if truncation == "middle":
        first = max_length // 2
        return ids[:first] + ids[len(ids) - (max_length - first) :]
    raise ValueError(f"a prompt has {len(ids)} tokens, more than {max_length}, and data.truncation={truncation}")


@register("truncating_single_turn_agent")
class TruncatingSingleTurnAgentLoop(SingleTurnAgentLoop):
    """verl's single-turn agent loop, with `data.truncation`."""

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        return truncate(prompt_ids, self.rollout_config.prompt_length, self.data_config.truncation)
