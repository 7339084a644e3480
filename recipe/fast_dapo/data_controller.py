"""Two-phase curriculum sampling: which prompts are generated next, and which are trained on.

Every prompt is screened with n rollouts. One that always fails or always passes has zero advantage everywhere and is
dropped; one with 0 < pass rate < 1 gets n_continue more rollouts, and joins a training batch with all n + n_continue.
Screening of new prompts and continuation of those that qualified share one generation call:

    while not controller.is_ready_for_training():
        controller.add_new_prompts_first_generation_phase(new_prompts)
        inputs = controller.get_generation_inputs()
        result = controller.update_prompts(generate(inputs), weight_version)   # then free result.released_keys
    batch = controller.get_training_data()
    ...                                                                        # update the weights, then
    result = controller.evict(weight_version + 1)                              # leftovers have aged: free these too

Only small records live here; the tensors stay in the data plane under `Sample.key`. No prompt is lost or duplicated
(`conservation`), a refused call changes nothing, and a step costs O(1) a prompt whatever the size of the buffer.
Simplification: one generation call at a time.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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

_STATE_VERSION = 1
_FIXED_SETTINGS = ("n", "n_continue", "success_threshold")


class TooManyGenerationBatches(RuntimeError):
    """`max_num_gen_batches` rounds passed without a training batch. The controller's state is intact."""


class DataController:
    """The curriculum's state machine: first phase -> second phase -> training, each a FIFO."""

    def __init__(self, settings: CurriculumSettings) -> None:
        self.settings = settings
        self.prompts_for_first_generation_phase: deque[Prompt] = deque()
        self.prompts_for_second_generation_phase = AgedQueue[TrainingGroup]()
        self.prompts_for_training = AgedQueue[TrainingGroup]()
        self.weight_version = 0  # the newest one heard of
        self._in_flight: dict[str, TrainingGroup] = {}  # no samples: in screening; n samples: in continuation
        self._live_uids: set[str] = set()
        self._live_keys: set[str] = set()
        self._failures: dict[str, int] = {}  # failed calls in a row, by uid
        self._counts = CurriculumCounts(settings.n)

    @property
    def num_prompts_for_training(self) -> int:
        return len(self.prompts_for_training)

    @property
    def num_gen_batches(self) -> int:
        """Generation rounds completed since the last training batch."""
        return self._counts.windows["batch"]["rounds"]

    def add_new_prompts_first_generation_phase(self, prompts: Iterable[Prompt]) -> None:
        """Queues new prompts for screening; raises ValueError, adding none, if a uid is live or comes twice."""
        prompts, uids = list(prompts), set()
        for prompt in prompts:
            if prompt.uid in self._live_uids or prompt.uid in uids:
                raise ValueError(f"expected a uid that no live prompt has, got {prompt.uid!r}: draw one at every fetch")
            uids.add(prompt.uid)
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
        """Everything that waits, for one generation call; the prompts are in flight until `update_prompts`.

        Continuations come first: they complete the batch, hold samples that age, and are the longer jobs (n_continue
        rollouts each), so an engine that serves in order does not end the round waiting for them.

        Raises:
            TooManyGenerationBatches: see `check_num_gen_batches`. RuntimeError: a call is already in flight.
        """
        if self._in_flight:
            raise RuntimeError(f"{len(self._in_flight)} prompts are still in flight: call update_prompts first")
        self.check_num_gen_batches()
        second, first = self.prompts_for_second_generation_phase, self.prompts_for_first_generation_phase
        while second:
            group = second.pop()
            self._in_flight[group.prompt.uid] = group
        self._in_flight |= {prompt.uid: TrainingGroup(prompt) for prompt in first}
        first.clear()
        return [self._generation_input(group) for group in self._in_flight.values()]

    def update_prompts(self, samples: Mapping[str, Sequence[Sample]], weight_version: int) -> UpdateResult:
        """Takes the results of the call in flight and moves every prompt of it on; then evicts, see `evict`.

        Args:
            samples: by uid, in session order. A prompt that is missing here or has fewer samples than asked failed:
                it goes back to the front of its phase and keeps none of the new samples, or is given up after
                `max_attempts` such calls in a row.
            weight_version: of the current weights; no sample may be newer.

        Raises:
            ValueError: unknown uid, more samples than asked, a sample key that is live or comes twice, a success that
                is not finite, a sample from the future, a weight version that went back. Nothing has changed then.
        """
        self._check_results(samples, weight_version)
        in_flight, self._in_flight = self._in_flight, {}
        self._counts.add("rounds", 1 if in_flight else 0)
        retried, given_up, dropped, qualified, ready, released_keys = [], [], [], [], [], []
        for uid, group in in_flight.items():
            new = tuple(samples.get(uid, ()))
            self._counts.add("generated_rollouts", len(new))
            self._counts.add("generated_tokens", sum(sample.num_tokens for sample in new))
            if len(new) < self._generation_input(group).num_samples:
                (given_up if self._count_failure(uid) >= self.settings.max_attempts else retried).append(group)
                released_keys += [sample.key for sample in new]
                continue
            self._failures.pop(uid, None)
            self._live_keys.update(sample.key for sample in new)
            sampled = TrainingGroup(group.prompt, group.samples + new)
            if group.samples:
                ready.append(uid)
                self._push(self.prompts_for_training, sampled)
                continue
            num_passes = sum(sample.success > self.settings.success_threshold for sample in new)
            self._counts.add_screening(num_passes)
            if 0 < num_passes < self.settings.n:
                self._counts.add("qualified")
                qualified.append(uid)
                self._push(self.prompts_for_second_generation_phase, sampled)
            else:
                self._counts.add("all_right" if num_passes else "all_wrong")
                dropped.append(sampled)
        self._counts.add("failed", len(retried) + len(given_up))
        self._counts.add("given_up", len(given_up))
        for group in reversed(retried):  # so that they stand at the front in their old order
            if group.samples:
                self._push(self.prompts_for_second_generation_phase, group, front=True)
            else:
                self.prompts_for_first_generation_phase.appendleft(group.prompt)
        dropped += given_up
        self._forget(dropped)
        evicted = self.evict(weight_version)
        return UpdateResult(
            (*released_keys, *(sample.key for group in dropped for sample in group.samples), *evicted.released_keys),
            (*(group.prompt.uid for group in dropped), *evicted.released_uids),
            *(tuple(qualified), tuple(ready), tuple(group.prompt.uid for group in (*retried, *given_up))),
        )

    def evict(self, weight_version: int) -> UpdateResult:
        """Drops what is too old under `weight_version`, then the stalest ready prompts beyond the buffer's bound.

        Call it after a weight update: leftovers age without a generation round. Too old means that the oldest sample
        is more than `max_staleness` versions behind. The bound, `train_batch_size + max_buffer_prompts`, never costs
        a batch; staleness can. Prompts in flight are judged when they return. Raises ValueError if the version fell.
        """
        self._check_weight_version(weight_version)
        self.weight_version = int(weight_version)
        settings, ready, evicted = self.settings, self.prompts_for_training, []
        if settings.max_staleness is not None:
            oldest_allowed = self.weight_version - settings.max_staleness
            for queue in (self.prompts_for_second_generation_phase, ready):
                while queue.oldest_version is not None and queue.oldest_version < oldest_allowed:
                    evicted.append(queue.pop_stalest())
            self._counts.add("evicted_stale", len(evicted))
        if settings.max_buffer_prompts is not None:
            overflow = max(0, len(ready) - settings.train_batch_size - settings.max_buffer_prompts)
            evicted += [ready.pop_stalest() for _ in range(overflow)]
            self._counts.add("evicted_overflow", overflow)
        self._forget(evicted)
        keys = tuple(sample.key for group in evicted for sample in group.samples)
        return UpdateResult(keys, tuple(group.prompt.uid for group in evicted))

    def is_ready_for_training(self) -> bool:
        return self.num_prompts_for_training >= self.settings.train_batch_size

    def get_training_data(self) -> list[TrainingGroup]:
        """Takes out the `train_batch_size` prompts that finished first; raises RuntimeError if there are fewer."""
        ready, wanted = self.num_prompts_for_training, self.settings.train_batch_size
        if ready < wanted:
            raise RuntimeError(f"{ready} of {wanted} prompts are ready: generate until is_ready_for_training()")
        batch = [self.prompts_for_training.pop() for _ in range(wanted)]
        self._forget(batch)
        samples = [sample for group in batch for sample in group.samples]
        self._counts.reset("batch")
        self._counts.add("trained", wanted)
        self._counts.add("trained_rollouts", len(samples))
        self._counts.add("trained_tokens", sum(sample.num_tokens for sample in samples))
        self._counts.add_trained_ages([self.weight_version - sample.version for sample in samples])
        return batch

    def metrics(self) -> dict[str, float]:
        """By the names of `METRICS`: counts since `reset_step_metrics`, totals of the run, and the queues now."""
        return self._counts.metrics() | {
            "curriculum/first_phase_prompts": float(len(self.prompts_for_first_generation_phase)),
            "curriculum/second_phase_prompts": float(len(self.prompts_for_second_generation_phase)),
            "curriculum/ready_prompts": float(self.num_prompts_for_training),
            "curriculum/in_flight_prompts": float(len(self._in_flight)),
            "curriculum/num_gen_batches": float(self.num_gen_batches),
        }

    def reset_step_metrics(self) -> None:
        self._counts.reset("step")

    def conservation(self) -> dict[str, int]:
        """Prompts by fate since the start of the run: `added` is the sum of all others, at any time."""
        live = len(self.prompts_for_first_generation_phase) + len(self.prompts_for_second_generation_phase)
        live += self.num_prompts_for_training + len(self._in_flight)
        fates = ("added", "all_wrong", "all_right", "evicted_stale", "evicted_overflow", "given_up", "trained")
        return {name: self._counts.windows["total"][name] for name in fates} | {"live": live}

    def live_names(self) -> set[str]:
        """Uids and sample keys of all live prompts: what the data plane must still hold."""
        return self._live_uids | self._live_keys

    def state_dict(self) -> dict[str, Any]:
        """Everything, in containers that `json.dumps` takes. Prompts in flight are saved at the front of the phase
        they came from: a generation call that never returned is repeated (its partial rollouts are not in here)."""
        in_flight = list(self._in_flight.values())
        first = [group.prompt for group in in_flight if not group.samples]
        second = [group for group in in_flight if group.samples]
        return {
            "state_version": _STATE_VERSION,
            "settings": {name: getattr(self.settings, name) for name in _FIXED_SETTINGS},
            "weight_version": self.weight_version,
            "first": [_pack(TrainingGroup(p)) for p in (*first, *self.prompts_for_first_generation_phase)],
            "second": [_pack(group) for group in (*second, *self.prompts_for_second_generation_phase)],
            "training": [_pack(group) for group in self.prompts_for_training],
            "failures": dict(self._failures),
            "counts": self._counts.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces everything by a saved state. Batch sizes and limits may differ from those it was saved under.

        Raises:
            ValueError: another format, another n, n_continue or success_threshold (the saved samples were taken and
                judged under them), or a state whose prompts do not add up. Nothing has changed then.
        """
        version = state.get("state_version")
        if version != _STATE_VERSION:
            raise ValueError(f"expected state_version {_STATE_VERSION}, got {version!r}: use the release that saved it")
        for name in _FIXED_SETTINGS:
            saved, now = state["settings"][name], getattr(self.settings, name)
            if saved != now:
                raise ValueError(f"expected {name}={saved} as in the checkpoint, got {now}: set {name}={saved}")
        fresh = DataController(self.settings)  # filled apart: a bad state leaves this controller as it was
        fresh.weight_version = int(state["weight_version"])
        fresh.prompts_for_first_generation_phase.extend(_unpack(packed, 0).prompt for packed in state["first"])
        for packed in state["second"]:
            fresh._push(fresh.prompts_for_second_generation_phase, _unpack(packed, self.settings.n))
        for packed in state["training"]:
            fresh._push(fresh.prompts_for_training, _unpack(packed, self.settings.group_size))
        groups = (*fresh.prompts_for_second_generation_phase, *fresh.prompts_for_training)
        fresh._live_uids = {prompt.uid for prompt in fresh.prompts_for_first_generation_phase}
        fresh._live_uids |= {group.prompt.uid for group in groups}
        fresh._live_keys = {sample.key for group in groups for sample in group.samples}
        fresh._failures = {uid: int(count) for uid, count in state["failures"].items()}
        fresh._counts = CurriculumCounts.from_state_dict(self.settings.n, state["counts"])
        fates = fresh.conservation()
        added, others = fates.pop("added"), sum(fates.values())
        if added != others or len(fresh._live_uids) != fates["live"]:
            raise ValueError(f"expected {added} prompts in the state, got {fates}: the checkpoint is damaged")
        vars(self).update(vars(fresh))

    def _generation_input(self, group: TrainingGroup) -> GenerationInput:
        if group.samples:
            return GenerationInput(group.prompt, Phase.CONTINUATION, self.settings.n_continue, self.settings.n)
        return GenerationInput(group.prompt, Phase.SCREENING, self.settings.n, 0)

    def _push(self, queue: AgedQueue[TrainingGroup], group: TrainingGroup, *, front: bool = False) -> None:
        queue.push(group.prompt.uid, min(sample.version for sample in group.samples), group, front=front)

    def _count_failure(self, uid: str) -> int:
        self._failures[uid] = self._failures.get(uid, 0) + 1
        return self._failures[uid]

    def _forget(self, groups: Iterable[TrainingGroup]) -> None:
        for group in groups:
            self._live_uids.remove(group.prompt.uid)
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


def _pack(group: TrainingGroup) -> list[Any]:
    """Plain JSON types, whatever integers and floats the data plane handed over; columns, as there are many samples."""
    index, samples = group.prompt.index, group.samples
    columns = [[s.key for s in samples], [float(s.success) for s in samples]]
    columns += [[int(s.version) for s in samples], [int(s.num_tokens) for s in samples]]
    return [group.prompt.uid, index if isinstance(index, str) else int(index), *columns]


def _unpack(packed: Sequence[Any], num_samples: int) -> TrainingGroup:
    uid, index, *columns = packed
    if {len(column) for column in columns} != {num_samples}:
        raise ValueError(f"expected {num_samples} samples of {uid!r}, got {columns}: the checkpoint is damaged")
    return TrainingGroup(Prompt(uid, index), tuple(map(Sample, *columns)))
