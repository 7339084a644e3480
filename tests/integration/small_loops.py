"""A user's agent loop with several outputs per session, in a module found only through PYTHONPATH."""

from typing import Any

from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


class Drafts(SingleTurnAgentLoop):
    """The first half of the response as a separate draft, then the response; the reward is for the latter."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:  # type: ignore[override]
        whole = await super().run(sampling_params, **kwargs)
        half = max(1, len(whole.response_ids) // 2)
        draft = whole.model_copy(
            update={
                "response_ids": whole.response_ids[:half],
                "response_mask": whole.response_mask[:half],
                "response_logprobs": whole.response_logprobs[:half],
                "extra_fields": dict(whole.extra_fields),
            }
        )
        return [draft, whole]
