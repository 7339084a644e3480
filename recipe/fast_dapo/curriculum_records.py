"""The records that the curriculum's controller takes and gives. Pure; the algorithm is in `data_controller.py`."""

import math
from dataclasses import dataclass
from enum import Enum
from numbers import Integral


class Phase(str, Enum):  # noqa: UP042 - prints as its value in logs under every Python that verl supports
    SCREENING = "screening"
    CONTINUATION = "continuation"


@dataclass(frozen=True)
class CurriculumSettings:
    """Sizes and limits of the curriculum; raises ValueError on a value out of range."""

    n: int  # screening rollouts a prompt
    n_continue: int  # further rollouts of a prompt that qualifies
    train_batch_size: int  # prompts a training batch
    gen_batch_size: int  # new prompts a round
    max_num_gen_batches: int = 0  # rounds allowed for one training batch; 0: no limit
    max_buffer_prompts: int | None = None  # ready prompts kept beyond one training batch; None: no bound
    max_staleness: int | None = None  # age in weight versions that a prompt's oldest sample may reach; None: no bound
    success_threshold: float = 0.5  # a sample passes when its `success` exceeds it
    max_attempts: int = 3  # failed generation calls in a row until a prompt is given up

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

    @property
    def group_size(self) -> int:
        """Samples of a prompt in a training batch."""
        return self.n + self.n_continue


@dataclass(frozen=True)
class Prompt:
    uid: str  # new at every fetch, unique among live prompts
    index: int | str  # lasting identity over epochs; two live prompts may share it

    def __post_init__(self) -> None:
        if not isinstance(self.index, (int, str, Integral)):  # a tensor would compare by object, not by value
            raise ValueError(f"index must be an int or a str, got {self.index!r}: set extra_info.index in the data set")


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
    """A prompt with the samples it has so far, in session order: n in the second phase, n + n_continue when ready."""

    prompt: Prompt
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class UpdateResult:
    """What the trainer must follow up: released names can be freed in the data plane before the next generation."""

    released_keys: tuple[str, ...]  # samples of dropped, evicted and failed prompts
    released_uids: tuple[str, ...]  # prompts that left without being trained on
    qualified_uids: tuple[str, ...] = ()  # now in the second phase
    ready_uids: tuple[str, ...] = ()  # finished by this call (eviction may have released some again)
    failed_uids: tuple[str, ...] = ()  # back at the front of their phase, or given up
