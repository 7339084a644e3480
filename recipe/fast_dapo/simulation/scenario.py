"""The settings of a simulated run: the curriculum's, the engines', the pool's, and the training mode."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.screening import SCREENINGS
from recipe.fast_dapo.settings import PREDICTORS
from recipe.fast_dapo.simulation.workload import WorkloadSettings
from verl_ext.simulation.engine_model import EngineSettings

SYNC, COLOCATE, SEPARATE = MODES = ("sync", "colocate_async", "separate_async")


@dataclass(frozen=True)
class Scenario:
    """One simulated run; raises ValueError on a value out of range. Times in seconds.

    The defaults: one engine is one H100 (3.35 TB/s, 990 TFLOP/s in bf16) with a model of 7.6e9 parameters in bf16
    whose key-value cache takes 57 kB per token, at 70 % of the bandwidth and 50 % of the arithmetic. A decoding step
    reads the weights (6.5 ms) and launches its kernels (3.5 ms); each sequence adds 75 us for a cache of 3,000 tokens
    and 30 us of arithmetic. Training costs 8 operations per parameter and token at 40 %: 0.23 s per rollout of 1,500
    tokens.
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
    train_on: str = "qualified"

    mode: str = SYNC  # trainer.v1.trainer_mode
    batches_ahead: float = 1.0  # num_warmup_batches of the asynchronous modes
    updates: int = 1  # per step with separate_async (parameter_sync_step)
    train_devices: int = 8  # training devices with separate_async; the engines have num_engines others
    sync_seconds: float = 3.0  # part of update_seconds in which engines on separate devices wait for weights

    num_engines: int = 8
    slots: int = 256
    step_seconds: float = 0.010
    sequence_seconds: float = 1.0e-4
    prefill_seconds: float = 0.005
    host_seconds: float = 0.0
    call_seconds: float = 0.1
    update_seconds: float = 10.0  # per step outside generation, whatever its size: weight sync and overhead
    # of training per rollout on one engine's devices; divided by the number of training devices
    update_rollout_seconds: float = 0.23

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
        for name, known in (("predictor", PREDICTORS), ("screening", SCREENINGS), ("mode", MODES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}")
        if self.screening == "sequential" and (self.schedule, self.predictor) != ("streaming", "posterior"):
            raise ValueError("screening=sequential needs schedule=streaming and predictor=posterior")
        counts = ("screening_chunk", "num_steps", "updates", "train_devices")
        for name, low in (*((name, 1) for name in counts), ("warmup_steps", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise ValueError(f"{name} must be an int of at least {low}, got {value!r}: change {name}")
        if self.warmup_steps >= self.num_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps} of num_steps={self.num_steps} leave no steps to count")
        for name in ("call_seconds", "update_seconds", "update_rollout_seconds", "sync_seconds", "batches_ahead"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)!r}: change {name}")
        if self.mode != SYNC and self.schedule != "streaming":
            raise ValueError(f"mode={self.mode} needs schedule=streaming: a merged call waits for all of its rollouts")
        if self.train_batch_size % self.updates:
            raise ValueError(f"train_batch_size={self.train_batch_size} must be a multiple of updates={self.updates}")
        if self.mode == SEPARATE and self.sync_seconds > self.update_seconds:
            raise ValueError(
                f"sync_seconds={self.sync_seconds} are of the update_seconds={self.update_seconds}: lower the former"
            )
        if self.num_prompts < self.gen_batch_size:
            raise ValueError(
                f"expected at least gen_batch_size={self.gen_batch_size} prompts in the pool, got {self.num_prompts}: "
                "raise num_prompts or lower gen_batch_size"
            )
        for check in (self.curriculum, self.engines, self.workload):
            check()

    @property
    def updates_per_step(self) -> int:
        """Updates, each with its own prompts, between two weight synchronisations."""
        return self.updates if self.mode == SEPARATE else 1

    def curriculum(self) -> CurriculumSettings:
        """The curriculum's settings, which `recipe.fast_dapo.settings` derives from the mode."""
        updates = self.updates_per_step
        sizes: dict[str, Any] = {
            "train_batch_size": self.train_batch_size // updates,
            "gen_batch_size": math.ceil(self.gen_batch_size / updates),
            "ahead": 0.0 if self.mode == SYNC else updates * (1 + self.batches_ahead) - 1,
            "batches_per_version": updates,
        }
        return CurriculumSettings(**self._values(CurriculumSettings.model_fields) | sizes)

    def engines(self) -> EngineSettings:
        return self._part(EngineSettings)

    def workload(self) -> WorkloadSettings:
        return self._part(WorkloadSettings)

    def _part(self, kind: type) -> Any:
        return kind(**self._values(field.name for field in dataclasses.fields(kind)))

    def _values(self, names: Iterable[str]) -> dict[str, Any]:
        mine = vars(self)
        return {name: mine[name] for name in names if name in mine}
