"""The vLLM server and replica on the CPU: like ours for accelerators, with another weight update and fewer
processes."""

import math
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

from verl_ext.cpu.light_actor import light_actor
from verl_ext.serving.token_serving import SignalvLLMHttpServer

# The model runs in the process of the engine core: one process less to import everything, and no message per token.
# Given by path, because vLLM turns "uni" into "mp": separate workers with their own OpenMP settings, which all
# processes of a run get from configs/cpu/ray.yaml.
_IN_THE_ENGINES_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


class CPUvLLMHttpServer(SignalvLLMHttpServer):
    """Loads weights through the CPU worker extension; its engine has one process."""

    def _get_worker_extension_cls(self) -> str:
        return "verl_ext.cpu.worker_extension.CPUWorkerExtension"

    def _preprocess_engine_kwargs(self, engine_kwargs: dict[str, Any]) -> None:
        super()._preprocess_engine_kwargs(engine_kwargs)
        sizes = (engine_kwargs.get(name) or 1 for name in ("pipeline_parallel_size", "decode_context_parallel_size"))
        if self.config.tensor_model_parallel_size * math.prod(sizes) == 1:
            engine_kwargs.setdefault("distributed_executor_backend", _IN_THE_ENGINES_PROCESS)


class CPUvLLMReplica(vLLMReplica):
    """verl's replica with the CPU server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(light_actor(CPUvLLMHttpServer))
