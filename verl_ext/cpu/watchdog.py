"""Turns a dead or hanging vLLM engine into an error that names the cause.

verl's weight sender waits on a socket, and its trainer waits for the sender: when the receiving engine dies, nothing
times out. A thread in the trainer's process asks every server for its health and, when one cannot serve, kills the
actors that the trainer waits for. The trainer's blocked call then raises, and `failure` says why.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any

import ray

logger = logging.getLogger(__name__)


class EngineWatchdog:
    """Watches vLLM servers that offer `engine_failure` (see `verl_ext.cpu.rollout`).

    Args:
        servers: actor handles of the servers, by replica.
        waited_for: actors to kill when an engine fails, so that nobody waits for them any more.
        interval_s: seconds between two looks.
        hang_timeout_s: seconds without an answer until an engine counts as hung.
    """

    def __init__(
        self, servers: Sequence[Any], waited_for: Sequence[Any], interval_s: float, hang_timeout_s: float
    ) -> None:
        self.failure: str | None = None
        self._servers = list(servers)
        self._waited_for = list(waited_for)
        self._interval_s = interval_s
        self._hang_timeout_s = hang_timeout_s
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
                reason = self._ask(server)
                if reason is not None:
                    self.failure = f"vLLM replica {replica} cannot serve: {reason}"
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

    def _ask(self, server: Any) -> str | None:
        try:
            # The server limits the wait itself; the margin covers a busy event loop.
            return ray.get(server.engine_failure.remote(self._hang_timeout_s), timeout=self._hang_timeout_s + 5)
        except ray.exceptions.GetTimeoutError:
            return f"its server did not answer for {self._hang_timeout_s + 5:g} s"
        except ray.exceptions.RayActorError as error:
            return f"its server process died: {error}"
