"""A rollout engine in plain PyTorch behind verl's interface for rollout servers, under SGLang's name.

It has what verl requires of any engine (`generate`, sleeping, weights, abort and resume) and nothing specific to vLLM
or to us. A run finds it through `VERL_USE_EXTERNAL_MODULES=plain_engine`, with this folder on PYTHONPATH. Commands
refuse every engine but vLLM on the CPU backend: for them it takes vLLM's name (`attempts.PLAIN_AS_VLLM`).

Requests join and leave the batch between two tokens; every token takes a forward pass over the whole texts, which is
fast enough for a model of 200,000 parameters.
"""

import asyncio
import os
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

NAME = os.environ.get("PLAIN_ENGINE_NAME", "sglang")


@dataclass
class Request:
    """A request that is being generated."""

    prompt: list[int]
    limit: int
    temperature: float
    ended: asyncio.Future
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


class PlainServer:
    """A server; verl's client calls `generate`, its checkpoint engine and its trainers the rest."""

    def __init__(self, model_path: str, response_length: int, max_num_seqs: int, end_tokens: list[int]) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.response_length, self.max_num_seqs, self.end_tokens = response_length, max_num_seqs, end_tokens
        self.version: int | None = None
        self.active: list[Request] = []
        self.work, self.admitted = asyncio.Event(), asyncio.Event()
        self.admitted.set()
        self.is_rejecting = False
        self.loop: asyncio.Task | None = None

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
    ) -> TokenOutput:
        unknown = set(sampling_params) - {
            "temperature",
            "top_p",
            "top_k",
            "repetition_penalty",
            "logprobs",
            "max_tokens",
        }
        assert not unknown, f"SGLang would not know {unknown}"
        self.loop = self.loop or asyncio.create_task(self._serve())
        while not self.admitted.is_set():
            if self.is_rejecting:
                return TokenOutput(token_ids=[], stop_reason="aborted", extra_fields={"global_steps": self.version})
            await self.admitted.wait()
        limit = sampling_params.get("max_tokens", self.response_length)
        ended = asyncio.get_running_loop().create_future()
        request = Request(list(prompt_ids), limit, sampling_params.get("temperature", 1.0), ended)
        self.active.append(request)
        self.work.set()
        reason = await ended
        return TokenOutput(
            token_ids=request.tokens,
            log_probs=request.log_probs if sampling_params.get("logprobs") else None,
            stop_reason=reason,
            extra_fields={"global_steps": self.version},
        )

    async def _serve(self) -> None:
        while True:
            await self.work.wait()
            if served := self.active[: self.max_num_seqs]:
                self._next_tokens(served)
                for request in [each for each in served if self._has_ended(each)]:
                    self._end(request, "completed")
            else:
                self.work.clear()
            await asyncio.sleep(0)

    @torch.no_grad()
    def _next_tokens(self, served: list[Request]) -> None:
        texts = [request.prompt + request.tokens for request in served]
        longest = max(map(len, texts))
        # Padded on the right: what follows a text's last token does not affect it.
        ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
        mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
        logits = self.model(ids, attention_mask=mask).logits
        last = logits[torch.arange(len(texts)), torch.tensor([len(text) - 1 for text in texts])]
        temperatures = torch.tensor([[max(request.temperature, 1e-6)] for request in served])
        log_probs = torch.log_softmax(last / temperatures, dim=-1)
        chosen = torch.multinomial(log_probs.exp(), 1)
        for request, token, log_prob in zip(served, chosen[:, 0], log_probs.gather(1, chosen)[:, 0], strict=True):
            request.tokens.append(int(token))
            request.log_probs.append(float(log_prob))

    def _has_ended(self, request: Request) -> bool:
        return request.tokens[-1] in self.end_tokens or len(request.tokens) >= request.limit

    def _end(self, request: Request, reason: str) -> None:
        self.active.remove(request)
        request.ended.set_result(reason)

    async def load_weights(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        own = self.model.state_dict()
        assert set(weights) <= set(own), set(weights) - set(own)
        self.model.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
        self.version = self.version if version is None else version

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        self.is_rejecting = reject_request
        self.admitted.clear()
        aborted = list(self.active)
        for request in aborted:
            self._end(request, "aborted")
        return {"aborted_count": len(aborted), "request_ids": []}

    async def resume_generation(self) -> None:
        self.is_rejecting = False
        self.admitted.set()

    async def set_global_steps(self, global_steps: int) -> None:
        self.version = global_steps

    async def nothing(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no memory to release."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing


class PlainReplica(RolloutReplica):
    """One server next to the actor."""

    async def launch_servers(self) -> None:
        model = omega_conf_to_dataclass(self.model_config)
        (node,) = set(
            await asyncio.gather(
                *(
                    worker.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
                    for worker in self.workers
                )
            )
        )
        server = (
            ray.remote(PlainServer)
            .options(
                name=f"{NAME}_server_{self.replica_rank}_0",
                max_concurrency=self.max_concurrency,
                scheduling_strategy=ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(
                str(model.local_path),
                self.config.response_length,
                self.config.max_num_seqs,
                [] if self.config.ignore_eos else _end_tokens(model),
            )
        )
        await server.__ray_ready__.remote()
        self.servers = [server]
        self._server_handle, self._server_address = server, f"plain:{self.replica_rank}"


def _end_tokens(model: Any) -> list[int]:
    found = getattr(model.generation_config, "eos_token_id", None) if model.generation_config else None
    found = model.tokenizer.eos_token_id if found is None else found
    return list(found) if isinstance(found, list | tuple) else [found]


class PlainRollout(BaseRollout):
    """In the actor's process, or next to an engine on separate devices: transfers the weights."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self.server_name = f"{NAME}_server_{max(0, replica_rank)}_0"

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing is held."""

    @torch.no_grad()
    async def update_weights(self, weights: Any, global_steps: int | None = None, **kwargs: Any) -> None:
        whole = {name: tensor.detach().cpu().clone() async for name, tensor in ensure_async_iterator(weights)}
        server = ray.get_actor(self.server_name)
        await server.load_weights.remote(whole, global_steps)


def _load() -> type[PlainReplica]:
    return PlainReplica


RolloutReplicaRegistry.register(NAME, _load)
_ROLLOUT_REGISTRY[NAME, "async"] = "plain_engine.PlainRollout"
