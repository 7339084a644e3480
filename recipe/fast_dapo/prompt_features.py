"""Numeric features of each prompt, known without a rollout, for the prior of its pass rate (`curriculum/prior.py`).

    length          of the prompt in characters
    source X        1 for prompts of data_source X, else 0; the sources beyond the 32 largest share none
    extra_info.F    every number or bool that a data set has for its prompts: a level, digits, a known pass rate
    extra_info.F.I  the entries of a list of numbers that has one length in all rows: an embedding, or the states that
                    `data_preprocess.prompt_states` computes

Numbers go through arcsinh: unchanged near 0, logarithmic for large values; entries of lists stay unchanged. A missing
number becomes the mean of the others. Numbers written as text are text, and `index` is a name and not a number.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_SOURCES = 32
# Maximum number of extra_info fields, the most common first: each costs time in every fit.
MAX_FIELDS = 16
# Maximum number of list entries in total; a list that no longer fits is left out.
MAX_ENTRIES = 32


@dataclass(frozen=True)
class PromptFeatures:
    """Features of a data set's prompts, by position.

    Attributes:
        names: F of them.
        values_PF: (P, F) float64, finite.
        sources_P: (P,) int64, the number of each prompt's data source.
        source_names: By that number.
    """

    names: tuple[str, ...]
    values_PF: np.ndarray
    sources_P: np.ndarray
    source_names: tuple[str, ...]


def prompt_features(sources: Sequence[Any], prompts: Iterable[Any], extra_infos: Iterable[Any]) -> PromptFeatures:
    """Features of P prompts.

    Args:
        sources: data_source of each; None where there is none.
        prompts: Text, or chat messages whose content is text or parts.
        extra_infos: Mappings; or None, where a row has none.
    """
    counts = Counter(str(source) for source in sources)
    source_names = tuple(name for name, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
    number_of = {name: number for number, name in enumerate(source_names)}
    sources_P = np.array([number_of[str(source)] for source in sources], dtype=np.int64)
    columns = {"length": np.arcsinh([_num_characters(prompt) for prompt in prompts])}
    infos: list[Mapping[str, Any]] = [info or {} for info in extra_infos]
    columns |= _numbers(infos) | _entries(infos)
    if len(source_names) > 1:
        own = enumerate(source_names[:MAX_SOURCES])
        columns |= {f"source {name}": (sources_P == number).astype(np.float64) for number, name in own}
    return PromptFeatures(tuple(columns), np.stack(list(columns.values()), 1), sources_P, source_names)


def dataset_features(dataset: Any, prompt_key: str) -> PromptFeatures:
    """Features of verl's data set, ours or a user's; only the last is read row by row."""
    frame: Any = getattr(dataset, "dataframe", None)
    names: Sequence[str] = getattr(frame, "column_names", ())
    if prompt_key not in names:
        rows = [dataset[position] for position in range(len(dataset))]
        return prompt_features(
            [row.get("data_source") for row in rows],
            [row.get("raw_prompt", "") for row in rows],
            [row.get("extra_info") for row in rows],
        )
    nothing = [None] * len(frame)
    return prompt_features(
        frame["data_source"] if "data_source" in names else nothing,
        frame[prompt_key],
        frame["extra_info"] if "extra_info" in names else nothing,
    )


def _num_characters(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt)
    if isinstance(prompt, dict):
        return _num_characters(prompt.get("content", prompt.get("text")))
    return sum(map(_num_characters, prompt)) if isinstance(prompt, Iterable) else 0


def _numbers(infos: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """One column per numeric field."""
    fields = Counter(
        name for info in infos for name, value in info.items() if name != "index" and math.isfinite(_number(value))
    )
    return {
        f"extra_info.{name}": _filled(np.arcsinh([_number(info.get(name)) for info in infos]))
        for name in _by_count(fields)[:MAX_FIELDS]
    }


def _entries(infos: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """One column per entry of each field that is a list of numbers."""
    fields = Counter(name for info in infos for name, value in info.items() if len(_list(value)))
    columns: dict[str, np.ndarray] = {}
    for name in _by_count(fields):
        lists = [_list(info.get(name)) for info in infos]
        length = max(map(len, lists))
        if any(len(values) not in (0, length) for values in lists) or len(columns) + length > MAX_ENTRIES:
            continue
        rows = np.array([[_number(value) for value in values] or [math.nan] * length for values in lists])
        for number, column in enumerate(rows.T):
            if np.isfinite(column).any():
                columns[f"extra_info.{name}.{number}"] = _filled(column)
    return columns


def _by_count(fields: Counter[str]) -> list[str]:
    return [name for name, _ in sorted(fields.items(), key=lambda entry: (-entry[1], entry[0]))]


def _list(value: Any) -> Sequence[Any]:
    """The list as numbers; empty if it is not one."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim == 1 else ()
    return value if isinstance(value, list | tuple) else ()


def _filled(column: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(column), np.nanmean(column), column)


def _number(value: Any) -> float:
    """The value as a float; nan if it is not a finite number."""
    if not isinstance(value, (bool, np.bool_, int, float, np.integer, np.floating)):
        return math.nan
    try:
        number = float(value)
    except OverflowError:  # an int too large for a float
        return math.nan
    return number if math.isfinite(number) else math.nan
