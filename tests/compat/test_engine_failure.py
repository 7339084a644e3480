"""What the CPU server says of an engine that cannot serve. The killed worker is an integration test; these are the
failures that cannot be brought about from outside: a weight update that raises in the worker, and an engine that hangs.
"""

import asyncio
from typing import Any

import pytest

from verl_ext.cpu import rollout


class Engine:
    """The one call of vLLM's engine that the health report makes."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds, self.error = seconds, error

    async def is_sleeping(self) -> bool:
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return False


def _server(engine: Engine) -> Any:
    server = object.__new__(rollout.CPUvLLMHttpServer)
    server.engine = engine
    return server


def _failure(server: Any) -> str | None:
    return asyncio.run(server.engine_failure(0.05))


def test_an_engine_that_answers_is_healthy():
    assert _failure(_server(Engine())) is None


def test_an_engine_that_does_not_answer_hangs():
    assert "did not answer for 0.05 s" in _failure(_server(Engine(seconds=5)))


def test_a_dead_engine_is_named_with_its_error():
    assert "is dead: core exited" in _failure(_server(Engine(error=RuntimeError("core exited"))))


def test_a_weight_update_that_raised_in_the_worker_is_remembered(monkeypatch: pytest.MonkeyPatch):
    async def raising(self: Any, method: str) -> None:
        raise ValueError("size mismatch for lm_head")

    monkeypatch.setattr(rollout.vLLMHttpServer, "collective_rpc", raising)
    server = _server(Engine())
    with pytest.raises(ValueError, match="size mismatch"):
        asyncio.run(server.collective_rpc("some_other_method"))
    assert _failure(server) is None
    with pytest.raises(ValueError, match="size mismatch"):
        asyncio.run(server.collective_rpc("update_weights_from_ipc"))
    assert "loading new weights failed in the vLLM worker: size mismatch for lm_head" in _failure(server)
