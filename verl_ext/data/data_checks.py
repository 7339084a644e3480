"""Checks of the data that need no Ray: the parquet files, and prompts longer than the limit."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from omegaconf import DictConfig, ListConfig

from verl_ext.core.errors import ConfigError, SignalError
from verl_ext.data.raw_prompt import load_tokenizer
from verl_ext.data.schema import ParquetError, check_parquets

# Prompts rendered and tokenized at once.
_CHUNK = 4096


class DataError(SignalError):
    """The data cannot be trained or validated on."""


def check_data(config: DictConfig, check_lengths: bool = True) -> None:
    """Check the training and validation files of a run.

    Args:
        config: Of the run.
        check_lengths: Measure the prompts as verl renders them; not for a recipe that encodes and limits its own.

    Raises:
        DataError: names files, columns and rows, or how many prompts are too long.
    """
    data = config.data
    train_files, val_files = _files(data.train_files), _files(data.val_files)
    reports = []
    for name, files in (("data.train_files", train_files), ("data.val_files", val_files)):
        if any(str(file).endswith((".json", ".jsonl")) for file in files):
            raise DataError(f"{name}: expected parquet files, got {files}; convert them (see data_preprocess/)")
        try:
            reports.append(check_parquets(files))
        except ParquetError as error:
            raise DataError(f"{name}: {error}") from None
    needed = data.get("gen_batch_size") or data.train_batch_size
    if reports[0].num_rows < needed:
        raise DataError(
            f"data.train_files hold {reports[0].num_rows} prompts, fewer than one fetch of data.gen_batch_size="
            f"{needed}: verl drops incomplete fetches. Lower data.gen_batch_size or add data."
        )
    if check_lengths and not data.filter_overlong_prompts:
        _check_lengths(config, [*train_files, *val_files])


def _files(entry: Any) -> list[str]:
    return list(entry) if isinstance(entry, list | ListConfig) else [entry]


def _check_lengths(config: DictConfig, files: Sequence[str]) -> None:
    """verl cuts prompts over the limit on their left, and only the log of a worker says so."""
    limit, truncation = config.data.max_prompt_length, config.data.truncation
    try:
        tokenizer = load_tokenizer(config)
    except ConfigError as error:
        raise DataError(str(error)) from None
    kwargs = dict(config.data.apply_chat_template_kwargs)
    if config.actor_rollout_ref.model.get("custom_chat_template"):
        kwargs["chat_template"] = config.actor_rollout_ref.model.custom_chat_template
    elif tokenizer.chat_template is None:
        raise DataError(
            f"actor_rollout_ref.model.path={tokenizer.name_or_path}: the tokenizer has no chat template, as a base "
            "model's may. Set data.use_chat_template=false to give the model the prompts as plain text."
        )
    problems = []
    for file in files:
        lengths = np.fromiter(
            itertools.chain.from_iterable(
                _lengths(tokenizer, batch.column(0).to_pylist(), kwargs)
                for batch in pq.ParquetFile(file).iter_batches(_CHUNK, columns=[config.data.prompt_key])
            ),
            dtype=np.int64,
        )
        too_long = int((lengths > limit).sum())
        if too_long:
            problems.append(f"{file}: {too_long} of {len(lengths)} prompts, the longest {lengths.max()} tokens")
    if not problems:
        return
    message = f"Prompts longer than data.max_prompt_length={limit} tokens:\n  - " + "\n  - ".join(problems)
    if truncation != "error":
        print(f"{message}\nThey are cut ({truncation}), as data.truncation says.")
        return
    raise DataError(
        f"{message}\nRaise data.max_prompt_length, set data.filter_overlong_prompts=true to leave them out, or "
        "data.truncation=left, right or middle to cut them."
    )


def _lengths(tokenizer: Any, prompts: list[list[dict[str, str]]], kwargs: dict[str, Any]) -> list[int]:
    texts = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False, **kwargs)
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
