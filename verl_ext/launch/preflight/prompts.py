"""What a run's own rows say before it starts: a row per data source to try the reward on, and prompts in both sets."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from verl_ext.data.prompt_identity import text_identity
from verl_ext.launch.preflight.verdicts import Case

# Rows that are read at once.
_CHUNK = 16384


def _batches(file: str, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(_CHUNK, columns=list(columns)):
            yield batch.to_pylist()


def cases(files: Sequence[str]) -> list[Case]:
    """The first row of each data source, in the order of the files.

    Args:
        files: Parquet files of verl's schema, checked.
    """
    found: dict[str, Case] = {}
    for file in dict.fromkeys(files):
        for row, source in _first_rows(file):
            if source not in found:
                found[source] = _case(file, row, source)
    return list(found.values())


def _first_rows(file: str) -> list[tuple[int, str]]:
    """(row, data source) of each source's first row in a file."""
    sources = pq.read_table(file, columns=["data_source"])["data_source"].to_pylist()
    first: dict[str, int] = {}
    for row, source in enumerate(sources):
        first.setdefault(source, row)
    return [(row, source) for source, row in first.items()]


def _case(file: str, row: int, source: str) -> Case:
    seen = 0
    for batch in _batches(file, ("reward_model", "extra_info")):
        if row < seen + len(batch):
            entry = batch[row - seen]
            return Case(source, entry["reward_model"]["ground_truth"], entry["extra_info"], f"{file}, row {row}")
        seen += len(batch)
    raise IndexError(row)


def shared_prompts(train_files: Sequence[str], val_files: Sequence[str], prompt_key: str) -> list[str]:
    """What to warn of: validation prompts that are trained on, whose accuracy says nothing of other prompts.

    Args:
        train_files: Parquet files.
        val_files: Parquet files.
        prompt_key: Column of the prompts.

    Returns:
        One sentence per validation file that shares prompts.
    """
    wanted = {file: [text_identity(p) for p in _prompts(file, prompt_key)] for file in dict.fromkeys(val_files)}
    every = {identity for identities in wanted.values() for identity in identities}
    trained = {text_identity(p) for file in dict.fromkeys(train_files) for p in _prompts(file, prompt_key)} & every
    counts = {file: sum(identity in trained for identity in identities) for file, identities in wanted.items()}
    return [
        f"{count:,} of {len(wanted[file]):,} prompts of {file} are trained on, too: the accuracy there says nothing of "
        "prompts that the model has not seen"
        for file, count in counts.items()
        if count
    ]


def _prompts(file: str, prompt_key: str) -> Iterator[Any]:
    for batch in _batches(file, (prompt_key,)):
        yield from (row[prompt_key] for row in batch)
