"""Turns a dead or hanging rollout engine into an error that names the cause.

verl's weight sender waits on a socket, and its trainer waits for the sender: when the receiving engine dies, nothing
times out. A thread in the trainer's process asks every server for its health and, when one cannot serve, kills the
actors that the trainer waits for. The trainer's blocked call then raises, and `failure` says why.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray

logger = logging.getLogger(__name__)

# With the first request memory is touched and kernels are chosen, while other processes of the run still start.
FIRST_REQUEST = 5


class EngineHealth(NamedTuple):
    """What a server says of its engine."""

    failure: str | None = None  # why it cannot serve
    has_answered: bool = False  # a request, ever
    logs: tuple[str, ...] = ()  # files that the engine writes into, on the server's machine


def describe_hang(seconds: float) -> str:
    """What is said of a process that did not answer for so long."""
    return (
        f"did not answer for {seconds:g} s: it hangs, was stopped, or is that slow, on a machine that does more than "
        "this run (then raise watchdog.hang_timeout_s)"
    )


class EngineWatchdog:
    """Watches rollout servers: what ours say of their engine (`verl_ext.serving.engine_health`), or that others answer.

    Args:
        servers: actor handles of the servers, by replica.
        waited_for: actors to kill when an engine fails, so that nobody waits for them any more.
        interval_s: seconds between two looks.
        hang_timeout_s: seconds without an answer until an engine counts as hung; until it has answered its first
            request, `FIRST_REQUEST` times as many.
    """

    def __init__(
        self, servers: Sequence[Any], waited_for: Sequence[Any], interval_s: float, hang_timeout_s: float
    ) -> None:
        self.failure: str | None = None
        self._servers = list(servers)
        self._waited_for = list(waited_for)
        self._interval_s = interval_s
        self._hang_timeout_s = hang_timeout_s
        self._known = [EngineHealth() for _ in self._servers]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="engine-watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching: the end of a run is no failure."""
        self._stop.set()

    def diagnose(self) -> str | None:
        """Look once, now: why an engine cannot serve, or None. A failure that was found before stands."""
        if self.failure is None:
            for replica, server in enumerate(self._servers):
                self._known[replica] = health = self._ask(server, self._known[replica])
                if health.failure is not None:
                    self.failure = f"rollout replica {replica} cannot serve: {health.failure}"
                    break
        return self.failure

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            failure = self.diagnose()
            if failure is not None and not self._stop.is_set():
                logger.error(failure)
                for actor in [*self._waited_for, *self._servers]:
                    ray.kill(actor)
                return

    def _ask(self, server: Any, known: EngineHealth) -> EngineHealth:
        patience_s = self._hang_timeout_s * (1 if known.has_answered else FIRST_REQUEST)
        log = f". Its log: {' and '.join(known.logs)}" if known.logs else ""
        try:
            if not hasattr(server, "health"):  # of another engine than vLLM: its process is all that can be asked
                ray.get(server.__ray_ready__.remote(), timeout=patience_s + 5)
                return EngineHealth(has_answered=True)
            # The server limits the wait itself; the margin covers a busy event loop.
            return ray.get(server.health.remote(patience_s), timeout=patience_s + 5)
        except ray.exceptions.GetTimeoutError:
            return known._replace(failure=f"its server {describe_hang(patience_s + 5)}{log}")
        except ray.exceptions.RayActorError as error:
            return known._replace(failure=f"its server process died: {error}{log}")
