"""A fleet of rollout engines in simulated time. Pure: the standard library.

An engine decodes all its running sequences together: a step with b of them takes

    t(b) = step_seconds + sequence_seconds * b

(reading the weights, plus each sequence's key-value cache and arithmetic) and yields one token for each.
Between two events b is constant, so no event per token is needed. Each engine's clock counts its steps, every sequence
ends at a known reading of that clock, and the next one to end is the top of a heap: an event costs O(log slots + log
engines), whatever the lengths. Sequences join immediately instead of at the next step, an error of less than one step
each; the tests compare with a simulation of every step.

Beyond `slots` sequences wait, first in, first out. A prefill stops an engine's decoding for `prefill_seconds`. A
rollout goes to the engine with the fewest rollouts, waiting ones included, ties at random, as verl's load balancer
does. Before that it passes the agent loop, one queue for all engines, which takes `host_seconds` per rollout: on a
small machine this is most of the time.

Plain heaps instead of simpy: a process per rollout would be interrupted whenever its engine's batch changes, O(running)
per event instead of O(log).
"""

import random
from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

# Tolerance of a clock for rounding, in steps; tokens are whole numbers.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class EngineSettings:
    """Sizes and times of a fleet; raises ValueError on a value out of range. Times in seconds."""

    num_engines: int = 1
    slots: int = 256  # sequences that an engine decodes at once (max_num_seqs)
    step_seconds: float = 0.01  # per decoding step, whatever its batch
    sequence_seconds: float = 1e-4  # per running sequence and decoding step
    prefill_seconds: float = 0.0  # per rollout; its engine decodes nothing meanwhile
    host_seconds: float = 0.0  # of the agent loop per rollout, for all its workers together

    def __post_init__(self) -> None:
        for name in ("num_engines", "slots"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be an int of at least 1, got {value!r}: change {name}")
        for name in ("step_seconds", "sequence_seconds", "prefill_seconds", "host_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)!r}: change {name}")
        if not self.step_time(1) > 0:
            raise ValueError("step_seconds and sequence_seconds must not both be 0: tokens must take time")

    def step_time(self, batch: int) -> float:
        """Seconds per decoding step with this many sequences."""
        return self.step_seconds + self.sequence_seconds * batch


class EngineFleet:
    """Accepts rollouts with a start time and returns them in the order in which they end.

    Attributes:
        now: Seconds; time of the last event.
        running_seconds: Sequence-seconds: the number of decoding sequences, summed over time.
        busy_seconds: Engine-seconds with at least one sequence.
    """

    def __init__(self, settings: EngineSettings, seed: int = 0) -> None:
        self.settings = settings
        self.now = 0.0
        self.num_in_flight = 0
        self._rng = random.Random(seed)
        self._engines = [_Engine(settings) for _ in range(settings.num_engines)]
        # (time, serial, engine or None for an arrival, payload): a forecast's number, or (rollout, tokens).
        self._events: list[tuple[float, int, int | None, Any]] = []
        self._serial = 0
        self._host_free = 0.0
        # (rollouts, random tie-break, engine), some outdated.
        self._loads = [(0, self._rng.random(), number) for number in range(settings.num_engines)]
        self._ended: deque[Any] = deque()  # at the time `now`, not handed out yet

    def submit(self, rollout: Any, num_tokens: int, at: float) -> None:
        """A rollout of `num_tokens` response tokens, sent at the time `at`; sending times must not fall."""
        if num_tokens < 1:
            raise ValueError(f"expected at least one token per rollout, got {num_tokens} of {rollout!r}")
        if at < self.now:
            raise ValueError(f"expected a time of at least {self.now}, got {at}: the fleet is already past it")
        self._host_free = max(self._host_free, at) + self.settings.host_seconds
        self._push(self._host_free, None, (rollout, num_tokens))
        self.num_in_flight += 1

    def next_finished(self, until: float = float("inf")) -> tuple[float, Any] | None:
        """The next rollout to end, and its time; None if none ends at or before `until`."""
        while not self._ended:
            if not self._events or self._events[0][0] > until:
                return None
            time, _, number, payload = heappop(self._events)
            if number is not None and payload != self._engines[number].forecast:
                continue  # the batch has changed since
            self.now = time
            if number is None:
                number = self._least_loaded()
                engine = self._engines[number]
                engine.advance(time)
                engine.add(*payload)
            else:
                engine = self._engines[number]
                self._ended.extend(engine.finish(time))
            self._push_load(number)
            self._forecast(number)
        self.num_in_flight -= 1
        return self.now, self._ended.popleft()

    def interrupt(self, at: float) -> None:
        """All running sequences are prefilled again, as after new weights; the time `at` must not fall."""
        self.now = max(self.now, at)
        for number, engine in enumerate(self._engines):
            if engine.running:
                engine.advance(self.now)
                engine.stall += self.settings.prefill_seconds * len(engine.running)
                self._forecast(number)

    @property
    def running_seconds(self) -> float:
        return sum(engine.running_seconds for engine in self._engines)

    @property
    def busy_seconds(self) -> float:
        return sum(engine.busy_seconds for engine in self._engines)

    def _forecast(self, number: int) -> None:
        """When this engine's next sequence ends; earlier forecasts become invalid."""
        engine = self._engines[number]
        engine.forecast += 1
        if (end := engine.next_end()) is not None:
            self._push(end, number, engine.forecast)

    def _push(self, time: float, number: int | None, payload: Any) -> None:
        self._serial += 1
        heappush(self._events, (time, self._serial, number, payload))

    def _least_loaded(self) -> int:
        while self._loads[0][0] != self._engines[self._loads[0][2]].load:
            heappop(self._loads)
        return self._loads[0][2]

    def _push_load(self, number: int) -> None:
        if len(self._loads) > 8 * len(self._engines):
            self._loads = [(e.load, self._rng.random(), i) for i, e in enumerate(self._engines) if i != number]
            heapify(self._loads)
        heappush(self._loads, (self._engines[number].load, self._rng.random(), number))


class _Engine:
    """One engine; `clock` counts the decoding steps it has made, in fractions as well."""

    __slots__ = (
        *("busy_seconds", "clock", "forecast", "running", "running_seconds", "serial", "settings", "stall", "time"),
        "waiting",
    )

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.clock = self.time = self.stall = self.running_seconds = self.busy_seconds = 0.0
        self.forecast = self.serial = 0
        self.running: list[tuple[float, int, Any]] = []  # ordered by the clock reading at which they end
        self.waiting: deque[tuple[Any, int]] = deque()

    @property
    def load(self) -> int:
        return len(self.running) + len(self.waiting)

    def add(self, rollout: Any, num_tokens: int) -> None:
        if len(self.running) >= self.settings.slots:
            self.waiting.append((rollout, num_tokens))
            return
        self.stall += self.settings.prefill_seconds
        self.serial += 1
        heappush(self.running, (self.clock + num_tokens, self.serial, rollout))

    def advance(self, time: float) -> None:
        elapsed, self.time = time - self.time, time
        if not self.running:
            return
        self.busy_seconds += elapsed
        self.running_seconds += elapsed * len(self.running)
        stalled = min(self.stall, elapsed)
        self.stall -= stalled
        self.clock += (elapsed - stalled) / self.settings.step_time(len(self.running))

    def next_end(self) -> float | None:
        if not self.running:
            return None
        steps = max(0.0, self.running[0][0] - self.clock)
        return self.time + self.stall + steps * self.settings.step_time(len(self.running))

    def finish(self, time: float) -> list[Any]:
        """Sequences that end now, at the time from `next_end`; waiting ones take their places."""
        self.advance(time)
        self.stall = 0.0
        self.clock = self.running[0][0]
        ended = []
        while self.running and self.running[0][0] <= self.clock + _ROUNDING:
            ended.append(heappop(self.running)[2])
        while self.waiting and len(self.running) < self.settings.slots:
            self.add(*self.waiting.popleft())
        return ended
