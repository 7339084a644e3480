"""The vLLM server and replica on the CPU: verl's own, plus weight reload and a health report."""

import asyncio
import math
from typing import Any

import psutil
import ray
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from verl_ext.cluster.engine_resources import EngineResources
from verl_ext.core.errors import RolloutEngineError
from verl_ext.cpu.light_actor import light_actor
from verl_ext.serving.engine_log import explain, own_logs
from verl_ext.serving.token_serving import TokenServing
from verl_ext.serving.watchdog import EngineHealth, describe_hang

# What tests/compat/contract_uses.py cannot see: what verl's objects here are.
RELIES_ON = {
    "self.engine": "vllm.v1.engine.async_llm.AsyncLLM",
}

# The model runs in the process of the engine core: one process less that imports everything, and no message to it per
# token. By its path, since vLLM takes "uni" for "mp": workers of their own, each with an OpenMP setting of its own,
# which all processes of a run have from configs/cpu/ray.yaml.
_IN_THE_ENGINES_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


class CPUvLLMHttpServer(TokenServing, vLLMHttpServer):
    """Reports the health of its engine; loads weights through the CPU worker extension."""

    _weight_update_error: str | None = None
    _has_answered = False
    _resources: EngineResources | None = None

    def _get_worker_extension_cls(self) -> str:
        return "verl_ext.cpu.worker_extension.CPUWorkerExtension"

    def _preprocess_engine_kwargs(self, engine_kwargs: dict[str, Any]) -> None:
        super()._preprocess_engine_kwargs(engine_kwargs)
        sizes = (engine_kwargs.get(name) or 1 for name in ("pipeline_parallel_size", "decode_context_parallel_size"))
        if self.config.tensor_model_parallel_size * math.prod(sizes) == 1:
            engine_kwargs.setdefault("distributed_executor_backend", _IN_THE_ENGINES_PROCESS)

    async def run_server(self, args: Any) -> None:
        try:
            await super().run_server(args)
        except Exception as error:
            raise RolloutEngineError(f"a vLLM engine did not start: {error}{explain(own_logs())}") from error
        self._resources = EngineResources.of_process_tree(psutil.Process())

    async def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> None:
        try:
            await super().collective_rpc(method, *args, **kwargs)
        except Exception as error:
            # The sender of weights waits on its socket for ever when the receiver fails: `health` tells.
            if method == "update_weights_from_ipc":
                self._weight_update_error = f"loading new weights failed in the vLLM engine: {error}"
            raise

    async def generate(self, *args: Any, **kwargs: Any) -> TokenOutput:
        output = await super().generate(*args, **kwargs)
        self._has_answered = True
        return output

    async def health(self, patience_s: float) -> EngineHealth:
        """Whether the engine can serve, and why not.

        Args:
            patience_s: an engine that does not answer a no-op within this many seconds counts as hung.
        """
        logs = own_logs()
        failure = await self._failure(patience_s)
        if failure is not None:
            failure += explain(logs)
        return EngineHealth(failure, self._has_answered, tuple(map(str, logs)))

    async def _failure(self, patience_s: float) -> str | None:
        if self._weight_update_error is not None:
            return self._weight_update_error
        gone = self._resources.gone_processes() if self._resources else []
        if gone:
            return f"{' and '.join(gone)} died (killed, out of memory, or crashed)"
        try:
            # Answered by the engine core between two steps, unlike check_health, which only reads a flag here.
            await asyncio.wait_for(self.engine.is_sleeping(), patience_s)
        except TimeoutError:
            return f"the vLLM engine core {describe_hang(patience_s)}"
        except Exception as error:
            return f"the vLLM engine core is dead: {error}"
        return None


class CPUvLLMReplica(vLLMReplica):
    """verl's replica with the CPU server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(light_actor(CPUvLLMHttpServer))
