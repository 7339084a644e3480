"""Simulated runs of the curriculum: the product's controller, predictor and screening, with time from a model.

What decides is real: `DataController` with its screening plans and `PassRatePosterior`, driven as `collector.py` does
it. What is simulated is what costs time on a cluster: rollouts (`engine_model.py`, with answers from `workload.py`),
the training of a batch and the synchronisation of weights. The policy does not learn.

    merged      a round is one call; it ends with its slowest rollout; as many rounds as a batch needs
    streaming   a prompt that finishes is handled at once, and what it leads to is sent at once; the step's generation
                ends when nothing is in flight

Every call adds `call_seconds` of latency between the trainer and the engines, both ways together.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.predictor import PassRatePosterior
from recipe.fast_dapo.curriculum.predictor_settings import PredictorSettings
from recipe.fast_dapo.curriculum.records import Prompt, Sample
from recipe.fast_dapo.curriculum.screening import SCREENINGS
from recipe.fast_dapo.settings import PREDICTORS
from recipe.fast_dapo.simulation.engine_model import EngineFleet, EngineSettings
from recipe.fast_dapo.simulation.workload import Workload, WorkloadSettings


@dataclass(frozen=True)
class Scenario:
    """One simulated run; raises ValueError on a value out of range. Times in seconds.

    The defaults: one engine is one H100 (3.35 TB/s, 990 TFLOP/s in bf16) with a model of 7.6e9 parameters in bf16
    whose key-value cache has 57 kB a token, at 70 % of the bandwidth and 50 % of the arithmetic. A decoding step reads
    the weights (6.5 ms) and launches its kernels (3.5 ms); each sequence adds 75 us for a cache of 3,000 tokens and 30
    us of arithmetic. Training costs 8 operations a parameter and token at 40 %: 0.23 s for a rollout of 1,500 tokens.
    """

    n: int = 4
    n_continue: int = 12
    train_batch_size: int = 64
    gen_batch_size: int = 192
    schedule: str = "streaming"
    predictor: str = "none"
    screening: str = "fixed"
    screening_chunk: int = 1
    max_staleness: int | None = 4
    max_num_gen_batches: int = 1000

    num_engines: int = 8
    slots: int = 256
    step_seconds: float = 0.010
    sequence_seconds: float = 1.0e-4
    prefill_seconds: float = 0.005
    host_seconds: float = 0.0
    call_seconds: float = 0.1
    update_seconds: float = 10.0  # of a step beside generation, whatever its size: weight sync and overhead
    update_rollout_seconds: float = 0.23  # of training on one rollout on one engine's devices; all engines share it

    num_prompts: int = 20_000
    never: float = 0.3
    always: float = 0.2
    alpha: float = 0.7
    beta: float = 0.7
    median_tokens: float = 1000.0
    sigma: float = 0.8
    max_tokens: int = 8192
    hard_factor: float = 2.0

    num_steps: int = 12
    warmup_steps: int = 2  # not counted: the first step starts with empty queues
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("predictor", PREDICTORS), ("screening", SCREENINGS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}")
        if self.screening == "sequential" and (self.schedule, self.predictor) != ("streaming", "posterior"):
            raise ValueError("screening=sequential needs schedule=streaming and predictor=posterior")
        for name, low in (("screening_chunk", 1), ("num_steps", 1), ("warmup_steps", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise ValueError(f"{name} must be an int of at least {low}, got {value!r}: change {name}")
        if self.warmup_steps >= self.num_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps} of num_steps={self.num_steps} leave nothing to count")
        for name in ("call_seconds", "update_seconds", "update_rollout_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)!r}: change {name}")
        if self.num_prompts < self.gen_batch_size:
            raise ValueError(
                f"expected at least gen_batch_size={self.gen_batch_size} prompts in the pool, got {self.num_prompts}: "
                "raise num_prompts or lower gen_batch_size"
            )
        for check in (self.curriculum, self.engines, self.workload):
            check()

    def curriculum(self) -> CurriculumSettings:
        return CurriculumSettings(train_on="qualified", **self._values(CurriculumSettings.model_fields))

    def engines(self) -> EngineSettings:
        return self._part(EngineSettings)

    def workload(self) -> WorkloadSettings:
        return self._part(WorkloadSettings)

    def _part(self, kind: type) -> Any:
        return kind(**self._values(field.name for field in dataclasses.fields(kind)))

    def _values(self, names: Iterable[str]) -> dict[str, Any]:
        mine = vars(self)
        return {name: mine[name] for name in names if name in mine}


@dataclass
class SimulatedStep:
    """What one step cost. Times in seconds."""

    generation_seconds: float = 0.0
    update_seconds: float = 0.0
    rollouts: int = 0  # generated
    tokens: int = 0
    trained_rollouts: int = 0
    trained_prompts: int = 0
    screened: int = 0  # prompts
    qualified: int = 0
    rounds: int = 0  # generation calls; streaming: looks at what has finished
    running_seconds: float = 0.0  # sequence-seconds, see engine_model.py
    sample_age: float = 0.0  # mean weight versions of the trained rollouts


@dataclass
class _Call:
    """Rollouts of one prompt that are under way."""

    missing: int
    samples: list[Sample] = field(default_factory=list)


class CurriculumSimulation:
    """A run that can be continued step by step.

    Args:
        scenario: All settings.
        workload: Prompts and answers; None: drawn from the scenario.

    Attributes:
        now: Simulated seconds since the start.
        controller, predictor: The real ones.
    """

    def __init__(self, scenario: Scenario, workload: Workload | None = None) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.version = 0
        self.workload = workload or Workload(scenario.workload(), scenario.seed)
        if self.workload.mixed_share(scenario.n) == 0:
            raise ValueError(
                f"no prompt of the pool can be mixed among n={scenario.n}: nothing would ever be trained on"
            )
        self.fleet = EngineFleet(scenario.engines(), scenario.seed)
        self.predictor: PassRatePosterior | None = None
        if scenario.predictor == "posterior":
            self.predictor = PassRatePosterior(scenario.num_prompts, PredictorSettings(seed=scenario.seed))
        chunk = scenario.screening_chunk if scenario.screening == "sequential" else None
        self.controller = DataController(scenario.curriculum(), chunk)
        self._calls: dict[str, _Call] = {}
        self._num_fetched = 0

    def run(self) -> list[SimulatedStep]:
        """All steps of the scenario, those of the warm-up included."""
        return [self.step() for _ in range(self.scenario.num_steps)]

    def step(self) -> SimulatedStep:
        """Generation until a batch is ready, then training on it.

        Raises:
            TooManyGenerationBatches: after `max_num_gen_batches` rounds without a batch.
        """
        controller, start, running = self.controller, self.now, self.fleet.running_seconds
        controller.reset_step_metrics()
        controller.evict(self.version)
        if self.predictor is not None:
            self.predictor.set_weight_version(self.version)
        if self.scenario.schedule == "streaming":
            self._generate_streaming()
        else:
            while not controller.is_ready_for_training():
                self._generate_round()
        controller.get_training_data()
        counts = controller.metrics()
        step = SimulatedStep(
            generation_seconds=self.now - start,
            rollouts=int(counts["curriculum/generated_rollouts"]),
            tokens=int(counts["curriculum/generated_tokens"]),
            trained_rollouts=int(counts["curriculum/trained_rollouts"]),
            trained_prompts=int(counts["curriculum/trained"]),
            screened=int(counts["curriculum/screened"]),
            qualified=int(counts["curriculum/qualified"]),
            rounds=int(counts["curriculum/rounds"]),
            running_seconds=self.fleet.running_seconds - running,
            sample_age=counts["curriculum/sample_age/mean"],
        )
        step.update_seconds = (
            self.scenario.update_seconds
            + self.scenario.update_rollout_seconds * step.trained_rollouts / self.scenario.num_engines
        )
        self.now += step.update_seconds
        self.version += 1
        return step

    # ------------------------------ as collector.py does it ----------------------------

    def _generate_round(self) -> None:
        self.controller.check_num_gen_batches()
        self._add_prompts()
        self._send()
        finished = {}
        while self.controller.num_in_flight > len(finished):
            finished |= self._finished()
        self._take(finished, more_to_come=False)

    def _generate_streaming(self) -> None:
        while True:
            if not self.controller.num_in_flight:
                self.controller.check_num_gen_batches()
            self._add_prompts()
            self._send()
            if not self.controller.num_in_flight:
                return
            self._take(self._finished(), more_to_come=True)

    def _add_prompts(self) -> None:
        while (wanted := self.controller.num_prompts_wanted) > 0:
            if self.predictor is None:  # a loader gives whole batches; what is not needed waits
                indices = self.workload.next_indices(self.scenario.gen_batch_size)
            else:
                live = [int(index) for index in self.controller.live_indices()]
                indices = self.predictor.choose(wanted, live).tolist()
            if not indices:
                return
            prompts = [Prompt(f"p{self._num_fetched + i}", index) for i, index in enumerate(indices)]
            self._num_fetched += len(prompts)
            self.controller.add_new_prompts_first_generation_phase(prompts)
        if self.predictor is not None and self.controller.screening_chunk is not None:
            positions = [int(prompt.index) for prompt in self.controller.prompts_to_screen()]
            self.controller.set_posteriors(self.predictor.posteriors(positions))

    def _send(self) -> None:
        """Everything that the controller wants generated now, to the engines."""
        sent_at = self.now + self.scenario.call_seconds
        for entry in self.controller.get_generation_inputs():
            uid, index = entry.prompt.uid, int(entry.prompt.index)
            successes, tokens = self.workload.draw(index, entry.num_samples)
            call = self._calls[uid] = _Call(entry.num_samples)
            for number, (success, length) in enumerate(zip(successes, tokens, strict=True)):
                key = f"{uid}_{entry.first_session + number}"
                call.samples.append(Sample(key, success, self.version, length))
                self.fleet.submit(uid, length, sent_at)

    def _finished(self) -> dict[str, list[Sample]]:
        """Waits until at least one prompt's rollouts have ended; all prompts that have by then."""
        done: dict[str, list[Sample]] = {}
        while not done:
            ended = self.fleet.next_finished()
            if ended is None:
                raise RuntimeError("nothing is under way and no batch is ready: the pool has too few prompts")
            while ended is not None:
                self.now = max(self.now, ended[0])
                self._end_rollout(ended[1], done)
                ended = self.fleet.next_finished(until=self.now)
        return done

    def _end_rollout(self, uid: str, done: dict[str, list[Sample]]) -> None:
        call = self._calls[uid]
        call.missing -= 1
        if not call.missing:
            done[uid] = self._calls.pop(uid).samples

    def _take(self, finished: dict[str, list[Sample]], *, more_to_come: bool) -> None:
        result = self.controller.update_prompts(finished, self.version, more_to_come=more_to_come)
        if self.predictor is not None:
            for outcome in result.outcomes:
                self.predictor.observe(int(outcome.index), outcome.passes, outcome.samples - outcome.passes)


def summarize(steps: list[SimulatedStep], scenario: Scenario) -> dict[str, float]:
    """Means over the steps after the warm-up, under the names of `COLUMNS`."""
    counted = steps[scenario.warmup_steps :]
    total = {f.name: sum(getattr(step, f.name) for step in counted) for f in dataclasses.fields(SimulatedStep)}
    num, prompts = len(counted), total["trained_prompts"]
    seconds = total["generation_seconds"] + total["update_seconds"]
    capacity = total["generation_seconds"] * scenario.num_engines * scenario.slots
    return {
        "generation_s": total["generation_seconds"] / num,
        "step_s": seconds / num,
        "generation_share": total["generation_seconds"] / seconds,
        "rollouts_a_prompt": total["rollouts"] / prompts,
        "tokens_a_prompt": total["tokens"] / prompts,
        "screening_rounds": total["screened"] / scenario.gen_batch_size / num,
        "calls": total["rounds"] / num,
        "qualified_share": total["qualified"] / max(1, total["screened"]),
        "slots_used": total["running_seconds"] / capacity if capacity else 0.0,
        "sample_age": total["sample_age"] / num,
        "engine_s_a_prompt": total["generation_seconds"] * scenario.num_engines / prompts,
        "prompts_a_hour": 3600 * prompts / seconds,
    }


COLUMNS: dict[str, str] = {
    "generation_s": "seconds of generation per step",
    "step_s": "seconds per step",
    "generation_share": "share of a step that generates",
    "rollouts_a_prompt": "rollouts generated a trained prompt",
    "tokens_a_prompt": "response tokens generated a trained prompt",
    "screening_rounds": "rounds of screening a step (prompts screened / gen_batch_size)",
    "calls": "generation calls a step; streaming: times that something had finished",
    "qualified_share": "share of the screened prompts that were mixed",
    "slots_used": "share of the engines' slots in use while generating",
    "sample_age": "mean age of a trained rollout in weight versions",
    "engine_s_a_prompt": "engine-seconds of generation a trained prompt",
    "prompts_a_hour": "trained prompts an hour",
}
"""Name -> meaning of what `summarize` returns."""
