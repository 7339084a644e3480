"""Health reports of a vLLM server, in addition to verl's: why its engine did not start, and whether it can serve.

`HealthReport` is mixed into verl's vLLM server; the trainer's watchdog queries it (`verl_ext.serving.watchdog`).
"""

import asyncio
from typing import Any

import psutil
from verl.workers.rollout.replica import TokenOutput

from verl_ext.cluster.engine_resources import EngineResources
from verl_ext.core.errors import RolloutEngineError
from verl_ext.serving.engine_log import explain, own_logs
from verl_ext.serving.watchdog import EngineHealth, describe_hang

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self.engine": "vllm.v1.engine.async_llm.AsyncLLM",
}


class HealthReport:
    """Mixin for `vLLMHttpServer`."""

    engine: Any
    _weight_update_error: str | None = None
    _has_answered = False
    _resources: EngineResources | None = None

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
            # The sender of weights waits on its socket forever if the receiver fails: `health` reports it.
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
            # The engine core answers this between two steps, unlike check_health, which only reads a local flag.
            await asyncio.wait_for(self.engine.is_sleeping(), patience_s)
        except TimeoutError:
            return f"the vLLM engine core {describe_hang(patience_s)}"
        except Exception as error:
            return f"the vLLM engine core is dead: {error}"
        return None
