"""Two-phase curriculum sampling: which prompts are generated next, and which are trained on.

Every prompt is screened with n rollouts. One that always fails or always passes has zero advantage everywhere and is
dropped; one with 0 < pass rate < 1 gets n_continue more rollouts, and joins a training batch with all n + n_continue.
Screening of new prompts and continuation of those that qualified share one generation call (`schedule="merged"`):

    while not controller.is_ready_for_training():
        controller.add_new_prompts_first_generation_phase(new_prompts)
        inputs = controller.get_generation_inputs()
        result = controller.update_prompts(generate(inputs), weight_version)   # then free result.released_keys
    batch = controller.get_training_data()
    ...                                                                        # update the weights, then
    result = controller.evict(weight_version + 1)                              # leftovers have aged: free these too

With `schedule="streaming"` nothing waits for the slowest rollout: a prompt is continued the moment its screening is
mixed, and new ones are admitted only until the expected number of ready prompts covers the batch (`admission.py`):

    while True:
        controller.add_new_prompts_first_generation_phase(fetch(controller.num_prompts_wanted))
        dispatch(controller.get_generation_inputs())
        if not controller.num_in_flight: break
        controller.update_prompts(finished(), weight_version, more_to_come=True)

All of a step's rollouts then come from the same weights; what is ready beyond the batch waits for the next step.

How a prompt is screened is a `ScreeningPlan`, fixed before its first rollout (`screening.py`): by default, all n at
once. Only small records live here; the tensors stay in the data plane under `Sample.key`. No prompt and no rollout is
lost or duplicated (`conservation`, `rollout_conservation`), a refused call changes nothing, and a step costs O(1) a
prompt whatever the size of the buffer.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recipe.fast_dapo.admission import ScreeningRecord, num_to_admit
from recipe.fast_dapo.aged_queue import AgedQueue
from recipe.fast_dapo.curriculum_metrics import CurriculumCounts, explain_missing_batch
from recipe.fast_dapo.curriculum_records import (
    CurriculumSettings,
    GenerationInput,
    Phase,
    Prompt,
    Sample,
    TrainingGroup,
    UpdateResult,
)
from recipe.fast_dapo.screening import ScreeningPlan, fixed_plan

_STATE_VERSION = 2
_FIXED_SETTINGS = ("n", "n_continue", "success_threshold", "correction")
_ROLLOUT_FATES = ("trained", "uninformative", "expired", "failed", "set_aside")


class TooManyGenerationBatches(RuntimeError):
    """`max_num_gen_batches` rounds passed without a training batch. The controller's state is intact."""


class DataController:
    """The curriculum's state machine: first phase -> second phase -> training, each a FIFO.

    Args:
        settings: Sizes and limits.
        plan_screening: Gives the plan of a prompt whose screening begins; None: all n rollouts at once.
    """

    def __init__(
        self, settings: CurriculumSettings, plan_screening: Callable[[Prompt], ScreeningPlan] | None = None
    ) -> None:
        self.settings = settings
        self.prompts_for_first_generation_phase: deque[Prompt] = deque()
        self.prompts_for_second_generation_phase = AgedQueue[TrainingGroup]()
        self.prompts_for_training = AgedQueue[TrainingGroup]()
        self.weight_version = 0  # the newest one heard of
        self._plan_screening = plan_screening or (lambda prompt: fixed_plan(settings.n))
        self._partly_screened: deque[TrainingGroup] = deque()  # wait for their next rollouts of screening
        self._in_flight: dict[str, TrainingGroup] = {}  # with the samples from before the call
        self._num_continuing = 0  # of those in flight
        self._live_uids: dict[str, int | str] = {}  # to the prompt's index
        self._live_keys: set[str] = set()
        self._failures: dict[str, int] = {}  # failed calls in a row, by uid
        self._counts = CurriculumCounts(settings.n)
        self._screening_record = ScreeningRecord()

    @property
    def num_prompts_for_training(self) -> int:
        return len(self.prompts_for_training)

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def num_gen_batches(self) -> int:
        """Generation rounds since the last training batch; for streaming, `gen_batch_size` screened prompts are one."""
        window = self._counts.windows["batch"]
        if self.settings.schedule == "streaming":
            return window["screened"] // self.settings.gen_batch_size
        return window["rounds"]

    @property
    def num_prompts_wanted(self) -> int:
        """Prompts to add before the next `get_generation_inputs`."""
        waiting = len(self.prompts_for_first_generation_phase)
        if self.settings.schedule == "streaming":
            return max(0, self._num_to_admit() - waiting)
        return 0 if self.is_ready_for_training() else max(0, self.settings.gen_batch_size - waiting)

    @property
    def screening_price(self) -> float:
        """Rollouts wasted on screening per qualified prompt, discounted: what `screening.plan_screening` asks for."""
        return self._screening_record.price

    def live_indices(self) -> set[int | str]:
        """Indices of all live prompts, for a choice of others."""
        return set(self._live_uids.values())

    def add_new_prompts_first_generation_phase(self, prompts: Iterable[Prompt]) -> None:
        """Queues new prompts for screening; raises ValueError, adding none, if a uid is live or comes twice."""
        prompts = list(prompts)
        uids: dict[str, int | str] = {}
        for prompt in prompts:
            if prompt.uid in self._live_uids or prompt.uid in uids:
                raise ValueError(f"expected a uid that no live prompt has, got {prompt.uid!r}: draw one at every fetch")
            uids[prompt.uid] = prompt.index
        self._live_uids |= uids
        self.prompts_for_first_generation_phase.extend(prompts)
        self._counts.add("added", len(prompts))

    def check_num_gen_batches(self) -> None:
        """Raises TooManyGenerationBatches when no further round is allowed; call it to checkpoint before the end."""
        settings, limit = self.settings, self.settings.max_num_gen_batches
        if limit and self.num_gen_batches >= limit and not self.is_ready_for_training():
            ready, waiting = self.num_prompts_for_training, len(self.prompts_for_second_generation_phase)
            wanted, per_round = settings.train_batch_size, settings.gen_batch_size
            raise TooManyGenerationBatches(
                explain_missing_batch(
                    self._counts, ready, waiting, limit=limit, wanted=wanted, gen_batch_size=per_round
                )
            )

    def get_generation_inputs(self) -> list[GenerationInput]:
        """What to generate now; these prompts are in flight until `update_prompts` hands them back.

        Merged: everything that waits, for one call. Streaming: all continuations, and as many new prompts as the batch
        is expected to need. Continuations come first: they complete the batch, hold samples that age, and are the
        longer jobs, so an engine that serves in order does not end waiting for them.

        Raises:
            TooManyGenerationBatches: see `check_num_gen_batches`; while prompts are in flight, streaming waits for
                them instead.
            RuntimeError: merged, and a call is already in flight.
        """
        streaming = self.settings.schedule == "streaming"
        if self._in_flight and not streaming:
            raise RuntimeError(f"{len(self._in_flight)} prompts are still in flight: call update_prompts first")
        if not self._in_flight:
            self.check_num_gen_batches()
        first, second = self.prompts_for_first_generation_phase, self.prompts_for_second_generation_phase
        num_new = min(self._num_to_admit(), len(first)) if streaming else len(first)
        groups = [second.pop() for _ in range(len(second))]
        self._num_continuing += len(groups)
        groups += self._partly_screened
        self._partly_screened.clear()
        for prompt in (first.popleft() for _ in range(num_new)):
            groups.append(TrainingGroup(prompt, self._plan_screening(prompt)))
        self._in_flight |= {group.prompt.uid: group for group in groups}
        return [self._generation_input(group) for group in groups]

    def update_prompts(
        self, samples: Mapping[str, Sequence[Sample]], weight_version: int, *, more_to_come: bool = False
    ) -> UpdateResult:
        """Takes results of what is in flight and moves every prompt of them on; then evicts, see `evict`.

        Args:
            samples: by uid, in session order. A prompt with fewer samples than asked failed: it goes back to the front
                of its phase and keeps none of the new samples, or is given up after `max_attempts` such calls in a row.
            weight_version: of the current weights; no sample may be newer.
            more_to_come: whether prompts in flight that are missing here are still being generated; otherwise they
                failed.

        Raises:
            ValueError: unknown uid, more samples than asked, a sample key that is live or comes twice, a success that
                is not finite, a sample from the future, a weight version that went back. Nothing has changed then.
        """
        self._check_results(samples, weight_version)
        # A whole call is handled in the order of its dispatch: equal runs give equal batches.
        answered = list(samples if more_to_come else self._in_flight)
        self._counts.add("rounds", 1 if answered else 0)
        retried: list[TrainingGroup] = []
        given_up: list[TrainingGroup] = []
        dropped: list[TrainingGroup] = []
        qualified, ready, released_keys = [], [], []
        for uid in answered:
            group = self._in_flight.pop(uid)
            self._num_continuing -= group.is_qualified
            new = tuple(samples.get(uid, ()))
            self._counts.add("generated_rollouts", len(new))
            self._counts.add("generated_tokens", sum(sample.num_tokens for sample in new))
            if len(new) < self._generation_input(group).num_samples:
                (given_up if self._count_failure(uid) >= self.settings.max_attempts else retried).append(group)
                self._counts.add("failed_rollouts", len(new))
                released_keys += [sample.key for sample in new]
                continue
            self._failures.pop(uid, None)
            self._live_keys.update(sample.key for sample in new)
            group = self._with_samples(group, new)
            if len(group.samples) > group.num_screening > 0:
                ready.append(uid)
                self.prompts_for_training.push(uid, group.version, group)
            elif group.is_qualified:
                qualified.append(uid)
                self.prompts_for_second_generation_phase.push(uid, group.version, group)
            elif group.plan.next_rollouts(group.num_passes, len(group.samples)):
                self._partly_screened.append(group)
            else:
                dropped.append(group)
        self._counts.add("failed", len(retried) + len(given_up))
        self._counts.add("given_up", len(given_up))
        for group in reversed(retried):  # so that they stand at the front in their old order
            self._put_back(group)
        self._counts.add("uninformative_rollouts", sum(len(group.samples) for group in dropped))
        self._counts.add("failed_rollouts", sum(len(group.samples) for group in given_up))
        dropped += given_up
        self._forget(dropped)
        evicted = self.evict(weight_version)
        return UpdateResult(
            (*released_keys, *(sample.key for group in dropped for sample in group.samples), *evicted.released_keys),
            (*(group.prompt.uid for group in dropped), *evicted.released_uids),
            *(tuple(qualified), tuple(ready), tuple(group.prompt.uid for group in (*retried, *given_up))),
        )

    def evict(self, weight_version: int) -> UpdateResult:
        """Drops samples that are too old under `weight_version`, then the stalest ready prompts beyond the bound.

        Call it after a weight update: leftovers age without a generation round. A prompt whose oldest sample is more
        than `max_staleness` versions behind expires: its samples are released, and it is screened anew, before the
        prompts that wait. The bound, `train_batch_size + max_buffer_prompts`, never costs a batch; staleness can.
        Prompts in flight are judged when they return. Raises ValueError if the version fell.
        """
        self._check_weight_version(weight_version)
        self.weight_version = int(weight_version)
        settings, ready, expired, overflow = self.settings, self.prompts_for_training, [], []
        if settings.max_staleness is not None:
            oldest_allowed = self.weight_version - settings.max_staleness
            for queue in (self.prompts_for_second_generation_phase, ready):
                while queue.oldest_version is not None and queue.oldest_version < oldest_allowed:
                    expired.append(queue.pop_stalest())
            expired += [group for group in self._partly_screened if group.version < oldest_allowed]
            self._partly_screened = deque(g for g in self._partly_screened if g.version >= oldest_allowed)
            self._counts.add("expired", len(expired))
        if settings.max_buffer_prompts is not None:
            surplus = max(0, len(ready) - settings.train_batch_size - settings.max_buffer_prompts)
            overflow = [ready.pop_stalest() for _ in range(surplus)]
            self._counts.add("evicted_overflow", surplus)
        keys = tuple(sample.key for group in (*expired, *overflow) for sample in group.samples)
        self._counts.add("expired_rollouts", len(keys))
        self._live_keys.difference_update(keys)
        self._forget(overflow)
        self.prompts_for_first_generation_phase.extendleft(group.prompt for group in reversed(expired))
        return UpdateResult(keys, tuple(group.prompt.uid for group in overflow))

    def is_ready_for_training(self) -> bool:
        return self.num_prompts_for_training >= self.settings.train_batch_size

    def get_training_data(self) -> list[TrainingGroup]:
        """Takes out the `train_batch_size` prompts that finished first; raises RuntimeError if there are fewer.

        With `correction="continuation_only"` a group's first `num_screening` samples are not to be trained on.
        """
        ready, wanted = self.num_prompts_for_training, self.settings.train_batch_size
        if ready < wanted:
            raise RuntimeError(f"{ready} of {wanted} prompts are ready: generate until is_ready_for_training()")
        batch = [self.prompts_for_training.pop() for _ in range(wanted)]
        self._forget(batch)
        self._counts.reset("batch")
        trained = [sample for group in batch for sample in self.trained_samples(group)]
        self._counts.add("trained", wanted)
        self._counts.add("trained_rollouts", len(trained))
        self._counts.add("set_aside_rollouts", sum(len(group.samples) for group in batch) - len(trained))
        self._counts.add("trained_tokens", sum(sample.num_tokens for sample in trained))
        self._counts.add_trained_ages([self.weight_version - sample.version for sample in trained])
        return batch

    def trained_samples(self, group: TrainingGroup) -> tuple[Sample, ...]:
        """The samples of a finished group that are trained on."""
        first = group.num_screening if self.settings.correction == "continuation_only" else 0
        return group.samples[first:]

    # ------------------------------ what is known of it all ------------------------------

    def metrics(self) -> dict[str, float]:
        """By the names of `METRICS`: counts since `reset_step_metrics`, totals of the run, and the queues now."""
        rollouts = self.rollout_conservation()
        return self._counts.metrics() | {
            "curriculum/first_phase_prompts": float(len(self.prompts_for_first_generation_phase)),
            "curriculum/second_phase_prompts": float(len(self.prompts_for_second_generation_phase)),
            "curriculum/ready_prompts": float(self.num_prompts_for_training),
            "curriculum/in_flight_prompts": float(len(self._in_flight)),
            "curriculum/num_gen_batches": float(self.num_gen_batches),
            "curriculum/buffered_rollouts": float(rollouts["buffered"]),
            "curriculum/unaccounted_rollouts": float(2 * rollouts["generated"] - sum(rollouts.values())),
            "curriculum/expected_qualified_share": self._screening_record.qualified_share,
        }

    def reset_step_metrics(self) -> None:
        self._counts.reset("step")

    def conservation(self) -> dict[str, int]:
        """Prompts by fate since the start of the run: `added` is the sum of all others, at any time."""
        fates = ("added", "all_wrong", "all_right", "evicted_overflow", "given_up", "trained")
        live = len(self.prompts_for_first_generation_phase) + len(self._partly_screened) + len(self._in_flight)
        live += len(self.prompts_for_second_generation_phase) + self.num_prompts_for_training
        return {name: self._counts.windows["total"][name] for name in fates} | {"live": live}

    def rollout_conservation(self) -> dict[str, int]:
        """Rollouts by fate since the start of the run: `generated` is the sum of all others, at any time."""
        total = self._counts.windows["total"]
        fates = {name: total[f"{name}_rollouts"] for name in ("generated", *_ROLLOUT_FATES)}
        return fates | {"buffered": len(self._live_keys)}

    def live_uids(self) -> set[str]:
        """Uids of all live prompts: whose rows the data plane must still have."""
        return set(self._live_uids)

    def live_names(self) -> set[str]:
        """Uids and sample keys of all live prompts: what the data plane must still hold."""
        return self._live_uids.keys() | self._live_keys

    # ------------------------------ checkpoints ------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything, in containers that `json.dumps` takes. Prompts in flight are saved at the front of the phase
        they came from: a generation call that never returned is repeated (its partial rollouts are not in here)."""
        in_flight = list(self._in_flight.values())
        fresh = [group.prompt for group in in_flight if not group.samples]
        partly = [group for group in in_flight if group.samples and not group.is_qualified]
        second = [group for group in in_flight if group.is_qualified]
        return {
            "state_version": _STATE_VERSION,
            "settings": {name: getattr(self.settings, name) for name in _FIXED_SETTINGS},
            "weight_version": self.weight_version,
            "first": [prompt.pack() for prompt in (*fresh, *self.prompts_for_first_generation_phase)],
            "partly_screened": [group.pack() for group in (*partly, *self._partly_screened)],
            "second": [group.pack() for group in (*second, *self.prompts_for_second_generation_phase)],
            "training": [group.pack() for group in self.prompts_for_training],
            "failures": dict(self._failures),
            "counts": self._counts.state_dict(),
            "screening_record": vars(self._screening_record).copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces everything by a saved state. Batch sizes and limits may differ from those it was saved under.

        Raises:
            ValueError: another format, another n, n_continue, success_threshold or correction (the saved samples were
                taken and judged under them), or a state whose prompts do not add up. Nothing has changed then.
        """
        version = state.get("state_version")
        if version != _STATE_VERSION:
            raise ValueError(f"expected state_version {_STATE_VERSION}, got {version!r}: use the release that saved it")
        for name in _FIXED_SETTINGS:
            saved, now = state["settings"][name], getattr(self.settings, name)
            if saved != now:
                raise ValueError(f"expected {name}={saved} as in the checkpoint, got {now}: set {name}={saved}")
        fresh = DataController(self.settings, self._plan_screening)  # filled apart: a bad state changes nothing here
        fresh.weight_version = int(state["weight_version"])
        groups = {
            name: [TrainingGroup.unpack(packed) for packed in state[name]]
            for name in ("partly_screened", "second", "training")
        }
        fresh.prompts_for_first_generation_phase.extend(Prompt(*packed) for packed in state["first"])
        fresh._partly_screened.extend(groups["partly_screened"])
        for group in groups["second"]:
            fresh.prompts_for_second_generation_phase.push(group.prompt.uid, group.version, group)
        for group in groups["training"]:
            fresh.prompts_for_training.push(group.prompt.uid, group.version, group)
        everyone = [group for queue in groups.values() for group in queue]
        prompts = (*fresh.prompts_for_first_generation_phase, *(group.prompt for group in everyone))
        fresh._live_uids = {prompt.uid: prompt.index for prompt in prompts}
        fresh._live_keys = {sample.key for group in everyone for sample in group.samples}
        fresh._failures = {uid: int(count) for uid, count in state["failures"].items()}
        fresh._counts = CurriculumCounts.from_state_dict(self.settings.n, state["counts"])
        fresh._screening_record = ScreeningRecord(**state["screening_record"])
        fates = fresh.conservation()
        added, others = fates.pop("added"), sum(fates.values())
        if added != others or len(fresh._live_uids) != fates["live"]:
            raise ValueError(f"expected {added} prompts in the state, got {fates}: the checkpoint is damaged")
        rollouts = fresh.rollout_conservation()
        generated, others = rollouts.pop("generated"), sum(rollouts.values())
        if generated != others:
            raise ValueError(f"expected {generated} rollouts in the state, got {rollouts}: the checkpoint is damaged")
        vars(self).update(vars(fresh))

    # ------------------------------ one prompt ------------------------------

    def _generation_input(self, group: TrainingGroup) -> GenerationInput:
        num_samples = len(group.samples)
        if not group.is_qualified:
            num_new = group.plan.next_rollouts(group.num_passes, num_samples)
            return GenerationInput(group.prompt, Phase.SCREENING, num_new, num_samples)
        group_size = self.settings.group_size
        num_new = group_size if self.settings.correction == "continuation_only" else group_size - num_samples
        return GenerationInput(group.prompt, Phase.CONTINUATION, num_new, num_samples)

    def _with_samples(self, group: TrainingGroup, new: tuple[Sample, ...]) -> TrainingGroup:
        """The group with further samples; counts the end of its screening."""
        samples = group.samples + new
        num_passes = group.num_passes + sum(sample.success > self.settings.success_threshold for sample in new)
        grown = replace(group, samples=samples, num_passes=num_passes)
        if group.is_qualified or grown.plan.next_rollouts(num_passes, len(samples)):
            return grown
        self._counts.add_screening(num_passes, len(samples))
        mixed = 0 < num_passes < len(samples)
        self._screening_record.observe(mixed, len(samples))
        self._counts.add("qualified" if mixed else "all_right" if num_passes else "all_wrong")
        return replace(grown, num_screening=len(samples)) if mixed else grown

    def _put_back(self, group: TrainingGroup) -> None:
        """To the front of the phase it came from."""
        if group.is_qualified:
            self.prompts_for_second_generation_phase.push(group.prompt.uid, group.version, group, front=True)
        elif group.samples:
            self._partly_screened.appendleft(group)
        else:
            self.prompts_for_first_generation_phase.appendleft(group.prompt)

    def _num_to_admit(self) -> int:
        limit = self.settings.max_num_gen_batches
        if limit and self.num_gen_batches >= limit:
            return 0  # what is in flight may complete the batch; if not, `check_num_gen_batches` raises
        continuing = self._num_continuing + len(self.prompts_for_second_generation_phase)
        return num_to_admit(
            wanted=self.settings.train_batch_size,
            certain=self.num_prompts_for_training + continuing,
            in_screening=len(self._in_flight) - self._num_continuing + len(self._partly_screened),
            qualified_share=self._screening_record.qualified_share,
            max_in_screening=self.settings.gen_batch_size,
        )

    def _count_failure(self, uid: str) -> int:
        self._failures[uid] = self._failures.get(uid, 0) + 1
        return self._failures[uid]

    def _forget(self, groups: Iterable[TrainingGroup]) -> None:
        for group in groups:
            del self._live_uids[group.prompt.uid]
            self._failures.pop(group.prompt.uid, None)
            self._live_keys.difference_update(sample.key for sample in group.samples)

    def _check_weight_version(self, weight_version: int) -> None:
        if weight_version < self.weight_version:
            newest = self.weight_version
            raise ValueError(
                f"expected weight_version >= {newest}, got {weight_version}: pass that of the current weights"
            )

    def _check_results(self, samples: Mapping[str, Sequence[Sample]], weight_version: int) -> None:
        self._check_weight_version(weight_version)
        keys: set[str] = set()
        for uid, new in samples.items():
            if uid not in self._in_flight:
                raise ValueError(f"expected only prompts in flight, got uid {uid!r}: pass only what was asked")
            asked = self._generation_input(self._in_flight[uid]).num_samples
            if len(new) > asked:
                raise ValueError(f"expected at most {asked} samples of {uid!r}, got {len(new)}: pass only the new ones")
            for sample in new:
                if sample.key in keys or sample.key in self._live_keys:
                    raise ValueError(f"expected a new sample key, got {sample.key!r} again: continue at first_session")
                if not math.isfinite(sample.success):
                    raise ValueError(f"expected a finite success of {sample.key!r}, got {sample.success}: leave it out")
                if (got := sample.version) > weight_version:
                    raise ValueError(
                        f"expected versions <= {weight_version}, got {sample.key!r} of {got}: pass the newest"
                    )
                keys.add(sample.key)
