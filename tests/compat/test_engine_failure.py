"""What a server says about an engine that cannot serve. A killed engine has an integration test; these are the failures
that cannot be caused from outside: a weight update that raises in the engine, and an engine that hangs.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError

from verl_ext.core.errors import RolloutEngineError
from verl_ext.cpu import rollout
from verl_ext.serving import engine_health, token_serving, watchdog
from verl_ext.serving.watchdog import EngineHealth


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
    return asyncio.run(server.health(0.05)).failure


def test_an_engine_that_answers_is_healthy():
    assert _failure(_server(Engine())) is None


def test_an_engine_that_does_not_answer_hangs_and_the_setting_is_named():
    failure = _failure(_server(Engine(seconds=5)))
    assert "did not answer for 0.05 s" in failure
    assert "watchdog.hang_timeout_s" in failure


def test_a_dead_engine_is_named_with_its_error():
    assert "is dead: core exited" in _failure(_server(Engine(error=RuntimeError("core exited"))))


def test_a_failure_comes_with_the_engines_own_error_and_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    log = tmp_path / "worker.out"
    log.write_text(
        "(Worker pid=7) Traceback (most recent call last):\n(Worker pid=7)   File x\n(Worker pid=7) OSError: no\n"
    )
    monkeypatch.setattr(engine_health, "own_logs", lambda: [log])
    dead = _server(Engine(error=RuntimeError("See stack trace (above)")))
    assert _failure(dead).endswith(f"See stack trace (above); the last error in its log: OSError: no. Its log: {log}")

    async def raising(self: Any, args: Any) -> None:
        raise RuntimeError("See root cause above")

    monkeypatch.setattr(token_serving.vLLMHttpServer, "run_server", raising)
    with pytest.raises(
        RolloutEngineError, match=r"did not start: See root cause above; the last error .*: OSError: no"
    ):
        asyncio.run(_server(Engine()).run_server(None))


class Remote:
    """A server in another process, which records the timeouts that it gets; it hangs after `hangs` requests."""

    def __init__(self, answered_after: int, hangs: int = 99) -> None:
        self.answered_after, self.hangs, self.asked = answered_after, hangs, []
        self.health = self

    def remote(self, patience_s: float) -> Any:
        self.asked.append(patience_s)

        def answer(timeout: float) -> EngineHealth:
            assert timeout > patience_s
            if len(self.asked) > self.hangs:
                raise GetTimeoutError
            return EngineHealth(None, len(self.asked) > self.answered_after, ("/logs/worker.out",))

        return answer


def test_until_its_first_answer_an_engine_has_more_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watchdog.ray, "get", lambda answer, timeout: answer(timeout))
    server = Remote(answered_after=2)
    watch = watchdog.EngineWatchdog([server], [], interval_s=1, hang_timeout_s=10)
    assert [watch.diagnose() for _ in range(5)] == [None] * 5
    assert server.asked == [50, 50, 50, 10, 10]


def test_a_server_that_hangs_is_reported_with_its_setting_and_its_log(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watchdog.ray, "get", lambda answer, timeout: answer(timeout))
    watch = watchdog.EngineWatchdog([Remote(0), Remote(0, hangs=1)], [], interval_s=1, hang_timeout_s=10)
    assert watch.diagnose() is None
    failure = watch.diagnose()
    assert failure.startswith("rollout replica 1 cannot serve: its server did not answer for 15 s")
    assert "watchdog.hang_timeout_s" in failure
    assert failure.endswith("Its log: /logs/worker.out")


def test_a_request_that_was_answered_is_remembered(monkeypatch: pytest.MonkeyPatch):
    async def generate(self: Any, prompt_ids: list[int]) -> list[int]:
        return prompt_ids

    monkeypatch.setattr(token_serving.vLLMHttpServer, "generate", generate)
    server = _server(Engine())
    assert not asyncio.run(server.health(0.05)).has_answered
    assert asyncio.run(server.generate([1])) == [1]
    assert asyncio.run(server.health(0.05)).has_answered


def test_a_weight_update_that_raised_in_the_worker_is_remembered(monkeypatch: pytest.MonkeyPatch):
    async def raising(self: Any, method: str) -> None:
        raise ValueError("size mismatch for lm_head")

    monkeypatch.setattr(token_serving.vLLMHttpServer, "collective_rpc", raising)
    server = _server(Engine())
    with pytest.raises(ValueError, match="size mismatch"):
        asyncio.run(server.collective_rpc("some_other_method"))
    assert _failure(server) is None
    with pytest.raises(ValueError, match="size mismatch"):
        asyncio.run(server.collective_rpc("update_weights_from_ipc"))
    assert "loading new weights failed in the vLLM engine: size mismatch for lm_head" in _failure(server)
