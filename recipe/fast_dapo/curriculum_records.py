"""The records that the curriculum's controller takes and gives. Pure; the algorithm is in `data_controller.py`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import Any

from recipe.fast_dapo.correction import CORRECTIONS
from recipe.fast_dapo.screening import ScreeningPlan

SCHEDULES = ("merged", "streaming")


class Phase(str, Enum):  # noqa: UP042 - prints as its value in logs under every Python that verl supports
    SCREENING = "screening"
    CONTINUATION = "continuation"


@dataclass(frozen=True)
class CurriculumSettings:
    """Sizes and limits of the curriculum; raises ValueError on a value out of range."""

    n: int  # screening rollouts a prompt (sequential screening: at most)
    n_continue: int  # further rollouts of a prompt that qualifies after n
    train_batch_size: int  # prompts a training batch
    gen_batch_size: int  # merged: new prompts a round; streaming: prompts in screening at once
    max_num_gen_batches: int = 0  # rounds allowed for one training batch; 0: no limit
    max_buffer_prompts: int | None = None  # ready prompts kept beyond one training batch; None: no bound
    max_staleness: int | None = None  # age in weight versions that a prompt's oldest sample may reach; None: no bound
    success_threshold: float = 0.5  # a sample passes when its `success` exceeds it
    max_attempts: int = 3  # failed generation calls in a row until a prompt is given up
    schedule: str = "merged"  # see data_controller.py
    correction: str = "none"  # see correction.py

    def __post_init__(self) -> None:
        # With n = 1 every pass rate is 0 or 1 and nothing could ever qualify.
        least = {"n": 2, "n_continue": 1, "train_batch_size": 1, "gen_batch_size": 1, "max_num_gen_batches": 0}
        least["max_attempts"] = 1
        for name, low in {**least, "max_buffer_prompts": 0, "max_staleness": 0}.items():
            value, optional = getattr(self, name), name not in least
            if (value is None and optional) or (type(value) is int and value >= low):
                continue
            raise ValueError(f"{name} must be an int >= {low}{' or None' * optional}, got {value!r}: change {name}")
        if not math.isfinite(self.success_threshold):
            raise ValueError(f"success_threshold must be finite, got {self.success_threshold!r}: try 0.5")
        for name, known in (("schedule", SCHEDULES), ("correction", CORRECTIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}")

    @property
    def group_size(self) -> int:
        """Samples of a prompt in a training batch."""
        return self.n_continue if self.correction == "continuation_only" else self.n + self.n_continue


@dataclass(frozen=True)
class Prompt:
    uid: str  # new at every fetch, unique among live prompts
    index: int | str  # lasting identity over epochs; two live prompts may share it

    def __post_init__(self) -> None:
        if not isinstance(self.index, (int, str, Integral)):  # a tensor would compare by object, not by value
            raise ValueError(f"index must be an int or a str, got {self.index!r}: set extra_info.index in the data set")

    def pack(self) -> list[Any]:
        """Plain JSON types, whatever integers the data plane handed over."""
        return [self.uid, self.index if isinstance(self.index, str) else int(self.index)]


@dataclass(frozen=True, slots=True)
class Sample:
    key: str  # name of the rollout in the data plane
    success: float  # compared with success_threshold
    version: int  # weight version that generated it
    num_tokens: int = 0  # response tokens


@dataclass(frozen=True)
class GenerationInput:
    prompt: Prompt
    phase: Phase
    num_samples: int
    first_session: int  # sessions of a prompt number its rollouts; continuation goes on where screening stopped


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
    def version(self) -> int:
        """Weight version of the oldest sample."""
        return min(sample.version for sample in self.samples)

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
class UpdateResult:
    """What the trainer must follow up: released names can be freed in the data plane before the next generation."""

    released_keys: tuple[str, ...]  # samples of dropped, evicted and failed prompts
    released_uids: tuple[str, ...]  # prompts that left without being trained on
    qualified_uids: tuple[str, ...] = ()  # now in the second phase
    ready_uids: tuple[str, ...] = ()  # finished by this call (eviction may have sent some back)
    failed_uids: tuple[str, ...] = ()  # back at the front of their phase, or given up
