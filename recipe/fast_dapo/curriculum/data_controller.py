"""Two-phase curriculum sampling: which prompts are generated next, and which are trained on.

The first phase is screening: every prompt gets n rollouts. The second is continuation: one with 0 < pass rate < 1 gets
n_continue more, and joins a training batch with all n + n_continue. One that always fails or always passes joins it as
it is (`train_on="all"`), or is dropped ("qualified"): for RLOO and GRPO it has zero advantage everywhere.

`records.Fate` has a diagram of a prompt's life; `grading.py` defines success for graded rewards.

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

All of a step's rollouts then come from the same weights; extra ready prompts wait for the next step.

How a prompt is screened is a `ScreeningPlan`, fixed before its first rollout (`screening.py`): all n at once, or in
chunks, by the posterior of its pass rate. Only small records live here; the tensors stay in the data plane under
`Sample.key`. No prompt and no rollout is lost or duplicated (`conservation`, `rollout_conservation`), a refused call
changes nothing, and a step costs O(1) per prompt, whatever the size of the buffer.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from recipe.fast_dapo.curriculum.aged_queue import AgedQueue
from recipe.fast_dapo.curriculum.checkpoint import pack_state, unpack_state
from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.metrics import explain_missing_batch
from recipe.fast_dapo.curriculum.records import (
    GenerationInput,
    Prompt,
    Sample,
    TrainingGroup,
    UpdateResult,
    keys_of,
    uids_of,
)
from recipe.fast_dapo.curriculum.results import check_results, check_weight_version, take_results
from recipe.fast_dapo.curriculum.screening import ScreeningPlan, fixed_plan, plan_screening
from recipe.fast_dapo.curriculum.state import CurriculumState


class TooManyGenerationBatches(RuntimeError):
    """`max_num_gen_batches` rounds passed without a training batch. The controller's state is intact."""


class DataController:
    """The curriculum's rules: screening, then continuation, then training, each a FIFO.

    Args:
        settings: Sizes and limits.
        screening_chunk: Rollouts per stage of sequential screening, which each prompt's posterior plans (see
            `set_posteriors`); None: all n rollouts at once.
    """

    def __init__(self, settings: CurriculumSettings, screening_chunk: int | None = None) -> None:
        self.settings = settings
        self.screening_chunk = screening_chunk
        self._state = CurriculumState(settings.n)

    @property
    def prompts_for_first_generation_phase(self) -> deque[Prompt]:
        """Prompts waiting for screening."""
        return self._state.waiting

    @property
    def prompts_for_second_generation_phase(self) -> AgedQueue[TrainingGroup]:
        """Prompts with a mixed screening, waiting for continuation."""
        return self._state.qualified

    @property
    def prompts_for_training(self) -> AgedQueue[TrainingGroup]:
        """Prompts with all their rollouts. To train in another order, set another queue of the same interface."""
        return self._state.ready

    @prompts_for_training.setter
    def prompts_for_training(self, queue: AgedQueue[TrainingGroup]) -> None:
        self._state.ready = queue

    @property
    def num_prompts_for_training(self) -> int:
        """Number of prompts with all their rollouts."""
        return len(self._state.ready)

    @property
    def num_in_flight(self) -> int:
        """Prompts that are being generated."""
        return len(self._state.in_flight)

    @property
    def weight_version(self) -> int:
        """The newest version passed to `update_prompts` or `evict`."""
        return self._state.weight_version

    @property
    def num_gen_batches(self) -> int:
        """Generation rounds since the last training batch; with streaming, a round is `gen_batch_size` screened
        prompts."""
        return self._state.num_gen_batches(self.settings)

    @property
    def num_prompts_wanted(self) -> int:
        """Prompts to add before the next `get_generation_inputs`."""
        if self.settings.schedule == "streaming":
            wanted = self._state.num_to_admit(self.settings)
        else:
            wanted = 0 if self.has_whole_batch else self.settings.gen_batch_size
            if self.settings.train_on == "all":
                unready = self.settings.train_batch_size - len(self._state.ready) - len(self._state.qualified)
                wanted = min(wanted, max(0, unready))
        return max(0, wanted - len(self._state.waiting))

    def prompts_to_screen(self) -> list[Prompt]:
        """The prompts whose screening the next `get_generation_inputs` begins."""
        return list(islice(self._state.waiting, self._state.num_to_admit(self.settings)))

    def add_new_prompts_first_generation_phase(self, prompts: Iterable[Prompt]) -> None:
        """Queues new prompts for screening; raises ValueError, adding none, if a uid is live or duplicated."""
        prompts, state = list(prompts), self._state
        indices: dict[str, int | str] = {}
        for prompt in prompts:
            if prompt.uid in state.indices or prompt.uid in indices:
                raise ValueError(f"expected a uid that no live prompt has, got {prompt.uid!r}: draw one at every fetch")
            indices[prompt.uid] = prompt.index
        state.indices |= indices
        state.waiting.extend(prompts)
        state.counts.add("added", len(prompts))

    def set_posteriors(self, posteriors: Iterable[tuple[float, float]]) -> None:
        """Gives each of `prompts_to_screen` the (alpha, beta) that sequential screening uses.

        Call it before each `get_generation_inputs`, because new evidence may arrive while a prompt waits. Raises
        ValueError, changing nothing, if the lengths differ.
        """
        pairs = zip(self.prompts_to_screen(), posteriors, strict=True)
        prompts = [replace(prompt, alpha=alpha, beta=beta) for prompt, (alpha, beta) in pairs]
        for _ in prompts:
            self._state.waiting.popleft()
        self._state.waiting.extendleft(reversed(prompts))

    def check_num_gen_batches(self) -> None:
        """Raises TooManyGenerationBatches when no further round is allowed; call it to checkpoint before the end."""
        limit, state = self.settings.max_num_gen_batches, self._state
        if limit and self.num_gen_batches >= limit and not self.has_whole_batch:
            ready, waiting = len(state.ready), len(state.qualified)
            raise TooManyGenerationBatches(explain_missing_batch(self.settings, state.counts, ready, waiting))

    def get_generation_inputs(self) -> list[GenerationInput]:
        """Returns what to generate now; these prompts are in flight until `update_prompts` gets their results.

        Merged: all waiting prompts, in one call. Streaming: all continuations, plus the number of new prompts that the
        batch is expected to need. Continuations come first: they complete the batch, hold samples that age, and are the
        longer jobs, so an engine that serves in order does not wait for them at the end.

        Raises:
            TooManyGenerationBatches: see `check_num_gen_batches`; while prompts are in flight, streaming waits for
                them instead.
            RuntimeError: merged, and a call is already in flight.
            ValueError: sequential screening of a prompt without a posterior.
        """
        state = self._state
        if state.in_flight and self.settings.schedule != "streaming":
            raise RuntimeError(f"{len(state.in_flight)} prompts are still in flight: call update_prompts first")
        if not state.in_flight:
            self.check_num_gen_batches()
        rule = self.settings.group_rule
        new = [TrainingGroup(prompt, self.screening_plan(prompt), rule) for prompt in self.prompts_to_screen()]
        for _ in new:
            state.waiting.popleft()
        groups = [*(state.qualified.pop() for _ in range(len(state.qualified))), *state.partly_screened, *new]
        state.partly_screened.clear()
        inputs = [GenerationInput(group, group.num_missing) for group in groups]
        state.dispatch(inputs)
        return inputs

    def screening_plan(self, prompt: Prompt) -> ScreeningPlan:
        """The screening plan of a new prompt; raises ValueError if it needs a posterior and has none."""
        if self.screening_chunk is None:
            return fixed_plan(self.settings.n)
        if prompt.alpha is None or prompt.beta is None:
            raise ValueError(f"expected a posterior of {prompt.uid!r}, got none: call set_posteriors first")
        price = self._state.screening_record.price
        return plan_screening(prompt.alpha, prompt.beta, n=self.settings.n, chunk=self.screening_chunk, price=price)

    def update_prompts(
        self, samples: Mapping[str, Sequence[Sample]], weight_version: int, *, more_to_come: bool = False
    ) -> UpdateResult:
        """Processes results of prompts in flight, then evicts (see `evict`).

        Args:
            samples: by uid, in session order. A prompt with fewer samples than asked failed: it goes back to the front
                of its queue and keeps none of the new samples, or is given up after `max_attempts` such calls in a row.
            weight_version: of the current weights; no sample may be newer.
            more_to_come: whether prompts in flight that are missing here are still being generated; otherwise they
                failed.

        Raises:
            ValueError: what `check_results` refuses. Nothing has changed then.
        """
        check_results(self._state, self.settings.grading, samples, weight_version)
        # Results are handled in dispatch order, so that equal runs give equal batches.
        answered = list(samples if more_to_come else self._state.in_flight)
        taken = take_results(self._state, self.settings, samples, answered)
        evicted = self.evict(weight_version)
        return replace(
            taken,
            released_keys=taken.released_keys + evicted.released_keys,
            released_uids=taken.released_uids + evicted.released_uids,
        )

    def evict(self, weight_version: int) -> UpdateResult:
        """Drops samples that are too old under `weight_version`, then the stalest ready prompts beyond the bound.

        Call it after a weight update: leftovers age without a generation round. A prompt whose oldest sample is more
        than `max_staleness` versions behind expires: its samples are released, and it is screened again before the
        waiting prompts; prompts in flight are judged when they return. With stale="wait" this happens only to finished
        prompts, when more were due than fit into a batch. The bound, `train_batch_size + max_buffer_prompts`, never
        costs a batch; staleness can. Raises ValueError if the version fell.
        """
        state = self._state
        check_weight_version(state, weight_version)
        state.set_version(int(weight_version))
        expired, overflow = state.expire(self.settings), state.drop_overflow(self.settings)
        return UpdateResult(keys_of([*expired, *overflow]), uids_of(overflow))

    def begin_update(self) -> None:
        """Announces that the actor is trained while generation continues.

        Until `end_update` no prompt is admitted in the place of those in the batch: it would be generated by the
        weights from before the update, and trained on under those from after the next one.
        """
        self._state.begin_update(self.settings)

    def end_update(self) -> None:
        """Announces that the next batch is collected."""
        self._state.most_under_way = None

    @property
    def has_whole_batch(self) -> bool:
        """Whether enough prompts are finished."""
        return self.num_prompts_for_training >= self.settings.train_batch_size

    def is_ready_for_training(self) -> bool:
        """Whether a whole batch is ready, including all prompts that would be too old for a later one
        (stale="wait")."""
        return self.has_whole_batch and not self._state.must_wait(self.settings)

    def get_training_data(self) -> list[TrainingGroup]:
        """Removes and returns the `train_batch_size` prompts that finished first; raises RuntimeError if there are
        fewer.

        With stale="wait" those that would be too old after this batch come before all others.

        With `correction="continuation_only"` a group's first `num_screening` samples are not trained on.
        """
        state, wanted = self._state, self.settings.train_batch_size
        if (ready := len(state.ready)) < wanted:
            raise RuntimeError(f"{ready} of {wanted} prompts are ready: generate until is_ready_for_training()")
        batch = state.take_ready(wanted, self.settings)
        state.forget(batch)
        trained = [sample for group in batch for sample in self.trained_samples(group)]
        state.counts.add_batch(
            wanted,
            ages=[state.weight_version - sample.version for sample in trained],
            num_tokens=sum(sample.num_tokens for sample in trained),
            num_set_aside=sum(len(group.samples) for group in batch) - len(trained),
        )
        return batch

    def trained_samples(self, group: TrainingGroup) -> tuple[Sample, ...]:
        """The samples of a finished group that are trained on."""
        return group.samples[group.num_screening if self.settings.correction == "continuation_only" else 0 :]

    def live_indices(self) -> set[int | str]:
        """Indices of all live prompts, to be excluded when choosing new ones."""
        return set(self._state.indices.values())

    def live_uids(self) -> set[str]:
        """Uids of all live prompts, whose rows must still be in the data plane."""
        return set(self._state.indices)

    def live_names(self) -> set[str]:
        """Uids and sample keys of all live prompts, which must still be in the data plane."""
        return self._state.indices.keys() | self._state.keys

    def conservation(self) -> dict[str, int]:
        """Prompts by fate since the start of the run: `added` is the sum of all others, at any time."""
        return self._state.prompts_by_fate()

    def rollout_conservation(self) -> dict[str, int]:
        """Rollouts by fate since the start of the run: `generated` is the sum of all others, at any time."""
        return self._state.rollouts_by_fate()

    def metrics(self) -> dict[str, float]:
        """Metrics by their names in `METRICS`: counts since `reset_step_metrics`, totals of the run, and current queue
        sizes."""
        return self._state.metrics(self.settings)

    def reset_step_metrics(self) -> None:
        """Begins a step."""
        self._state.counts.reset("step")

    def state_dict(self) -> dict[str, Any]:
        """The whole state, in containers that `json.dumps` accepts; see `pack_state`."""
        return pack_state(self.settings, self._state)

    def load_state_dict(self, packed: Mapping[str, Any]) -> None:
        """Replaces the whole state by a saved one; raises ValueError, changing nothing, if `unpack_state` refuses
        it."""
        self._state = unpack_state(self.settings, packed)
