"""Queries that verl's rollout servers do not support: many continuations at once, and the log-probs of given tokens.

`TokenServing` is mixed into verl's vLLM server, here for an accelerator and in `verl_ext.cpu.rollout` for the CPU. The
trainer calls it through `verl_ext.serving.engines`. Importing this module imports vLLM.
"""

import asyncio
import os
import uuid
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from verl_ext.serving.engine_health import HealthReport
from verl_ext.serving.weight_socket import JOB_VARIABLE, job_of_run

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self.engine": "vllm.v1.engine.async_llm.AsyncLLM",
}


class TokenServing:
    """Mixin for `vLLMHttpServer`. With prefix caching, a prompt is computed once for all queries about it."""

    engine: Any
    generate: Any
    lora_as_adapter: bool

    async def generate_many(
        self, prompt_ids: list[int], num: int, sampling_params: dict[str, Any]
    ) -> list[tuple[list[int], str | None]]:
        """`num` independent continuations of one prompt, each generated as in verl's `generate`.

        Returns:
            Token ids, without the prompt's, and verl's reason for the end ("completed" or "aborted").
        """
        outputs = await asyncio.gather(
            *(self.generate(list(prompt_ids), dict(sampling_params), uuid.uuid4().hex) for _ in range(num))
        )
        return [(list(output.token_ids), output.stop_reason) for output in outputs]

    async def prompt_log_probs(self, prompt_ids: list[int]) -> list[float]:
        """Log-prob, in nats at temperature 1, of every token of a text except the first; the prefix cache is not
        read."""
        params = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        output = await self.generate(list(prompt_ids), params, uuid.uuid4().hex)
        if "prompt_logprobs" not in output.extra_fields:
            raise RuntimeError(f"the engine gave no log-probs for {len(prompt_ids)} tokens: {output.stop_reason}")
        # verl appends one for a missing token.
        return [float(log_probs[0]) for log_probs in output.extra_fields["prompt_logprobs"][: len(prompt_ids) - 1]]

    async def next_token_log_probs(self, prompt_ids: list[int], token_ids: list[int]) -> list[float]:
        """Log-probs, in nats at temperature 1, of tokens that may follow a prompt.

        Raises:
            RuntimeError: if the engine answers without them (it was paused or aborted the request).
        """
        from vllm import SamplingParams, TokensPrompt
        from vllm.lora.request import LoRARequest

        lora_request = None
        if self.lora_as_adapter and VLLM_LORA_INT_ID in await self.engine.list_loras():
            lora_request = LoRARequest(lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=VLLM_LORA_PATH)
        params = SamplingParams(max_tokens=1, temperature=1.0, logprob_token_ids=list(token_ids))
        final = None
        async for output in self.engine.generate(
            prompt=TokensPrompt(prompt_token_ids=list(prompt_ids)),
            sampling_params=params,
            request_id=uuid.uuid4().hex,
            lora_request=lora_request,
        ):
            final = output
        if final is None or not final.outputs or not final.outputs[0].logprobs:
            raise RuntimeError(f"the engine gave no log-probs for {len(token_ids)} token(s) after {len(prompt_ids)}")
        log_probs = final.outputs[0].logprobs[0]
        return [float(log_probs[token].logprob) for token in token_ids]


class SignalvLLMHttpServer(HealthReport, TokenServing, vLLMHttpServer):
    """verl's server, which also reports its health and receives weights on a socket of its run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        os.environ[JOB_VARIABLE] = job_of_run()


class SignalvLLMReplica(vLLMReplica):
    """verl's replica over `SignalvLLMHttpServer`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(SignalvLLMHttpServer)
