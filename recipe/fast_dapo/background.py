"""Generation that continues while the trainer trains, for engines on separate devices."""

import threading
from collections.abc import Callable, Mapping

from verl_ext.serving.agent_loop import PromptReport

Reports = Mapping[str, PromptReport]

# Seconds between two checks whether the run is over.
_PATIENCE_S = 0.5


class BackgroundGeneration:
    """A thread that processes reports of finished prompts and immediately sends new work.

    Args:
        changed: Held by this thread and by the trainer's whenever they use the controller.
        num_in_flight: Returns the number of prompts that have not been reported yet.
        wait: Waits for reports, up to the given number of seconds; called without the lock.
        go_on: Processes the reports and sends the next prompts; called with the lock.
    """

    def __init__(
        self,
        changed: threading.Condition,
        num_in_flight: Callable[[], int],
        wait: Callable[[float], Reports],
        go_on: Callable[[Reports], None],
    ) -> None:
        self._changed = changed
        self._num_in_flight = num_in_flight
        self._wait = wait
        self._go_on = go_on
        self._error: Exception | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def wait_until(self, is_there: Callable[[], bool]) -> None:
        """Wait until reports bring something new, or nothing is in flight. The caller holds the lock.

        Raises:
            Exception: whatever ended the thread.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="background-generation", daemon=True)
            self._thread.start()
        self._changed.notify_all()  # something may have been sent
        self._changed.wait_for(lambda: self._error is not None or is_there() or not self._num_in_flight())
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Take no further reports. The caller does not hold the lock."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended or self._num_in_flight())
                    if self._ended:
                        return
                reports = self._wait(_PATIENCE_S)
                with self._changed:
                    if reports:
                        self._go_on(reports)
                        self._changed.notify_all()
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
