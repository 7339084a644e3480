"""Seconds per step and states per hour of golden redaction, simulated before engines are paid for. Pure.

A step visits S states. Each state is prefilled once, and its K actions are each continued by R rollouts on the fleet of
engines (`verl_ext.simulation.engine_model`). When the last rollout of an action is over, its programs queue at the
sandbox's workers. When the last program is over, the actor is trained on the states, and the weights are sent:

    one after the other     step = visits + update + weights
    golden.visit_ahead      step = max(visits of the next states, update) + weights

In both, `other_seconds` (log-probs before and after, records) count as part of the update.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass, fields
from heapq import heapify, heapreplace

from verl_ext.simulation.engine_model import EngineFleet, EngineSettings


@dataclass(frozen=True)
class PaceScenario:
    """Sizes and times of a simulated run; raises ValueError on a value out of range. Times in seconds.

    The defaults: a 4B model in bfloat16 on 8 H100s, prompts of 4,000 tokens, programs of 300. They come from data
    sheets as in `recipe.fast_dapo.simulation.scenario`, not measured. A decoding step reads 8 GB of weights at 70 % of
    3.35 TB/s and launches its kernels (3.4 + 3.5 ms); a sequence adds 0.27 ms for the 147 kB per token of its cache
    (36 layers, 8 heads of 128, keys and values) and 0.02 ms of arithmetic. A prefill takes 8e9 operations per token at
    50 % of 990 TFLOP/s; a step of the optimizer five times that: forward, its recomputation, twice that backward, and
    the measurement after it.
    """

    states: int = 16  # entries_per_update * sync_every
    actions: int = 12  # per state; num_next_tokens draws give fewer different ones
    rollouts: int = 8  # per action
    median_tokens: float = 300.0
    sigma: float = 0.5
    max_tokens: int = 1024
    visit_ahead: bool = False

    num_engines: int = 8
    slots: int = 512
    step_seconds: float = 0.007
    sequence_seconds: float = 2.9e-4
    prefill_seconds: float = 0.065  # per state
    call_seconds: float = 0.1  # latency of a call to the engines; a visit makes two

    workers: int = 64  # of the sandbox
    program_seconds: float = 0.05  # per rollout, all its pairs together
    same_programs: float = 0.3  # share of rollouts whose program another of the state has: judged once

    ranks: int = 8
    update_state_seconds: float = 0.32  # per state and step of the optimizer on one rank
    inner_steps: float = 3.0  # steps per update, on average
    other_seconds: float = 0.5
    weights_seconds: float = 2.0  # to the engines

    num_steps: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is bool or field.name == "seed":
                continue
            low = 1 if field.type is int else 0
            if not low <= value < math.inf or (field.type is int and type(value) is not int):
                raise ValueError(f"{field.name} must be a finite number of at least {low}, got {value!r}")
        if self.same_programs >= 1 or self.median_tokens < 1:
            raise ValueError("same_programs must be below 1, and median_tokens at least 1")
        self.engines()

    def engines(self) -> EngineSettings:
        """The fleet; a state's prefill is part of `visit_seconds`."""
        return EngineSettings(self.num_engines, self.slots, self.step_seconds, self.sequence_seconds)

    @property
    def update_seconds(self) -> float:
        """The actor's part of a step; a rank takes whole states."""
        states = math.ceil(self.states / self.ranks)
        return states * self.update_state_seconds * self.inner_steps + self.other_seconds


@dataclass(frozen=True)
class Pace:
    """What a simulation found, per step on average.

    Attributes:
        states_per_hour: `golden/states_per_hour` of a run.
        step_seconds: A whole step.
        visit_seconds: From the first call to the last program.
        generation_seconds: The part of it until the last rollout.
        update_seconds: See `PaceScenario.update_seconds`.
        engines_busy: Share of the time in which an engine decodes, on average.
    """

    states_per_hour: float
    step_seconds: float
    visit_seconds: float
    generation_seconds: float
    update_seconds: float
    engines_busy: float


def simulate(scenario: PaceScenario) -> Pace:
    """The averages of `num_steps` steps."""
    rng = random.Random(scenario.seed)
    visits = generation = busy = 0.0
    for number in range(scenario.num_steps):
        fleet = EngineFleet(scenario.engines(), seed=scenario.seed + number)
        rollouts_end, end = _visit(scenario, fleet, rng)
        visits, generation, busy = visits + end, generation + rollouts_end, busy + fleet.busy_seconds
    visits, generation = visits / scenario.num_steps, generation / scenario.num_steps
    update = scenario.update_seconds
    step = (max(visits, update) if scenario.visit_ahead else visits + update) + scenario.weights_seconds
    share = busy / scenario.num_steps / scenario.num_engines / step
    return Pace(3600 * scenario.states / step, step, visits, generation, update, share)


def _visit(scenario: PaceScenario, fleet: EngineFleet, rng: random.Random) -> tuple[float, float]:
    """When the last rollout and the last program of a step's visits are over, in seconds after the first call."""
    # The first call samples the actions: its tokens cost a decoding step.
    prefill = math.ceil(scenario.states / scenario.num_engines) * scenario.prefill_seconds
    start = 2 * scenario.call_seconds + prefill + scenario.step_seconds
    waiting: Counter[tuple[int, int]] = Counter()
    for state in range(scenario.states):
        for action in range(scenario.actions):
            waiting[state, action] = scenario.rollouts
            for _ in range(scenario.rollouts):
                tokens = round(scenario.median_tokens * math.exp(rng.gauss(0.0, scenario.sigma)))
                fleet.submit((state, action), min(max(1, tokens), scenario.max_tokens), start)
    free = [0.0] * scenario.workers
    heapify(free)
    now = last = start
    while (found := fleet.next_finished()) is not None:
        now, place = found
        waiting[place] -= 1
        if waiting[place]:
            continue
        for _ in range(scenario.rollouts):
            if rng.random() < scenario.same_programs:
                continue
            end = max(free[0], now) + scenario.program_seconds
            heapreplace(free, end)
            last = max(last, end)
    return now, max(now, last)
