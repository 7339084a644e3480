"""The records that the curriculum's controller takes and gives. Pure; the algorithm is in `data_controller.py`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import Any, Literal

from pydantic import Field

from recipe.fast_dapo.curriculum.correction import Correction
from recipe.fast_dapo.curriculum.screening import ScreeningPlan
from verl_ext.core.settings import Settings

Schedule = Literal["merged", "streaming"]


class Phase(str, Enum):  # noqa: UP042 - prints as its value in logs under every Python that verl supports
    """What a generation call is for: the first and the second generation phase of a prompt."""

    SCREENING = "screening"
    CONTINUATION = "continuation"


class Fate(Enum):
    """Where a prompt is between two generation calls, or how it left.

                     ALL_WRONG, ALL_RIGHT                            EVICTED_OVERFLOW
                               ^                                             ^
                               |                                             |
        add --> WAITING --> [screening] --> QUALIFIED --> [continuation] --> READY --> TRAINED
                   ^          |     ^           |                               |
                   |          v     |           |                               |
                   |     PARTLY_SCREENED        |                               |
                   |          |                 |                               |
                   +----------+-----------------+-------------------------------+   samples too old: released

    [...] is a generation call, during which the prompt is in flight. One whose call fails is again what it was before,
    first in its queue; after `max_attempts` such calls in a row it is GIVEN_UP.
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


SCREENED = (Fate.QUALIFIED, Fate.ALL_WRONG, Fate.ALL_RIGHT)
"""What the screening of a prompt may end in."""
NOTHING_TO_LEARN = (Fate.ALL_WRONG, Fate.ALL_RIGHT)


class CurriculumLimits(Settings):
    """What a user sets of the controller under `curriculum`; the configuration has it all, and more."""

    schedule: Schedule = "merged"
    """merged: continuation of one round and screening of the next share one generation call.
    streaming: a prompt is continued the moment its screening is mixed, under the same weights; new prompts are admitted
    until the expected number of ready ones covers the batch. data.gen_batch_size bounds the prompts in screening."""

    correction: Correction = "none"
    """What undoes the over-representation of rare passes among screened prompts (see correction.py):
    none | horvitz_thompson: advantages weighted by 1 / P(kept | passes) | continuation_only: train on n_continue
    rollouts."""

    max_num_gen_batches: int = Field(default=0, ge=0)
    """Generation rounds allowed until a training batch is complete; 0: no limit. A streaming round is gen_batch_size
    prompts. Past it the run writes a checkpoint and ends with the pass rates it saw."""

    max_buffer_prompts: int | None = Field(default=None, ge=0)
    """Finished prompts kept for later steps beyond the one training batch, stalest dropped first; null: all of them."""

    max_staleness: int | None = Field(default=4, ge=0)
    """Weight versions that a waiting sample may lag behind; past it the prompt is screened anew. null: no limit."""

    success_threshold: float = 0.5
    """A rollout passes when its success metric exceeds this."""


class CurriculumSettings(CurriculumLimits):
    """Sizes and limits of the curriculum."""

    # With n = 1 every pass rate is 0 or 1 and nothing could ever qualify.
    n: int = Field(ge=2)
    """Screening rollouts of a prompt (sequential screening: at most)."""

    n_continue: int = Field(ge=1)
    """Further rollouts of a prompt that qualifies after n."""

    train_batch_size: int = Field(ge=1)
    """Prompts of a training batch."""

    gen_batch_size: int = Field(ge=1)
    """merged: new prompts of a round. streaming: prompts in screening at once."""

    max_attempts: int = Field(default=3, ge=1)
    """Failed generation calls in a row until a prompt is given up."""

    @property
    def group_size(self) -> int:
        """Samples of a prompt in a training batch."""
        return self.n_continue if self.correction == "continuation_only" else self.n + self.n_continue


@dataclass(frozen=True)
class Prompt:
    uid: str  # new at every fetch, unique among live prompts
    index: int | str  # lasting identity over epochs; two live prompts may share it
    # Pass rate ~ Beta(alpha, beta), by all that is known when the screening begins; sequential screening needs it.
    alpha: float | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.index, (int, str, Integral)):  # a tensor would compare by object, not by value
            raise ValueError(f"index must be an int or a str, got {self.index!r}: set extra_info.index in the data set")

    def pack(self) -> list[Any]:
        """Plain JSON types, whatever integers the data plane handed over."""
        return [self.uid, self.index if isinstance(self.index, str) else int(self.index)]


@dataclass(frozen=True, slots=True)
class Sample:
    key: str  # name of the rollout's last output in the data plane
    success: float  # compared with success_threshold
    version: int  # weight version that generated it
    num_tokens: int = 0  # response tokens


@dataclass(frozen=True)
class TrainingGroup:
    """A prompt with the samples it has so far, in session order, and how it is or was screened."""

    prompt: Prompt
    plan: ScreeningPlan
    samples: tuple[Sample, ...] = ()
    num_passes: int = 0  # among the samples
    num_screening: int = 0  # samples that made up the screening; 0 while it goes on

    @property
    def is_qualified(self) -> bool:
        return self.num_screening > 0

    @property
    def fate(self) -> Fate:
        """By its samples alone: a prompt whose samples are not all there is still what it was before the call."""
        if self.is_qualified:
            return Fate.READY if len(self.samples) > self.num_screening else Fate.QUALIFIED
        if not self.samples:
            return Fate.WAITING
        if self.plan.next_rollouts(self.num_passes, len(self.samples)):
            return Fate.PARTLY_SCREENED
        return Fate.ALL_RIGHT if self.num_passes else Fate.ALL_WRONG

    @property
    def version(self) -> int:
        """Weight version of the oldest sample."""
        return min(sample.version for sample in self.samples)

    def with_samples(self, new: tuple[Sample, ...], num_passes: int) -> "TrainingGroup":
        """The group with further samples, so many of which pass."""
        samples, passes = self.samples + new, self.num_passes + num_passes
        # Screening ends with the first mixed outcome.
        num_screening = self.num_screening or (len(samples) if 0 < passes < len(samples) else 0)
        return TrainingGroup(self.prompt, self.plan, samples, passes, num_screening)

    def pack(self) -> list[Any]:
        """Plain JSON types, whatever integers and floats the data plane handed over."""
        samples, plan = self.samples, self.plan
        return [
            *self.prompt.pack(),
            [plan.chunk, plan.max_fails, plan.max_passes],
            [int(self.num_passes), int(self.num_screening)],
            # Columns, as there are many samples.
            [s.key for s in samples],
            [float(s.success) for s in samples],
            [int(s.version) for s in samples],
            [int(s.num_tokens) for s in samples],
        ]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> "TrainingGroup":
        """What `pack` gave; raises ValueError if its columns differ in length."""
        uid, index, plan, (num_passes, num_screening), *columns = packed
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"expected samples of {uid!r} with all their values, got {columns}: it is damaged")
        samples = tuple(map(Sample, *columns))
        return cls(Prompt(uid, index), ScreeningPlan(*plan), samples, num_passes, num_screening)


@dataclass(frozen=True)
class GenerationInput:
    """What to generate for one prompt: `num_samples` rollouts, whose sessions go on where the last ones stopped."""

    group: TrainingGroup  # as it is before the call
    num_samples: int

    @property
    def prompt(self) -> Prompt:
        return self.group.prompt

    @property
    def phase(self) -> Phase:
        return Phase.CONTINUATION if self.group.is_qualified else Phase.SCREENING

    @property
    def first_session(self) -> int:
        return len(self.group.samples)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one generation call told about a prompt: evidence of its pass rate, whatever becomes of its samples."""

    index: int | str
    phase: Phase
    passes: int
    samples: int  # fewer than asked if the call failed


@dataclass(frozen=True)
class UpdateResult:
    """What the trainer must follow up: released names can be freed in the data plane before the next generation."""

    released_keys: tuple[str, ...]  # samples of dropped, evicted and failed prompts
    released_uids: tuple[str, ...]  # prompts that left without being trained on
    qualified_uids: tuple[str, ...] = ()  # screened with a mixed result: they are continued next
    ready_uids: tuple[str, ...] = ()  # finished by this call (eviction may have sent some back)
    failed_uids: tuple[str, ...] = ()  # asked for again first, or given up
    outcomes: tuple[Outcome, ...] = ()  # of the prompts that this call had results of, in that order


def uids_of(groups: Iterable[TrainingGroup]) -> tuple[str, ...]:
    return tuple([group.prompt.uid for group in groups])


def keys_of(groups: Iterable[TrainingGroup]) -> tuple[str, ...]:
    """Of all their samples."""
    return tuple([sample.key for group in groups for sample in group.samples])
