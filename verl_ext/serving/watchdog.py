"""Turns a dead or hanging rollout engine into an error that names the cause.

verl's weight sender waits on a socket, and its trainer waits for the sender: when the receiving engine dies, nothing
times out. A thread in the trainer's process queries the health of every server and, when one cannot serve, kills the
actors that the trainer waits for. The trainer's blocked call then raises, and `failure` gives the reason.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray

logger = logging.getLogger(__name__)

# The first request allocates memory and selects kernels while other processes of the run are still starting.
FIRST_REQUEST = 5


class EngineHealth(NamedTuple):
    """A server's report on its engine."""

    failure: str | None = None  # why it cannot serve
    has_answered: bool = False  # whether it has ever answered a request
    logs: tuple[str, ...] = ()  # log files of the engine, on the server's machine


def describe_hang(seconds: float) -> str:
    """The message for a process that did not answer for this long."""
    return (
        f"did not answer for {seconds:g} s: it hangs, was stopped, or is slowed down by other jobs on the machine "
        "(then raise watchdog.hang_timeout_s)"
    )


class EngineWatchdog:
    """Watches rollout servers: ours report on their engine (`verl_ext.serving.engine_health`), others only have to
    answer.

    Args:
        servers: actor handles of the servers, by replica.
        waited_for: actors to kill when an engine fails, so that nothing waits for them any more.
        interval_s: seconds between two checks.
        hang_timeout_s: seconds without an answer until an engine counts as hung; `FIRST_REQUEST` times this until it
            has answered its first request.
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
        """Stop watching: the end of a run is not a failure."""
        self._stop.set()

    def diagnose(self) -> str | None:
        """Check once: why an engine cannot serve, or None. An earlier failure is kept."""
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
            if not hasattr(server, "health"):  # of another engine than vLLM: only its process can be checked
                ray.get(server.__ray_ready__.remote(), timeout=patience_s + 5)
                return EngineHealth(has_answered=True)
            # The server limits the wait itself; the margin covers a busy event loop.
            return ray.get(server.health.remote(patience_s), timeout=patience_s + 5)
        except ray.exceptions.GetTimeoutError:
            return known._replace(failure=f"its server {describe_hang(patience_s + 5)}{log}")
        except ray.exceptions.RayActorError as error:
            return known._replace(failure=f"its server process died: {error}{log}")
