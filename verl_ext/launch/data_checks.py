"""Checks of the data that need no Ray: the files, and prompts longer than the limit."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from omegaconf import DictConfig, ListConfig, open_dict

from verl_ext.core.errors import ConfigError, SignalError
from verl_ext.data.data_files import expand_pattern, open_file
from verl_ext.data.file_checks import FilesReport, check_files
from verl_ext.data.raw_prompt import load_tokenizer
from verl_ext.data.schema import DataFileError
from verl_ext.data.schema_rules import FileRules, content_type, is_text
from verl_ext.launch.preflight.agents import tool_schemas
from verl_ext.trainer import default_reward

INDEXED_DATASET = ("pkg://verl_ext.serving.indexed_dataset", "IndexedDataset")

# verl's reward managers that pass data_source and reward_model.ground_truth to a reward function.
_REWARD_MANAGERS = ("naive", "dapo", "gdpo", "rate_limited", "remote")
# Methods that a data set class overrides to create its own rows.
_ROW_METHODS = ("__init__", "_read_files_and_tokenize", "_build_messages", "__getitem__")


class DataError(SignalError):
    """The data cannot be trained or validated on."""


@dataclass(frozen=True)
class Files:
    """The files of an entry such as `data.train_files`.

    Attributes:
        local: Local files; for a file on HDFS, verl's own copy.
        remote: Addresses of files that verl downloads, which cannot be read before.
    """

    local: tuple[str, ...]
    remote: tuple[str, ...]


def check_data(config: DictConfig, check_lengths: bool = True) -> None:
    """Check the training and validation files of a run.

    If the training files' `extra_info.index` does not identify prompts, `data.custom_cls` is set to a class that
    derives an index from each prompt's content.

    Args:
        config: Configuration of the run.
        check_lengths: Measure the prompts as verl renders them; false for a recipe that encodes and limits its own
            prompts.

    Raises:
        DataError: names files, columns and rows, or how many prompts are too long.
    """
    data = config.data
    dataset_class = custom_dataset(data)
    if makes_own_rows(dataset_class):
        print(f"data.custom_cls.name={data.custom_cls.name} creates its own rows: the files are not checked.")
        return
    train, val = find_files(data, data.train_files), find_files(data, data.val_files)
    reports = {}
    for name, files in (("data.train_files", train), ("data.val_files", val)):
        for address in files.remote:
            print(f"{name}: {address} cannot be read before the run starts, so its rows are not checked.")
        reports[name] = check_rows(name, files, config)
    if not train.remote:
        _check_fetch(data, reports["data.train_files"].num_rows)
    _settle_index(data, reports["data.train_files"].index_gap, bool(train.remote), dataset_class)
    if check_lengths and not data.filter_overlong_prompts:
        _check_lengths(config, [*train.local, *val.local])


def find_files(data: DictConfig, entry: Any) -> Files:
    """The files that an entry of the configuration names; those on HDFS are downloaded as verl does it.

    Args:
        data: `config.data`.
        entry: A path, a pattern of paths or an address; or a list of them.
    """
    local, remote = [], []
    for path in entry if isinstance(entry, Sequence | ListConfig) and not isinstance(entry, str) else [entry]:
        copy = _local_copy(data, str(path))
        if copy is None:
            remote.append(str(path))
        else:
            local += expand_pattern(copy) or [copy]
    return Files(tuple(local), tuple(remote))


def _local_copy(data: DictConfig, path: str) -> str | None:
    if "://" not in path:
        return path
    if not path.startswith("hdfs://"):
        return None  # verl passes it to the library that reads it
    import os

    from verl.utils.fs import copy_to_local

    copy = copy_to_local(path, cache_dir=os.path.expanduser(data.get("cache_dir", "~/.cache/verl/rlhf")))
    if not os.path.exists(copy):
        return None
    print(f"{path}: its copy {copy} is checked")
    return copy


def file_rules(config: DictConfig) -> FileRules:
    """Requirements of a run's reward on its files."""
    needs_ground_truth = is_judged_by_function(config)
    is_own_function = config.reward.custom_reward_function.path not in (None, default_reward.PATH)
    return FileRules(config.data.prompt_key, needs_ground_truth, needs_ground_truth and not is_own_function)


def is_judged_by_function(config: DictConfig) -> bool:
    """Whether rewards come from a function that gets data_source and ground truth of a row."""
    manager = config.reward.reward_manager
    is_own_manager = manager.source != "register" or manager.name not in _REWARD_MANAGERS
    return not is_own_manager and not config.reward.reward_model.enable


def check_rows(name: str, files: Files, config: DictConfig) -> FilesReport:
    """Check the rows of the local ones of `files`, and print unusual findings.

    Raises:
        DataError: names `name`, files, columns and rows.
    """
    try:
        report = check_files(files.local, file_rules(config))
    except DataFileError as error:
        raise DataError(f"{name}: {error}") from None
    for note in report.notes:
        print(f"{name}: {note}")
    return report


def _check_fetch(data: DictConfig, num_rows: int) -> None:
    limit = data.get("train_max_samples", -1)
    num_prompts = min(num_rows, limit) if limit > 0 else num_rows
    if num_prompts < data.train_batch_size:
        raise DataError(
            f"data.train_files hold {num_prompts} prompts, fewer than one batch of data.train_batch_size="
            f"{data.train_batch_size}: no batch would ever be complete. Lower data.train_batch_size or add data."
        )
    needed = data.get("gen_batch_size") or data.train_batch_size
    if num_prompts < needed:
        raise DataError(
            f"data.train_files hold {num_prompts} prompts, fewer than one fetch of data.gen_batch_size="
            f"{needed}: verl drops incomplete fetches. Lower data.gen_batch_size or add data."
        )


# ------------------------------ data set classes ------------------------------


def custom_dataset(data: DictConfig) -> type | None:
    """The user's own class of `data.custom_cls`; None without one.

    Raises:
        DataError: the class cannot be loaded.
    """
    custom = data.get("custom_cls")
    if not custom or custom.get("path") is None or (custom.path, custom.name) == INDEXED_DATASET:
        return None
    from verl.utils.import_utils import load_extern_object

    try:
        return cast(type, load_extern_object(custom.path, custom.name))
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        raise DataError(
            f"data.custom_cls.path={custom.path} name={custom.name}: no class could be loaded: {error}"
        ) from None


def makes_own_rows(dataset_class: type | None) -> bool:
    """Whether a user's class replaces verl's conversion of files to rows."""
    if dataset_class is None:
        return False
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from verl_ext.serving.indexed_dataset import IndexedDataset

    base = IndexedDataset if issubclass(dataset_class, IndexedDataset) else RLHFDataset
    return any(getattr(dataset_class, name, None) is not getattr(base, name) for name in _ROW_METHODS)


def _settle_index(data: DictConfig, gap: str | None, is_unknown: bool, dataset_class: type | None) -> None:
    """Enable a generated index if one is needed, and print it."""
    if gap is None and not is_unknown:
        return
    if dataset_class is not None:
        from verl_ext.serving.indexed_dataset import IndexedDataset

        if gap is not None and not issubclass(dataset_class, IndexedDataset):
            raise DataError(
                f"data.train_files: {gap}, and data.custom_cls.name={data.custom_cls.name} leaves it so. Number the "
                "prompts over all files (extra_info.index), or derive the class from "
                "verl_ext.serving.indexed_dataset.IndexedDataset."
            )
        return
    with open_dict(data):
        data.custom_cls = dict(zip(("path", "name"), INDEXED_DATASET, strict=True))
    made = "an index made of its content (data_source, prompt, ground truth, images, videos, audios)"
    if gap is not None:
        print(f"data.train_files: {gap}. Each prompt gets {made}; extra_info itself stays as it is.")
    else:
        print(f"data.train_files: if extra_info.index is missing or repeated there, each prompt gets {made}.")


# ------------------------------ lengths ------------------------------


def _check_lengths(config: DictConfig, files: Sequence[str]) -> None:
    """Report prompts over the limit: verl truncates them on the left, and only a worker's log says so."""
    limit, truncation = config.data.max_prompt_length, config.data.truncation
    try:
        tokenizer = load_tokenizer(config)
    except ConfigError as error:
        raise DataError(str(error)) from None
    if not config.actor_rollout_ref.model.get("custom_chat_template") and tokenizer.chat_template is None:
        raise DataError(
            f"actor_rollout_ref.model.path={tokenizer.name_or_path}: the tokenizer has no chat template, as a base "
            "model's may. Set data.use_chat_template=false to give the model the prompts as plain text."
        )
    problems = []
    for file in dict.fromkeys(files):
        lengths = prompt_lengths(file, config, tokenizer)
        if lengths is None:
            print(
                f"{file}: prompts with images, videos or audio are not measured; verl's processor knows their length."
            )
            continue
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


def prompt_lengths(file: str, config: DictConfig, tokenizer: Any) -> np.ndarray | None:
    """Tokens of each prompt of a file as verl renders it; None if prompts are more than text.

    Args:
        file: A local file that passed `check_rows`.
        config: Configuration of the run.
        tokenizer: Tokenizer of its model.

    Raises:
        DataError: the chat template cannot render a prompt.
    """
    data, model = config.data, config.actor_rollout_ref.model
    kwargs = dict(config.data.apply_chat_template_kwargs)
    if model.get("custom_chat_template"):
        kwargs["chat_template"] = model.custom_chat_template
    if tools := tool_schemas(config):
        kwargs["tools"] = tools
    with open_file(file) as opened:
        media = [data.get(key, default) for key, default in _MEDIA_KEYS.items()]
        content = content_type(opened.schema.field(data.prompt_key).type)
        if content is None or not is_text(content) or any(name in opened.schema.names for name in media):
            return None
        lengths = (_lengths(file, tokenizer, prompts, kwargs) for prompts in opened.prompts(data.prompt_key))
        return np.fromiter(itertools.chain.from_iterable(lengths), dtype=np.int64)


_MEDIA_KEYS = {"image_key": "images", "video_key": "videos", "audio_key": "audios"}


def _lengths(file: str, tokenizer: Any, prompts: list[Any], kwargs: Mapping[str, Any]) -> list[int]:
    try:
        texts = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False, **kwargs)
    except Exception as error:  # a template may raise anything
        raise DataError(f"{file}: the chat template cannot render a prompt: {error}") from error
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
