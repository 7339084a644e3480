"""Settings of `recipe.golden_redaction.evaluate`, and the states that the model answers."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.settings import SandboxSettings
from verl_ext.arc.prompts import PromptSettings, SizeLimits
from verl_ext.arc.solutions import GOLDEN
from verl_ext.core.errors import SignalError
from verl_ext.evaluation.settings import EvaluateSettings
from verl_ext.evaluation.statistics.samples import PromptKey


@dataclass(frozen=True)
class GoldenEvaluateSettings:
    """What to evaluate and how; raises SignalError or ValueError on a contradiction.

    Attributes:
        model: Folder of a Hugging Face model or of a checkpoint of verl, or a name on the hub.
        data: Parquet files of data_preprocess.arc.
        output_dir: Folder of samples and result.
        n: Answers per state.
        fresh: Fresh pairs, JSON lines `{id, pairs}`; None: the metrics about them are left out.
        states: JSON lines with `problem` and `k`, such as a run's training entries; None: see `choose_rungs`.
        redact: Shares of the golden solutions to hide.
        temperature: 0 is greedy.
        max_new_tokens: Tokens of an answer.
        seed: Seed of the sampling.
        golden_folder: Folder of <task>.py files.
        time_budget: Minutes after which sampling stops; None: sample all.
        limit: Number of tasks to use, golden ones from easy to hard first; None: all.
        limits: Size limits; larger tasks are left out.
        prompt: How tasks are shown.
        sandbox: Where programs run.
        chunk_size: States that are sampled, scored and stored per chunk.
        kv_cache_gib: Memory of the key-value cache on a CPU, in GiB; a GPU uses what is free.
        tensor_parallel_size: GPUs that share the model.
    """

    model: str
    data: tuple[str, ...]
    output_dir: Path
    n: int = 64
    fresh: Path | None = None
    states: Path | None = None
    redact: tuple[float, ...] = (0.25, 0.5, 1.0)
    temperature: float = 1.0
    max_new_tokens: int = 1024
    seed: int = 0
    golden_folder: Path = GOLDEN
    time_budget: float | None = None
    limit: int | None = None
    limits: SizeLimits = field(default_factory=SizeLimits)
    prompt: PromptSettings = field(default_factory=PromptSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    chunk_size: int = 32
    kv_cache_gib: float = 1.0
    tensor_parallel_size: int = 1

    def __post_init__(self) -> None:
        if min(self.max_new_tokens, self.chunk_size, 1 if self.limit is None else self.limit) < 1:
            raise SignalError("--max_new_tokens, --chunk_size and --limit must be at least 1")
        if self.time_budget is not None and self.time_budget <= 0:
            raise SignalError(f"--time_budget must be more than 0 minutes, got {self.time_budget:g}")
        if not all(0 < share <= 1 for share in self.redact):
            raise SignalError(f"--redact must be shares in (0, 1], got {list(self.redact)}: try 0.25,0.5,1")
        if not self.golden_folder.is_dir():
            raise SignalError(f"--golden_folder {self.golden_folder} is not a folder")
        self.sample_settings()  # runs the sampling's own checks

    def sample_settings(self) -> dict[str, Any]:
        """All settings that samples depend on besides their states; samples of different settings must not be mixed."""
        settings = EvaluateSettings(
            self.model, self.data, n=self.n, k=(1,), temperature=self.temperature, seed=self.seed,
            max_response_length=self.max_new_tokens,
        )  # fmt: skip
        return settings.sample_settings()


@dataclass(frozen=True)
class Question:
    """A state to answer: task, hidden tokens, and the text that the model continues."""

    problem: Problem
    k: int

    @property
    def given(self) -> tuple[int, ...]:
        """Visible golden ids."""
        return self.problem.golden_ids[: len(self.problem.golden_ids) - self.k]

    @property
    def ids(self) -> list[int]:
        """Token ids of the state."""
        return [*self.problem.prompt_ids, *self.given]

    @property
    def key(self) -> PromptKey:
        """Identified by its token ids, which include the examples."""
        return PromptKey(hashlib.sha256(repr(self.ids).encode()).hexdigest()[:16], self.k)
