"""Where every prompt and every finished rollout of the curriculum is. Pure; the rules are in `data_controller.py`."""

from collections import Counter, deque
from collections.abc import Iterable

from recipe.fast_dapo.curriculum.admission import ScreeningRecord, num_to_admit
from recipe.fast_dapo.curriculum.aged_queue import AgedQueue
from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.deadlines import Deadlines
from recipe.fast_dapo.curriculum.metrics import CurriculumCounts
from recipe.fast_dapo.curriculum.records import Fate, GenerationInput, Prompt, TrainingGroup, keys_of

_ENDS = (Fate.ALL_WRONG, Fate.ALL_RIGHT, Fate.EVICTED_OVERFLOW, Fate.GIVEN_UP, Fate.TRAINED)
_ROLLOUT_FATES = ("trained", "uninformative", "expired", "failed", "set_aside")


class CurriculumState:
    """The queues of live prompts, the prompts in flight, and the counts of all that left.

    Every live prompt is in exactly one of `waiting`, `partly_screened`, `qualified`, `ready` and `in_flight`. `indices`
    and `keys` mirror their content, so that lookups need no scan.

    Attributes:
        waiting: Prompts waiting for screening to begin.
        partly_screened: Prompts waiting for the next rollouts of sequential screening.
        qualified: Prompts waiting for continuation.
        ready: Prompts waiting for training.
        in_flight: Prompts being generated, by uid, in the order of dispatch.
        continuing: Uids of those in continuation, by the version of their oldest sample.
        screening: Uids of the others, by the same version, or by the version at dispatch if they have no sample yet.
        indices: Of all live prompts, by uid.
        keys: Of the finished samples of all live prompts.
        failures: Failed calls in a row, by uid.
        weight_version: The newest known version.
        num_batches: Batches taken under this version.
        most_under_way: Target number of prompts under way while the actor is trained; None while a batch is collected.
        counts: Counts of prompts and rollouts by fate.
        screening_record: Recent yield and cost of screening.
    """

    def __init__(self, n: int) -> None:
        self.waiting: deque[Prompt] = deque()
        self.partly_screened: deque[TrainingGroup] = deque()
        self.qualified = AgedQueue[TrainingGroup]()
        self.ready = AgedQueue[TrainingGroup]()
        self.in_flight: dict[str, GenerationInput] = {}
        self.continuing = AgedQueue[None]()
        self.screening = AgedQueue[None]()
        self.indices: dict[str, int | str] = {}
        self.keys: set[str] = set()
        self.failures: dict[str, int] = {}
        self.weight_version = 0
        self.num_batches = 0
        self.most_under_way: int | None = None
        self.counts = CurriculumCounts(n)
        self.screening_record = ScreeningRecord()

    def dispatch(self, inputs: Iterable[GenerationInput]) -> None:
        """Mark these prompts as in flight."""
        for entry in inputs:
            uid, group = entry.prompt.uid, entry.group
            self.in_flight[uid] = entry
            flights = self.continuing if group.is_qualified else self.screening
            flights.push(uid, group.version if group.samples else self.weight_version, None)

    def land(self, uid: str) -> GenerationInput:
        """Mark the call for this prompt as ended, and return its request."""
        entry = self.in_flight.pop(uid)
        (self.continuing if entry.group.is_qualified else self.screening).remove(uid)
        return entry

    def put(self, group: TrainingGroup, *, front: bool = False) -> None:
        """Queue a prompt that is not in flight, by its fate."""
        fate = group.fate
        if fate is Fate.WAITING:
            (self.waiting.appendleft if front else self.waiting.append)(group.prompt)
        elif fate is Fate.PARTLY_SCREENED:
            (self.partly_screened.appendleft if front else self.partly_screened.append)(group)
        else:
            queue = self.ready if fate is Fate.READY else self.qualified
            queue.push(group.prompt.uid, group.version, group, front=front)

    def count_screening(self, group: TrainingGroup) -> None:
        """Record that a prompt's screening has ended."""
        num_samples = len(group.samples)
        self.counts.add_screening(group.num_passes, num_samples)
        if group.is_qualified:
            self.counts.add("qualified")
        else:
            outcome = group.unmixed_fate
            self.counts.add(f"{outcome.value}_kept" if group.rule.trains_unmixed else outcome.value)
        self.screening_record.observe(group.is_qualified, num_samples)

    def expire(self, settings: CurriculumSettings) -> list[TrainingGroup]:
        """Send prompts with a sample older than `max_staleness` back to screening, before all others."""
        if settings.max_staleness is None:
            return []
        oldest_allowed = self.weight_version - settings.max_staleness
        expired: list[TrainingGroup] = []
        for queue in (self.qualified, self.ready):
            while queue.oldest_version is not None and queue.oldest_version < oldest_allowed:
                expired.append(queue.pop_stalest())
        expired += [group for group in self.partly_screened if group.version < oldest_allowed]
        self.partly_screened = deque(group for group in self.partly_screened if group.version >= oldest_allowed)
        self.waiting.extendleft(group.prompt for group in reversed(expired))
        self.counts.add("expired", len(expired))
        self._drop_samples(expired)
        return expired

    def set_version(self, version: int) -> None:
        """Set the current weight version."""
        if version != self.weight_version:
            self.weight_version, self.num_batches = version, 0

    def _deadlines(self, settings: CurriculumSettings, at_least: int) -> Deadlines | None:
        """Deadlines with at least this many batches left under this version; None if nothing is waited for."""
        if settings.max_staleness is None or settings.stale == "drop":
            return None
        left = max(at_least, settings.batches_per_version - self.num_batches)
        return Deadlines(
            settings.train_batch_size, settings.batches_per_version, left, self.weight_version, settings.max_staleness
        )

    def _required(self, settings: CurriculumSettings) -> dict[int, int]:
        """See `Deadlines.required`; a prompt in screening counts as the share of it that is expected to qualify."""
        deadlines = self._deadlines(settings, at_least=1)  # the next one
        if deadlines is None:
            return {}
        live = Counter[int]()
        for queue in (self.ready, self.qualified, self.continuing):
            live.update(queue.num_by_version)
        open_ends = Counter(self.screening.num_by_version)
        open_ends.update(group.version for group in self.partly_screened)
        share = self._qualified_share(settings)
        return deadlines.required({v: live[v] + share * open_ends[v] for v in live.keys() | open_ends.keys()})

    def must_wait(self, settings: CurriculumSettings) -> bool:
        """Whether an unfinished prompt must be in the next batch because it would be too old for a later one."""
        num_by_version = self.ready.num_by_version
        return any(
            sum(number for v, number in num_by_version.items() if v <= version) < required
            for version, required in self._required(settings).items()
        )

    def take_ready(self, count: int, settings: CurriculumSettings) -> list[TrainingGroup]:
        """Remove and return finished prompts: first those that this batch must have, then those that finished first."""
        ready, taken = self.ready, list[TrainingGroup]()
        for version, required in self._required(settings).items():
            while len(taken) < required and ready.oldest_version is not None and ready.oldest_version <= version:
                taken.append(ready.pop_stalest())
        self.num_batches += 1
        return [*taken, *(ready.pop() for _ in range(count - len(taken)))]

    def drop_overflow(self, settings: CurriculumSettings) -> list[TrainingGroup]:
        """Remove and return the stalest ready prompts beyond one training batch plus `max_buffer_prompts`."""
        if settings.max_buffer_prompts is None:
            return []
        surplus = len(self.ready) - settings.train_batch_size - settings.max_buffer_prompts
        overflow = [self.ready.pop_stalest() for _ in range(surplus)]
        self.counts.add("evicted_overflow", len(overflow))
        self._drop_samples(overflow)
        self.forget(overflow)
        return overflow

    def _drop_samples(self, groups: Iterable[TrainingGroup]) -> None:
        keys = keys_of(groups)
        self.counts.add("expired_rollouts", len(keys))
        self.keys.difference_update(keys)

    def forget(self, groups: Iterable[TrainingGroup]) -> None:
        """Forget prompts that left: their uids and keys may be used again."""
        for group in groups:
            del self.indices[group.prompt.uid]
            self.failures.pop(group.prompt.uid, None)
            self.keys.difference_update([sample.key for sample in group.samples])

    def num_gen_batches(self, settings: CurriculumSettings) -> int:
        """Generation rounds since the last training batch; with streaming, a round is `gen_batch_size` screened
        prompts."""
        window = self.counts.windows["batch"]
        if settings.schedule == "streaming":
            return window["screened"] // settings.gen_batch_size
        return window["rounds"]

    def num_to_admit(self, settings: CurriculumSettings) -> int:
        """Prompts whose screening should begin now."""
        if settings.schedule != "streaming":
            # If every screened prompt is trained on, more than the batch needs would only get old.
            needed = settings.train_batch_size - len(self.ready) - len(self.qualified)
            return min(len(self.waiting), max(0, needed)) if settings.train_on == "all" else len(self.waiting)
        limit = settings.max_num_gen_batches
        if limit and self.num_gen_batches(settings) >= limit:
            return 0  # prompts in flight may complete the batch; if not, `check_num_gen_batches` raises
        deadlines, wanted = self._deadlines(settings, at_least=0), self._num_under_way(settings)
        return num_to_admit(
            wanted=min(wanted, deadlines.capacity) if deadlines else wanted,
            certain=len(self.ready) + len(self.qualified) + len(self.continuing),
            in_screening=len(self.screening) + len(self.partly_screened),
            qualified_share=self._qualified_share(settings),
            max_in_screening=settings.max_in_screening,
        )

    def begin_update(self, settings: CurriculumSettings) -> None:
        """Admit no prompts in the place of those that an update has taken; see `DataController.begin_update`."""
        self.most_under_way = max(0, self._prompts_left(settings))

    def _num_under_way(self, settings: CurriculumSettings) -> int:
        """Target number of prompts that are ready or expected to become ready."""
        if self.most_under_way is not None:
            return self.most_under_way
        return max(settings.train_batch_size, self._prompts_left(settings))

    def _prompts_left(self, settings: CurriculumSettings) -> int:
        """Of the prompts that are under way when a weight version begins, those that no batch has taken."""
        return settings.num_under_way - settings.train_batch_size * self.num_batches

    def _qualified_share(self, settings: CurriculumSettings) -> float:
        """Expected share of the prompts in screening that will be trained on."""
        return 1.0 if settings.train_on == "all" else self.screening_record.qualified_share

    # ------------------------------ summaries ------------------------------

    def prompts_by_fate(self) -> dict[str, int]:
        """Since the start of the run: `added` is the sum of all others, at any time."""
        total = self.counts.windows["total"]
        live = (self.waiting, self.partly_screened, self.qualified, self.ready, self.in_flight)
        ends = {fate.value: total[fate.value] for fate in _ENDS}
        return {"added": total["added"], **ends, "live": sum(len(queue) for queue in live)}

    def rollouts_by_fate(self) -> dict[str, int]:
        """Since the start of the run: `generated` is the sum of all others, at any time."""
        total = self.counts.windows["total"]
        fates = {name: total[f"{name}_rollouts"] for name in ("generated", *_ROLLOUT_FATES)}
        return fates | {"buffered": len(self.keys)}

    def metrics(self, settings: CurriculumSettings) -> dict[str, float]:
        """Metrics by their names in `METRICS`."""
        rollouts = self.rollouts_by_fate()
        return self.counts.metrics() | {
            "curriculum/first_phase_prompts": float(len(self.waiting)),
            "curriculum/second_phase_prompts": float(len(self.qualified)),
            "curriculum/ready_prompts": float(len(self.ready)),
            "curriculum/in_flight_prompts": float(len(self.in_flight)),
            "curriculum/num_gen_batches": float(self.num_gen_batches(settings)),
            "curriculum/buffered_rollouts": float(rollouts["buffered"]),
            "curriculum/unaccounted_rollouts": float(2 * rollouts["generated"] - sum(rollouts.values())),
            "curriculum/expected_qualified_share": self.screening_record.qualified_share,
        }
