"""Inputs and outputs of the curriculum's controller. Pure; the algorithm is in `data_controller.py`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from numbers import Integral
from typing import Any

from recipe.fast_dapo.curriculum.grading import PASS_OR_FAIL, Grading
from recipe.fast_dapo.curriculum.screening import ScreeningPlan


class Phase(str, Enum):  # noqa: UP042 - prints as its value in logs under every Python that verl supports
    """The purpose of a generation call: the first or the second generation phase of a prompt."""

    SCREENING = "screening"
    CONTINUATION = "continuation"


class Fate(Enum):
    """The state of a prompt between two generation calls, or how it left.

                     ALL_WRONG, ALL_RIGHT                            EVICTED_OVERFLOW
                               ^                                             ^
                               |                                             |
        add --> WAITING --> [screening] --> QUALIFIED --> [continuation] --> READY --> TRAINED
                   ^          |   ^  |          |                             ^ |
                   |          v   |  +----------|-- nothing to continue ------+ |
                   |     PARTLY_SCREENED        |                               |
                   |          |                 |                               |
                   +----------+-----------------+-------------------------------+   samples too old (stale="drop")

    [...] is a generation call, during which the prompt is in flight. If its call fails, it returns to its previous
    state, first in its queue; after `max_attempts` such calls in a row it is GIVEN_UP. A group is ready without
    continuation where n_continue = 0, and, with train_on="all", where its screening was not mixed.

    A screening is mixed by `Grading.is_mixed`. One that is not is ALL_WRONG if its mean success is at most the middle
    of the band, and else ALL_RIGHT: with graded successes or a narrower band, too hard and too easy.
    """

    WAITING = "waiting"
    PARTLY_SCREENED = "partly_screened"
    QUALIFIED = "qualified"
    READY = "ready"
    ALL_WRONG = "all_wrong"
    ALL_RIGHT = "all_right"
    EVICTED_OVERFLOW = "evicted_overflow"
    GIVEN_UP = "given_up"
    TRAINED = "trained"


NOTHING_TO_LEARN = (Fate.ALL_WRONG, Fate.ALL_RIGHT)


@dataclass(frozen=True)
class Prompt:
    """A fetched prompt.

    Attributes:
        uid: New at every fetch, unique among live prompts.
        index: Identity that persists over epochs; two live prompts may share it.
        alpha, beta: The pass rate is Beta(alpha, beta), given everything known when screening begins. Sequential
            screening and the posterior baseline need it.
    """

    uid: str
    index: int | str
    alpha: float | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.index, (int, str, Integral)):  # a tensor would compare by object, not by value
            raise ValueError(f"index must be an int or a str, got {self.index!r}: set extra_info.index in the data set")

    def pack(self) -> list[Any]:
        """Plain JSON types, whatever integer types the data plane returned."""
        return [self.uid, self.index if isinstance(self.index, str) else int(self.index)]


@dataclass(frozen=True, slots=True)
class Sample:
    """A finished rollout.

    Attributes:
        key: Name of its last output in the data plane.
        success: Value of the success metric: compared with success_threshold, or a grade.
        version: Weight version that generated it.
        num_tokens: Response tokens.
    """

    key: str
    success: float
    version: int
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GroupRule:
    """When a screening is mixed, and when a screened prompt has all its samples.

    Attributes:
        size: Samples that a prompt with a mixed screening is trained on.
        trains_screening: Whether its screening samples are among them.
        trains_unmixed: Whether a prompt with an unmixed screening is trained on, with only its screening samples.
        grading: How its successes are interpreted.
    """

    size: int
    trains_screening: bool = True
    trains_unmixed: bool = False
    grading: Grading = PASS_OR_FAIL


@dataclass(frozen=True)
class TrainingGroup:
    """A prompt with the samples it has so far, in session order, and how it is or was screened."""

    prompt: Prompt
    plan: ScreeningPlan
    rule: GroupRule
    samples: tuple[Sample, ...] = ()
    num_passes: float = 0  # sum of the samples' successes: an int with a threshold
    num_screening: int = 0  # samples of a mixed screening; 0 during screening, or if it was not mixed
    stage_sizes: tuple[int, ...] = ()  # samples of each generation call, which sum to their number

    @property
    def is_qualified(self) -> bool:
        """Whether its screening was mixed."""
        return self.num_screening > 0

    @property
    def num_missing(self) -> int:
        """Rollouts to request for the prompt now."""
        if not self.is_qualified:
            return self.plan.next_rollouts(self.num_passes, len(self.samples))
        return max(0, self.rule.size - len(self.samples[0 if self.rule.trains_screening else self.num_screening :]))

    @property
    def fate(self) -> Fate:
        """Determined only by its samples: a prompt with missing samples is in the same state as before the call."""
        if not self.samples:
            return Fate.WAITING
        if self.num_missing:
            return Fate.QUALIFIED if self.is_qualified else Fate.PARTLY_SCREENED
        if self.is_qualified or self.rule.trains_unmixed:
            return Fate.READY
        return self.unmixed_fate

    @property
    def unmixed_fate(self) -> Fate:
        """Which end an unmixed screening is nearer to."""
        is_low = self.rule.grading.is_low(self.num_passes / len(self.samples))
        return Fate.ALL_WRONG if is_low else Fate.ALL_RIGHT

    @property
    def version(self) -> int:
        """Weight version of the oldest sample."""
        return min(sample.version for sample in self.samples)

    def with_samples(self, new: tuple[Sample, ...]) -> "TrainingGroup":
        """The group with further samples."""
        samples, grading = self.samples + new, self.rule.grading
        passes = self.num_passes + sum([grading.success(sample.success) for sample in new])
        num_screening = self.num_screening
        # Screening ends with the first mixed outcome.
        if not num_screening and grading.is_mixed([grading.success(sample.success) for sample in samples]):
            num_screening = len(samples)
        return replace(
            self,
            samples=samples,
            num_passes=passes,
            num_screening=num_screening,
            stage_sizes=(*self.stage_sizes, len(new)),
        )

    @property
    def stages(self) -> tuple[int, ...]:
        """For each sample, the number of the call that generated it, from 0."""
        return tuple(stage for stage, size in enumerate(self.stage_sizes) for _ in range(size))

    def pack(self) -> list[Any]:
        """Plain JSON types, whatever integer and float types the data plane returned."""
        samples, plan = self.samples, self.plan
        return [
            [*self.prompt.pack(), self.prompt.alpha, self.prompt.beta],
            [plan.chunk, plan.max_fails, plan.max_passes],
            [self.rule.size, self.rule.trains_screening, self.rule.trains_unmixed],
            [self.rule.grading.success_threshold, list(self.rule.grading.band)],
            [self.num_passes, int(self.num_screening)],
            list(self.stage_sizes),
            # Columns, as there are many samples.
            [s.key for s in samples],
            [float(s.success) for s in samples],
            [int(s.version) for s in samples],
            [int(s.num_tokens) for s in samples],
        ]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> "TrainingGroup":
        """Restore what `pack` returned; raises ValueError if its columns differ in length."""
        prompt, plan, rule, (threshold, band), (num_passes, num_screening), stage_sizes, *columns = packed
        if {len(column) for column in columns} != {sum(stage_sizes)}:
            raise ValueError(f"expected samples of {prompt[0]!r} with all their values, got {columns}: it is damaged")
        return cls(
            Prompt(*prompt),
            ScreeningPlan(*plan),
            GroupRule(*rule, grading=Grading(threshold, tuple(band))),
            tuple(map(Sample, *columns)),
            num_passes,
            num_screening,
            tuple(stage_sizes),
        )


@dataclass(frozen=True)
class GenerationInput:
    """What to generate for one prompt: `num_samples` rollouts, whose session numbers continue from the last ones."""

    group: TrainingGroup  # as it is before the call
    num_samples: int

    @property
    def prompt(self) -> Prompt:
        """The group's prompt."""
        return self.group.prompt

    @property
    def phase(self) -> Phase:
        """The purpose of the call."""
        return Phase.CONTINUATION if self.group.is_qualified else Phase.SCREENING

    @property
    def first_session(self) -> int:
        """Number of the first new rollout among all of the prompt, from 0."""
        return len(self.group.samples)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one generation call revealed about a prompt's successes, whatever happens to its samples."""

    index: int | str
    phase: Phase
    passes: float  # sum of their successes: an int with a threshold
    samples: int  # fewer than asked if the call failed
    shortfall: float = 0  # sum of s (1 - s) over them: 0 where each success s is 0 or 1

    def event(self) -> dict[str, Any]:
        """A line of the prompt history."""
        passes = round(self.passes, 6)  # a sum of grades has many decimals
        # Of grades, the passes alone do not tell whether they differ.
        grades = {"shortfall": round(self.shortfall, 6)} if self.shortfall else {}
        return {"event": self.phase.value, "index": self.index, "samples": self.samples, "passes": passes} | grades


@dataclass(frozen=True)
class UpdateResult:
    """What the trainer must act on: released names can be freed in the data plane before the next generation."""

    released_keys: tuple[str, ...]  # samples of dropped, evicted and failed prompts
    released_uids: tuple[str, ...]  # prompts that left without being trained on
    qualified_uids: tuple[str, ...] = ()  # screened with a mixed result: they are continued next
    ready_uids: tuple[str, ...] = ()  # finished by this call (eviction may have sent some back)
    failed_uids: tuple[str, ...] = ()  # requested again first, or given up
    outcomes: tuple[Outcome, ...] = ()  # of the prompts with results in this call, in that order


def uids_of(groups: Iterable[TrainingGroup]) -> tuple[str, ...]:
    return tuple([group.prompt.uid for group in groups])


def keys_of(groups: Iterable[TrainingGroup]) -> tuple[str, ...]:
    """Keys of all their samples."""
    return tuple([sample.key for group in groups for sample in group.samples])
