"""A model's hidden state for each prompt, as numbers in `extra_info` that Fast DAPO's prior learns from.

    python -m data_preprocess.prompt_states --model Qwen/Qwen2.5-1.5B \\
        --input outputs/data/math/dapo_math_17k.parquet --local_save_dir outputs/data/math_with_states

Writes each input file under the same name in another folder, with the additional column `extra_info.prompt_state`: the
model's last hidden state at the prompt's last token, reduced to --components numbers, the principal components over all
input files. Give the files of `data.train_files` in one call, and the model that training starts from: its state shows
how hard a prompt is for it if the data set has no difficulty. It runs one forward pass over every prompt, on a GPU if
there is one; what all prompts begin with, such as worked examples, is computed once. Prompts are rendered as in verl
(--raw_prompt for `data.use_chat_template=false`).
"""

import argparse
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_preprocess.ending import errors_in_one_line
from verl_ext.core.errors import SignalError
from verl_ext.core.json_argument import json_object
from verl_ext.data.file_checks import check_files
from verl_ext.data.raw_prompt import raw_chat_template
from verl_ext.data.schema import write_table
from verl_ext.data.schema_rules import FileRules

FIELD = "prompt_state"


class StateError(SignalError):
    """The states of these prompts cannot be computed."""


def encode(prompts: Sequence[Any], tokenizer: Any, template: Mapping[str, Any], name: str) -> list[list[int]]:
    """Token ids of chat messages, with the start of the answer from the template.

    Args:
        name: Name of their file, for messages.
        template: Additional arguments of the tokenizer's chat template, including `chat_template` itself.

    Raises:
        StateError: A prompt is not text, has no tokens, or the template cannot render it.
    """
    for row, messages in enumerate(prompts):
        if not all(isinstance(message["content"], str) for message in messages):
            raise StateError(
                f"{name}, row {row}: expected prompts of text, got parts. Images and audio are not supported."
            )
    try:
        texts = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False, **template)
    except Exception as error:  # a template may raise anything
        raise StateError(
            f"{name}: the chat template cannot render a prompt: {error}. A base model without one needs --raw_prompt."
        ) from error
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    if empty := [row for row, tokens in enumerate(ids) if not tokens]:
        raise StateError(f"{name}: {len(empty)} prompts have no tokens, the first is row {empty[0]}. Drop those rows.")
    return ids


def last_states(model: Any, prompts: Sequence[Sequence[int]], tokens_per_batch: int) -> np.ndarray:
    """(P, D) float32: the model's last hidden state at the last token of P prompts.

    Args:
        model: Model of transformers, without a language-model head.
        prompts: Token ids.
        tokens_per_batch: Maximum, with padding and the beginnings that prompts share; a longer prompt gets its own
            batch.

    Raises:
        StateError: The states are not finite.
    """
    import torch

    beginning, cache = _common_beginning(model, prompts)
    states_PD = np.empty((len(prompts), model.config.hidden_size), dtype=np.float32)
    for rows in _batches([len(ids) for ids in prompts], tokens_per_batch):
        rests = [prompts[row][beginning:] for row in rows]
        lengths_B = torch.tensor([len(rest) for rest in rests])
        ids_BT = torch.zeros(len(rows), int(lengths_B.max()), dtype=torch.long)
        for place, rest in enumerate(rests):
            ids_BT[place, : len(rest)] = torch.tensor(rest)
        # Right padding comes after everything that a causal model attends to.
        mask_BT = torch.arange(-beginning, ids_BT.shape[1]) < lengths_B[:, None]
        inputs: dict[str, Any] = {"attention_mask": mask_BT.to(model.device), "use_cache": cache is not None}
        if cache is not None:
            inputs["past_key_values"] = copy.deepcopy(cache)
            inputs["past_key_values"].batch_repeat_interleave(len(rows))
        with torch.no_grad():
            hidden_BTD = model(ids_BT.to(model.device), **inputs).last_hidden_state
        states_PD[rows] = hidden_BTD[torch.arange(len(rows)), lengths_B - 1].float().cpu().numpy()
    if not np.isfinite(states_PD).all():
        raise StateError("the model's hidden states are not finite in its own number format. Try --dtype float32.")
    return states_PD


def _common_beginning(model: Any, prompts: Sequence[Sequence[int]]) -> tuple[int, Any]:
    """Number of tokens with which all prompts begin, such as worked examples, and the model's cache of them.

    The last token of each prompt is not one of them. None instead of a cache if there are no such tokens, or the
    model's cache is not of keys and values only, each token's own.
    """
    import torch
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    common = list(takewhile(lambda column: len(set(column)) == 1, zip(*prompts, strict=False)))
    number = min(len(common), min(map(len, prompts)) - 1)
    if len(prompts) == 1 or number == 0:
        return 0, None
    with torch.no_grad():
        cache = model(torch.tensor([list(prompts[0][:number])]).to(model.device), use_cache=True).past_key_values
    is_plain = type(cache) is DynamicCache and all(type(layer) is DynamicLayer for layer in cache.layers)
    return (number, cache) if is_plain else (0, None)


def _batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Rows of similar length, the longest first, so that insufficient memory shows immediately."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens_per_batch:
            yield batch
            batch = []
        batch.append(row)
    yield batch


def principal_components(states_PD: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """(P, count) float32, the states' principal components, and the share of the variance that they explain.

    Fewer if there are fewer prompts or dimensions. The largest has standard deviation 1.
    """
    centred_PD = states_PD - states_PD.mean(0, dtype=np.float64)
    _, directions_DD = np.linalg.eigh(centred_PD.T @ centred_PD)  # in ascending order
    components_PC = centred_PD @ directions_DD[:, ::-1][:, : min(count, *states_PD.shape)]
    total, kept = float((centred_PD**2).sum()), float((components_PC**2).sum())
    scale = float(components_PC[:, 0].std()) or 1.0
    return (components_PC / scale).astype(np.float32), kept / (total or 1.0)


def with_states(table: pa.Table, states_NC: np.ndarray) -> pa.Table:
    """The table with a list of numbers per row in `extra_info`, which is created if missing."""
    lists = pa.array(states_NC.tolist(), type=pa.list_(pa.float32()))
    fields: dict[str, pa.Array] = {}
    if "extra_info" in table.column_names and not pa.types.is_null(table["extra_info"].type):
        info = table["extra_info"].combine_chunks()
        # flatten() and not field(): for a row without extra_info, every field is null.
        fields = {field.name: values for field, values in zip(info.type, info.flatten(), strict=True)}
    fields[FIELD] = lists
    column = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
    if "extra_info" not in table.column_names:
        return table.append_column("extra_info", column)
    return table.set_column(table.column_names.index("extra_info"), "extra_info", column)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the files with states."""
    args = _parser().parse_args(argv)
    with errors_in_one_line(args.local_save_dir):
        _write(args)


def _write(args: argparse.Namespace) -> None:
    began = time.monotonic()
    targets = [args.local_save_dir / path.name for path in args.input]
    if len(set(targets)) < len(targets):
        raise StateError("two input files have the same name. Rename one: each is written under its own name.")
    if same := [path for path, target in zip(args.input, targets, strict=True) if path.resolve() == target.resolve()]:
        raise StateError(f"{same[0]} would be overwritten. Name another folder with --local_save_dir.")
    if others := [path for path in args.input if path.suffix != ".parquet"]:
        raise StateError(f"{others[0]}: expected a file whose name ends in .parquet. Convert it.")
    check_files(args.input, FileRules(args.prompt_key, needs_ground_truth=False, needs_source_name=False))
    tables = [pq.read_table(path) for path in args.input]
    if others := [path for path, table in zip(args.input, tables, strict=True) if not _has_room(table)]:
        raise StateError(f"{others[0]}: expected extra_info to be a struct, as verl reads it. Convert the column.")
    tokenizer, model = _load(args.model, args.dtype, args.trust_remote_code)
    template = dict(args.chat_template_kwargs)
    if args.raw_prompt:
        template["chat_template"] = raw_chat_template(tokenizer)
    ids = [
        tokens
        for path, table in zip(args.input, tables, strict=True)
        for tokens in encode(table[args.prompt_key].to_pylist(), tokenizer, template, str(path))
    ]
    states_PD = last_states(model, ids, args.tokens_per_batch)
    states_PC, share = principal_components(states_PD, args.components)
    begin = 0
    for table, target in zip(tables, targets, strict=True):
        write_table(with_states(table, states_PC[begin : begin + len(table)]), target)
        begin += len(table)
        print(f"{target}: {len(table)} rows")
    print(
        f"{states_PC.shape[1]} components explain {share:.0%} of the variance of {states_PD.shape[1]} dimensions; "
        f"{sum(map(len, ids))} tokens in {time.monotonic() - began:.0f} s on {model.device.type}"
    )


def _has_room(table: pa.Table) -> bool:
    """Read another field of `extra_info`."""
    if "extra_info" not in table.column_names:
        return True
    kind = table["extra_info"].type
    return pa.types.is_struct(kind) or pa.types.is_null(kind)


def _load(name: str, dtype: str, trusts: bool) -> tuple[Any, Any]:
    """The tokenizer, and the model on a GPU where there is one."""
    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()  # it would list the weights of the unused head
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trusts)
        model = AutoModel.from_pretrained(name, dtype=dtype, trust_remote_code=trusts)
    except (OSError, ValueError) as error:
        raise StateError(
            f"--model {name}: neither a folder with a model and its tokenizer nor a model that the hub gave us "
            f"({str(error).splitlines()[0]})"
        ) from error
    return tokenizer, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or hub name of the model that training starts from")
    parser.add_argument("--input", required=True, nargs="+", type=Path, help="parquet files that are used together")
    parser.add_argument("--local_save_dir", required=True, type=Path, help="folder for the new files")
    parser.add_argument("--components", type=int, default=16, choices=range(1, 33), metavar="1-32", help="(16)")
    parser.add_argument("--tokens_per_batch", type=int, default=16384, help="per forward pass, with padding (16384)")
    parser.add_argument(
        "--dtype", default="auto", choices=("auto", "bfloat16", "float32"), help="dtype of the weights (auto)"
    )
    parser.add_argument("--prompt_key", default="prompt", help="column of the messages, as data.prompt_key")
    parser.add_argument("--trust_remote_code", action="store_true", help="as actor_rollout_ref.model.trust_remote_code")
    parser.add_argument("--raw_prompt", action="store_true", help="messages without a chat template")
    parser.add_argument("--chat_template_kwargs", type=json_object, default={}, help="JSON for the chat template")
    return parser


if __name__ == "__main__":
    main()
