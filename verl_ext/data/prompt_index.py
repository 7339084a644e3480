"""A prompt's persistent identity: `extra_info.index`, or a generated one if the data set has no usable index.

The curriculum remembers prompts over epochs and restarts by `index`, and verl reads a missing one as 0. Files made for
verl often number their rows from 0 each, or not at all. For these the identity is derived from the row's content:

    the first 16 hexadecimal digits of SHA-256 over (data_source, prompt, ground truth, images, videos, audios),
    and for the second, third, … row with the same content, in the order of the files, "-2", "-3", …

So it survives a restart, another folder, another order of rows and files, and added or removed rows, but not a changed
wording. Rows with the same digits are identical, so their order does not matter.
"""

# pyarrow makes the functions of pyarrow.compute at import, where a type checker cannot see them.
# pyright: reportAttributeAccessIssue=false

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from verl_ext.data.schema_rules import field_type, is_text

# Column of the generated identities, next to the file's own.
MADE_INDEX = "made_prompt_index"

_DIGITS = 16
# Repeated indices that a message names before it only counts the rest.
_SHOWN = 3


def own_index(extra_info: pa.Array) -> pa.Array | None:
    """The values of `extra_info.index` as text; None if that is missing, or neither int nor text.

    7 and "7" count as the same.
    """
    type_ = field_type(extra_info.type, "index")
    if type_ is None or not (pa.types.is_integer(type_) or is_text(type_)):
        return None  # pandas turns integers with gaps into floats
    return pc.cast(pc.struct_field(extra_info, "index"), pa.large_string())


def index_gap(indices: Sequence[tuple[str, pa.ChunkedArray | None]]) -> str | None:
    """Why the files' own indices cannot tell their rows apart, in one sentence; None if they can.

    Args:
        indices: (file, `own_index` of its rows) of all files that are used together.
    """
    for file, index in indices:
        if index is None:
            return f"{file} has no extra_info.index that is an integer or text"
        if index.null_count:
            return f"extra_info.index is missing in {index.null_count:,} row(s) of {file}"
    chunks = [chunk for _, index in indices if index is not None for chunk in index.chunks]
    everything = pa.chunked_array(chunks, pa.large_string())
    if len(everything) == pc.count_distinct(everything).as_py():
        return None
    counts = pa.table({"index": everything}).group_by("index").aggregate([("index", "count")])
    repeated = counts.filter(pc.greater(counts["index_count"], 1))["index"].combine_chunks()
    shown = "; ".join(f"{value} ({_places(indices, value)})" for value in repeated.slice(0, _SHOWN).to_pylist())
    more = f"; and {len(repeated) - _SHOWN:,} more" if len(repeated) > _SHOWN else ""
    return f"{len(repeated):,} value(s) of extra_info.index are repeated: {shown}{more}"


def _places(indices: Sequence[tuple[str, pa.ChunkedArray | None]], value: str) -> str:
    places = [
        f"row {row} of {file}"
        for file, index in indices
        if index is not None
        for row in pc.indices_nonzero(pc.equal(index, value)).slice(0, _SHOWN).to_pylist()
    ]
    return ", ".join(places[:_SHOWN]) + (", …" if len(places) > _SHOWN else "")


def make_indices(batches: Iterable[pa.Table | pa.RecordBatch], prompt_key: str, media_keys: Sequence[str]) -> list[str]:
    """An identity for each row; see the module's docstring.

    Args:
        batches: The rows of all files that are used together, in order.
        prompt_key: Column of the prompt.
        media_keys: Columns of images, videos and audio; all optional.

    Returns:
        One unique string per row.
    """
    copies: Counter[str] = Counter()
    made = []
    for batch in batches:
        columns = [_values(batch, name) for name in ("data_source", prompt_key, "reward_model", *media_keys)]
        for values in zip(*columns, strict=True):
            digits = hashlib.sha256(_canonical(values)).hexdigest()[:_DIGITS]
            copies[digits] += 1
            made.append(digits if copies[digits] == 1 else f"{digits}-{copies[digits]}")
    return made


def _values(batch: pa.Table | pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if name == "reward_model":
        if field_type(column.type, "ground_truth") is None:
            return column.to_pylist()
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return [value for chunk in chunks for value in pc.struct_field(chunk, "ground_truth").to_pylist()]
    return column.to_pylist()


def _canonical(values: Sequence[Any]) -> bytes:
    return json.dumps([_without_null_fields(value) for value in values], sort_keys=True, default=_text).encode()


def _without_null_fields(value: Any) -> Any:
    """Fields that only another file has are null when files are joined, so they are ignored."""
    if isinstance(value, dict):
        return {name: _without_null_fields(each) for name, each in value.items() if each is not None}
    return [_without_null_fields(each) for each in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    """Bytes of an image as their hash; dates and decimals as text."""
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value)


def prompt_indices(dataset: Any) -> list[int | str]:
    """The `index` of each row of a verl data set, by position.

    Args:
        dataset: verl's data set, ours, or a user's; only a user's is read row by row.
    """
    frame: Any = getattr(dataset, "dataframe", None)
    names: Sequence[str] = getattr(frame, "column_names", ())
    if MADE_INDEX in names:
        return list(frame[MADE_INDEX])
    if "extra_info" in names:
        return [(info or {}).get("index", 0) for info in frame["extra_info"]]
    return [dataset[position]["index"] for position in range(len(dataset))]
