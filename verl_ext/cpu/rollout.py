"""The vLLM server and replica on the CPU: verl's own, plus weight reload and a health report."""

import asyncio
from typing import Any

import psutil
import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from verl_ext.cpu.engine_resources import EngineResources
from verl_ext.serving import TokenServing


class CPUvLLMHttpServer(TokenServing, vLLMHttpServer):
    """Reports the health of its engine; loads weights through the CPU worker extension."""

    _weight_update_error: str | None = None
    _resources: EngineResources | None = None

    def _get_worker_extension_cls(self) -> str:
        return "verl_ext.cpu.worker_extension.CPUWorkerExtension"

    async def run_server(self, args: Any) -> None:
        await super().run_server(args)
        self._resources = EngineResources.of_process_tree(psutil.Process())

    async def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> None:
        try:
            await super().collective_rpc(method, *args, **kwargs)
        except Exception as error:
            # The sender of weights waits on its socket for ever when the receiver fails: `engine_failure` tells.
            if method == "update_weights_from_ipc":
                self._weight_update_error = f"loading new weights failed in the vLLM worker: {error}"
            raise

    async def engine_failure(self, hang_timeout_s: float) -> str | None:
        """Why the engine cannot serve, or None while it can.

        Args:
            hang_timeout_s: an engine that does not answer a no-op within this many seconds counts as hung.
        """
        if self._weight_update_error is not None:
            return self._weight_update_error
        gone = self._resources.gone_processes() if self._resources else []
        if gone:
            return f"{' and '.join(gone)} died (killed, out of memory, or crashed)"
        try:
            # Answered by the engine core between two steps, unlike check_health, which only reads a flag here.
            await asyncio.wait_for(self.engine.is_sleeping(), hang_timeout_s)
        except TimeoutError:
            return f"the vLLM engine core did not answer for {hang_timeout_s:g} s: it hangs or was stopped"
        except Exception as error:
            return f"the vLLM engine core is dead: {error}"
        return None


class CPUvLLMReplica(vLLMReplica):
    """verl's replica with the CPU server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(CPUvLLMHttpServer)
