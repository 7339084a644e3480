"""Offline sampling with vLLM from any Hugging Face model, on a GPU or a CPU, with prompts rendered as verl does it."""

import atexit
import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_ext.core.errors import SignalError


def load_tokenizer(model: str):
    """The model's tokenizer as verl loads it."""
    from verl.utils.tokenizer import hf_tokenizer

    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise SignalError(
            f"--model {model} is a folder without config.json. Expected a model in Hugging Face format, or for Fast "
            "DAPO's evaluation a verl checkpoint (global_step_N or its actor folder); any other checkpoint must be "
            "merged first (python -m verl.model_merger)."
        )
    try:
        return hf_tokenizer(model)
    except (OSError, ValueError) as error:
        raise SignalError(
            f"--model {model}: neither a folder with a model and its tokenizer nor a model that the hub gave us "
            f"({str(error).splitlines()[0]})"
        ) from error


def encode_prompts(
    rows: Sequence[dict[str, Any]],
    tokenizer: Any,
    room: int,
    *,
    raw_prompt: bool = False,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    system_prompt: str | None = None,
    name: str = "",
) -> list[list[int]]:
    """Token ids of the prompts.

    Args:
        rows: Rows of the file.
        tokenizer: Tokenizer, with a chat template unless `raw_prompt`.
        room: Maximum number of tokens of a prompt, in addition to its response.
        raw_prompt: Concatenate the messages' contents, without a chat template and with the special tokens that the
            tokenizer adds by default: the format in which a base model continues text.
        chat_template_kwargs: Passed to the chat template.
        system_prompt: First message of every prompt, instead of the row's own; None keeps the row unchanged.
        name: Name of the data set, for messages.

    Raises:
        SignalError: If a prompt is longer than `room` (a truncated prompt would be another question), or the chat
            template cannot render it.
    """
    from verl.utils.tokenizer import normalize_token_ids
    from verl.utils.tokenizer.chat_template import apply_chat_template

    if raw_prompt:
        prompts = [tokenizer("".join(message["content"] for message in row["prompt"]))["input_ids"] for row in rows]
    else:
        kwargs = dict(chat_template_kwargs or {})
        _check_chat_template(tokenizer, kwargs)
        try:
            prompts = [
                normalize_token_ids(apply_chat_template(tokenizer, with_system(row["prompt"], system_prompt), **kwargs))
                for row in rows
            ]
        except Exception as error:  # a template may raise anything
            raise SignalError(
                f"the chat template cannot render the prompts ({type(error).__name__}: {error}). See "
                "--chat_template_kwargs and --system_prompt, or give --raw_prompt."
            ) from error
    where = f"{name}: " if name else ""
    too_long = [number for number, ids in enumerate(prompts) if len(ids) > room]
    if too_long:
        raise SignalError(
            f"{where}{len(too_long)} prompt(s) are too long, the first is row {too_long[0]} with "
            f"{len(prompts[too_long[0]])} tokens: the model's context leaves {max(room, 0)}. Lower "
            "--max_response_length or drop those rows."
        )
    empty = [number for number, ids in enumerate(prompts) if not ids]
    if empty:
        raise SignalError(
            f"{where}{len(empty)} prompt(s) have no tokens, the first is row {empty[0]}. Drop those rows."
        )
    return prompts


def with_system(messages: Sequence[Mapping[str, Any]], system_prompt: str | None) -> list[dict[str, Any]]:
    """The messages with this system prompt instead of their own; unchanged for None.

    Example:
        >>> with_system([{"role": "user", "content": "1+1="}], "Be brief.")
        [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '1+1='}]
    """
    given = [dict(message) for message in messages]
    if system_prompt is None:
        return given
    rest = given[1:] if given and given[0]["role"] == "system" else given
    return [{"role": "system", "content": system_prompt}, *rest]


def _check_chat_template(tokenizer: Any, kwargs: Mapping[str, Any]) -> None:
    """A template ignores unknown arguments: a misspelled one would silently have no effect."""
    template = kwargs.get("chat_template") or tokenizer.chat_template
    if template is None:
        raise SignalError(
            "the tokenizer has no chat template; but prompts are chat messages. Use a chat model's, or --raw_prompt to "
            "continue the prompts as plain text."
        )
    # A tokenizer may have several templates by name.
    text = template if isinstance(template, str) else "\n".join(map(str, template.values()))
    unknown = [name for name in kwargs if name != "chat_template" and not re.search(rf"\b{re.escape(name)}\b", text)]
    if unknown:
        raise SignalError(
            f"--chat_template_kwargs: the model's chat template does not read {', '.join(unknown)}. Correct the name, "
            "or leave it out."
        )


def prepare_vllm() -> bool:
    """Set the variables that vLLM reads at import; returns whether there is no GPU. Existing values are kept."""
    import torch

    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if torch.cuda.is_available():
        return False
    # One process, because a second one would import everything again; no compilation, because that needs a C++
    # compiler; threads unbound, because a machine without a GPU is usually shared.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    _mute_teardown()
    return True


@functools.cache
def _mute_teardown() -> None:
    """Silence the process's teardown, where triton's bindings print thirty lines about what they leaked.

    Exit handlers run in reverse order, so those of vLLM, which is not imported yet, can still print.
    """
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


class Sampler:
    """vLLM with a model, ready to sample batches of prompts from the model's own distribution.

    Args:
        model: Folder of a Hugging Face model, or its name on the hub.
        max_model_len: Tokens of the longest prompt and its response together.
        seed: Seed of everything that is not seeded by prompt.
        kv_cache_gib: Memory of the key-value cache on a CPU, in GiB; a GPU uses what is free.
        gpu_memory_utilization: Share of a GPU's memory that vLLM may use; None for vLLM's default.
        tensor_parallel_size: GPUs that share the model.

    Raises:
        SignalError: If vLLM cannot start.
    """

    def __init__(
        self,
        model: str,
        *,
        max_model_len: int,
        seed: int = 0,
        kv_cache_gib: float = 0.5,
        gpu_memory_utilization: float | None = None,
        tensor_parallel_size: int = 1,
    ) -> None:
        on_cpu = prepare_vllm()
        from vllm import LLM

        options: dict[str, Any] = {}
        if on_cpu:
            # float32: bfloat16 is several times slower on most CPUs. A share of the memory would be a share of all RAM.
            options = {"dtype": "float32", "kv_cache_memory_bytes": int(kv_cache_gib * 2**30)}
            # A prompt that is split in two rewinds its request's generator, which is impossible on a CPU.
            options["enable_chunked_prefill"] = False
            # Prefixes are cached in whole blocks; the default on CPUs is 128 tokens.
            options["block_size"] = 32
        elif gpu_memory_utilization is not None:
            options = {"gpu_memory_utilization": gpu_memory_utilization}
        try:
            self._engine = LLM(
                model=model,
                enforce_eager=on_cpu,
                seed=seed,
                max_model_len=max_model_len,
                tensor_parallel_size=tensor_parallel_size,
                **options,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise SignalError(
                f"vLLM cannot start with {model} ({type(error).__name__}: {error}). If its own lines above mention "
                "memory, see --gpu_memory_utilization, --tensor_parallel_size and, without a GPU, --kv_cache_gib."
            ) from error

    def generate(
        self,
        prompts: Sequence[list[int]],
        seeds: Sequence[int],
        *,
        n: int,
        temperature: float,
        max_response_length: int,
        top_p: float = 1.0,
        top_k: int = -1,
    ) -> list[list[tuple[list[int], bool]]]:
        """Sample `n` responses per prompt.

        Args:
            prompts: Token ids of each prompt.
            seeds: One per prompt; its samples use this seed and the n - 1 after it. Equal prompts, seeds and batches
                give equal responses on the same machine, whatever was sampled before.
            n: Responses per prompt.
            temperature: 0 is greedy.
            max_response_length: Maximum number of tokens per response.
            top_p: Sample from the most likely tokens up to this total probability; 1 for all.
            top_k: Sample from this many of the most likely tokens; -1 for all.

        Returns:
            For each prompt, its `n` responses: token ids, and whether the length limit cut them off.
        """
        from vllm import SamplingParams

        sampling = [
            SamplingParams(
                n=n,
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                max_tokens=max_response_length,
                detokenize=False,
                seed=seed,
            )
            for seed in seeds
        ]
        outputs = self._engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling)
        return [[(list(o.token_ids), o.finish_reason == "length") for o in output.outputs] for output in outputs]
