"""Simulated runs of the curriculum: the real controller, predictor and screening, with modelled times.

All decisions are real: `DataController` with its screening plans and `PassRatePosterior`, driven as in `collector.py`.
Only the parts that cost time on a cluster are simulated: rollouts (`engine_model.py`, with answers from `workload.py`),
the training of a batch and the synchronisation of weights. The policy does not learn.

    merged      a round is one call; it ends with its slowest rollout; as many rounds as a batch needs
    streaming   a prompt that finishes is handled at once, and what it leads to is sent at once; the step's generation
                ends when nothing is in flight

verl's asynchronous modes stream, and generation ends when a batch is ready:

    colocate_async   rollouts in flight pause while the batch is trained on, and are prefilled again after it
    separate_async   engines and training have separate devices and generation never stops; the engines pause while they
                     get new weights, after `updates` updates

Every call adds `call_seconds` of latency between the trainer and the engines, both ways together.
"""

import dataclasses
from dataclasses import dataclass, field

from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.predictor import PassRatePosterior
from recipe.fast_dapo.curriculum.predictor_settings import PredictorSettings
from recipe.fast_dapo.curriculum.records import Prompt, Sample
from recipe.fast_dapo.simulation.scenario import SEPARATE, SYNC, Scenario
from recipe.fast_dapo.simulation.workload import Workload
from verl_ext.simulation.engine_model import EngineFleet


@dataclass
class SimulatedStep:
    """The cost of one step. Times in seconds."""

    generation_seconds: float = 0.0  # in which the trainer waits
    update_seconds: float = 0.0
    engine_seconds: float = 0.0  # in which engines may generate
    rollouts: int = 0  # generated
    tokens: int = 0
    trained_rollouts: int = 0
    trained_prompts: int = 0
    screened: int = 0  # prompts
    qualified: int = 0
    rounds: int = 0  # generation calls; streaming: polls of finished rollouts
    running_seconds: float = 0.0  # sequence-seconds, see engine_model.py
    sample_age: float = 0.0  # mean weight versions of the trained rollouts


@dataclass
class _Call:
    """Rollouts of one prompt in progress."""

    missing: int
    samples: list[Sample] = field(default_factory=list)


class CurriculumSimulation:
    """A simulated run, advanced step by step.

    Args:
        scenario: All settings.
        workload: Prompts and answers; None: drawn as the scenario says.

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
                f"no prompt of the pool can be mixed among n={scenario.n}: no batch would ever be trained on"
            )
        self.fleet = EngineFleet(scenario.engines(), scenario.seed)
        self.predictor: PassRatePosterior | None = None
        if scenario.predictor == "posterior":
            self.predictor = PassRatePosterior(scenario.num_prompts, PredictorSettings(seed=scenario.seed))
        chunk = scenario.screening_chunk if scenario.screening == "sequential" else None
        self.controller = DataController(scenario.curriculum(), chunk)
        self._calls: dict[str, _Call] = {}
        self._paused = 0.0  # seconds for which the engines were paused: their clock is behind by this
        self._num_fetched = 0

    def run(self) -> list[SimulatedStep]:
        """Run all steps of the scenario, including the warm-up."""
        return [self.step() for _ in range(self.scenario.num_steps)]

    def step(self) -> SimulatedStep:
        """Generate until a batch is ready, then train on it.

        Raises:
            TooManyGenerationBatches: after `max_num_gen_batches` rounds without a batch.
        """
        scenario, controller = self.scenario, self.controller
        start, running, paused = self.now, self.fleet.running_seconds, self._paused
        step = SimulatedStep()
        for _ in range(scenario.updates_per_step):
            began = self.now
            self._begin()
            if scenario.schedule == "streaming":
                self._generate_streaming()
            else:
                while not controller.is_ready_for_training():
                    self._generate_round()
            step.generation_seconds += self.now - began
            self._train(sum(len(group.samples) for group in controller.get_training_data()))
        if scenario.mode == SEPARATE:
            self._pause(scenario.sync_seconds)
        self.version += 1
        counts = controller.metrics()
        controller.reset_step_metrics()
        step.update_seconds = self.now - start - step.generation_seconds
        step.engine_seconds = self.now - start - (self._paused - paused)
        step.rollouts = int(counts["curriculum/generated_rollouts"])
        step.tokens = int(counts["curriculum/generated_tokens"])
        step.trained_rollouts = int(counts["curriculum/trained_rollouts"])
        step.trained_prompts = int(counts["curriculum/trained"])
        step.screened = int(counts["curriculum/screened"])
        step.qualified = int(counts["curriculum/qualified"])
        step.rounds = int(counts["curriculum/rounds"])
        step.running_seconds = self.fleet.running_seconds - running
        step.sample_age = counts["curriculum/sample_age/mean"]
        return step

    def _begin(self) -> None:
        """The weights may be new."""
        self.controller.end_update()
        self.controller.evict(self.version)
        if self.predictor is not None:
            self.predictor.set_weight_version(self.version)

    def _train(self, num_rollouts: int) -> None:
        """One update; on separate devices it does not stop generation."""
        scenario = self.scenario
        if scenario.mode != SEPARATE:
            self._pause(scenario.update_seconds + scenario.update_rollout_seconds * num_rollouts / scenario.num_engines)
            return
        overhead = (scenario.update_seconds - scenario.sync_seconds) / scenario.updates_per_step
        seconds = overhead + scenario.update_rollout_seconds * num_rollouts / scenario.train_devices
        self._generate_until(self.now + seconds)

    def _pause(self, seconds: float) -> None:
        """Pause the engines; sequences in progress are prefilled again afterwards."""
        self.now += seconds
        self._paused += seconds
        self.fleet.interrupt(self.now - self._paused)

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
            is_complete = self.scenario.mode != SYNC and self.controller.is_ready_for_training()
            if is_complete or not self.controller.num_in_flight:
                return
            self._take(self._finished(), more_to_come=True)

    def _generate_until(self, end: float) -> None:
        """While the trainer is busy, finished rollouts are handled immediately."""
        self.controller.begin_update()
        while True:
            self._add_prompts()
            self._send()
            finished = self._finished(until=end)
            if not finished:
                break
            self._take(finished, more_to_come=True)
        self.now = end

    def _add_prompts(self) -> None:
        while (wanted := self.controller.num_prompts_wanted) > 0:
            if self.predictor is None:  # a loader returns whole batches; prompts not needed wait
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
        """Send the engines everything that the controller wants generated now."""
        sent_at = max(self.fleet.now, self.now + self.scenario.call_seconds - self._paused)
        for entry in self.controller.get_generation_inputs():
            uid, index = entry.prompt.uid, int(entry.prompt.index)
            successes, tokens = self.workload.draw(index, entry.num_samples)
            call = self._calls[uid] = _Call(entry.num_samples)
            for number, (success, length) in enumerate(zip(successes, tokens, strict=True)):
                key = f"{uid}_{entry.first_session + number}"
                call.samples.append(Sample(key, success, self.version, length))
                self.fleet.submit(uid, length, sent_at)

    def _finished(self, until: float = float("inf")) -> dict[str, list[Sample]]:
        """Wait until at least one prompt's rollouts have ended, or until the given time; return all prompts that have
        ended."""
        done: dict[str, list[Sample]] = {}
        while not done:
            ended = self.fleet.next_finished(until - self._paused)
            if ended is None and until < float("inf"):
                return done
            if ended is None:
                raise RuntimeError("nothing is in flight and no batch is ready: the pool has too few prompts")
            while ended is not None:
                self.now = max(self.now, ended[0] + self._paused)
                self._end_rollout(ended[1], done)
                ended = self.fleet.next_finished(until=self.now - self._paused)
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
    capacity = total["engine_seconds"] * scenario.num_engines * scenario.slots
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
        "engine_s_a_prompt": total["engine_seconds"] * scenario.num_engines / prompts,
        "prompts_a_hour": 3600 * prompts / seconds,
    }


COLUMNS: dict[str, str] = {
    "generation_s": "seconds of generation per step that training waits for",
    "step_s": "seconds per step",
    "generation_share": "share of a step that training waits for generation",
    "rollouts_a_prompt": "rollouts generated per trained prompt",
    "tokens_a_prompt": "response tokens generated per trained prompt",
    "screening_rounds": "rounds of screening per step (prompts screened / gen_batch_size)",
    "calls": "generation calls per step; streaming: polls of finished rollouts",
    "qualified_share": "share of the screened prompts that were mixed",
    "slots_used": "share of the engines' slots in use while generating",
    "sample_age": "mean age of a trained rollout in weight versions",
    "engine_s_a_prompt": "engine-seconds of generation per trained prompt",
    "prompts_a_hour": "trained prompts per hour",
}
"""Name -> meaning of the values that `summarize` returns."""
