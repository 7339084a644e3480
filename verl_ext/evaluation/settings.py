"""The settings of an evaluation, checked once, and those that stored samples depend on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_ext.core.errors import SignalError
from verl_ext.evaluation.checkpoint_files import actor_folder, fingerprint
from verl_ext.evaluation.statistics.majority_vote import MAX_SAMPLES
from verl_ext.evaluation.statistics.report import SUCCESS_THRESHOLD

# Arguments of `apply_chat_template` that rendering prompts sets by itself.
_SET_HERE = ("add_generation_prompt", "continue_final_message", "return_dict", "return_tensors", "tokenize")

# Samples of other values must not be mixed. Other settings are compared differently (`model`) or do not affect samples.
_SAMPLE_SETTINGS = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "max_response_length",
    "seed",
    "reward",
    "raw_prompt",
    "chat_template_kwargs",
    "system_prompt",
)


@dataclass(frozen=True)
class EvaluateSettings:
    """What to evaluate and how.

    Attributes:
        model: Folder of a Hugging Face model or of a checkpoint of verl, or a model's name on the hub.
        data: Parquet files in verl's schema.
        n: Samples per prompt.
        k: The k of pass@k and maj@k, each at most `n`.
        temperature: 0 is greedy.
        top_p: Sample from the most likely tokens up to this total probability; 1 for all.
        top_k: Sample from this many of the most likely tokens; -1 for all.
        max_response_length: Maximum number of tokens per response.
        limit: Number of prompts to use per file, from the first; None for all.
        seed: Seed of the sampling.
        reward: "file.py:function" or "pkg://module:function"; None chooses by `data_source`.
        success_threshold: A sample is right if its reward (`acc` if the function reports it, otherwise `score`) is at
            least this.
        by: A field of `extra_info` to break the result down by.
        raw_prompt: Continue the prompts as plain text, without the chat template.
        chat_template_kwargs: Passed to the chat template, as verl's `data.apply_chat_template_kwargs`.
        system_prompt: First message of every prompt, instead of the file's; None keeps the file's.
        chunk_size: Prompts that are sampled, scored and saved per chunk.
        kv_cache_gib: Memory of the key-value cache on a CPU, in GiB; a GPU uses what is free.
        gpu_memory_utilization: Share of a GPU's memory that vLLM may use; None for vLLM's default.
        tensor_parallel_size: GPUs that share the model.
        data_parallel_size: Engines with the whole model, each on its own GPUs, that share the prompts.
    """

    model: str
    data: tuple[str, ...]
    n: int = 16
    k: tuple[int, ...] = (1, 4, 16)
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_response_length: int = 1024
    limit: int | None = None
    seed: int = 0
    reward: str | None = None
    success_threshold: float = SUCCESS_THRESHOLD
    by: str | None = None
    raw_prompt: bool = False
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None
    chunk_size: int = 256
    kv_cache_gib: float = 0.5
    gpu_memory_utilization: float | None = None
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.data, str) or not self.data:
            raise SignalError(f"--data must be one or more parquet files, got {self.data!r}")
        if min(self.n, self.max_response_length, self.chunk_size, 1 if self.limit is None else self.limit) < 1:
            raise SignalError("--n, --max_response_length, --chunk_size and --limit must be at least 1")
        if min(self.tensor_parallel_size, self.data_parallel_size) < 1:
            raise SignalError("--tensor_parallel_size and --data_parallel_size must be at least 1")
        if self.n > MAX_SAMPLES:
            raise SignalError(f"--n must be at most {MAX_SAMPLES}, got {self.n}")
        if not self.k or min(self.k) < 1 or max(self.k) > self.n:
            raise SignalError(f"--k must be from 1 to --n ({self.n}), got {list(self.k)}. Raise --n or lower --k.")
        if self.temperature < 0:
            raise SignalError(f"--temperature must be at least 0, got {self.temperature}")
        if self.temperature == 0 and self.n > 1:
            raise SignalError(f"greedy samples are all the same: --temperature 0 needs --n 1, got {self.n}")
        if not 0 < self.top_p <= 1:
            raise SignalError(f"--top_p must be above 0 and at most 1 (all tokens), got {self.top_p}")
        if self.top_k != -1 and self.top_k < 1:
            raise SignalError(f"--top_k must be at least 1, or -1 for all tokens, got {self.top_k}")
        if self.gpu_memory_utilization is not None and not 0 < self.gpu_memory_utilization <= 1:
            raise SignalError(
                f"--gpu_memory_utilization must be above 0 and at most 1, got {self.gpu_memory_utilization}"
            )
        if self.reward is not None and not all(self.reward.rpartition(":")[::2]):
            raise SignalError(f"--reward must be path/to/file.py:function, got {self.reward!r}")
        taken = [name for name in self.chat_template_kwargs if name in _SET_HERE]
        if taken:
            raise SignalError(
                f"--chat_template_kwargs: {', '.join(taken)} is set by the evaluation itself. Leave it out."
            )
        if self.raw_prompt and (self.chat_template_kwargs or self.system_prompt is not None):
            raise SignalError(
                "--raw_prompt leaves out the chat template, which --chat_template_kwargs and --system_prompt need. "
                "Leave one or the other out."
            )

    def sample_settings(self) -> dict[str, Any]:
        """All settings that samples depend on besides their prompts; samples of other values must not be mixed with
        them."""
        folder = actor_folder(self.model) or Path(self.model)
        model = str(folder.resolve()) if folder.is_dir() else self.model
        return {"model": model, "model_files": fingerprint(folder)} | {
            name: getattr(self, name) for name in _SAMPLE_SETTINGS
        }
