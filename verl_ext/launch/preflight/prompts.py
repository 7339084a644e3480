"""Checks of a run's own rows before it starts: one row per data source to try the reward on, and prompts in both
sets."""

from collections.abc import Iterator, Sequence
from typing import Any

from verl_ext.data.data_files import open_file
from verl_ext.data.prompt_identity import text_identity
from verl_ext.launch.preflight.verdicts import Case

_COLUMNS = ("data_source", "reward_model", "extra_info")


def cases(files: Sequence[str]) -> list[Case]:
    """The first row of each data source, in the order of the files.

    Args:
        files: Local files that passed the checks of the data.
    """
    found: dict[str, Case] = {}
    for file in dict.fromkeys(files):
        with open_file(file) as opened:
            seen = 0
            for batch in opened.batches([name for name in _COLUMNS if name in opened.schema.names]):
                for row, source in enumerate(_sources(batch)):
                    if source not in found:
                        entry = batch.slice(row, 1).to_pylist()[0]
                        truth = (entry.get("reward_model") or {}).get("ground_truth")
                        where = f"{file}, row {seen + row}"
                        found[source] = Case(source, truth, entry.get("extra_info") or {}, where)
                seen += batch.num_rows
    return list(found.values())


def _sources(batch: Any) -> list[str]:
    # Optional in verl's dataset but not in its default reward function; the data checks report it.
    is_there = "data_source" in batch.schema.names
    return batch.column("data_source").to_pylist() if is_there else ["unknown"] * batch.num_rows


def shared_prompts(train_files: Sequence[str], val_files: Sequence[str], prompt_key: str) -> list[str]:
    """Warnings about validation prompts that are also trained on, whose accuracy says nothing about other prompts.

    Args:
        train_files: Local files that passed the checks of the data.
        val_files: Local files that passed them.
        prompt_key: Column of the prompts.

    Returns:
        One sentence per validation file that shares prompts.
    """
    wanted = {file: list(_identities(file, prompt_key)) for file in dict.fromkeys(val_files)}
    every = {identity for identities in wanted.values() for identity in identities}
    trained = {identity for file in dict.fromkeys(train_files) for identity in _identities(file, prompt_key)} & every
    counts = {file: sum(identity in trained for identity in identities) for file, identities in wanted.items()}
    return [
        f"{count:,} of {len(wanted[file]):,} prompts of {file} are also trained on: their accuracy says nothing about "
        "prompts that the model has not seen"
        for file, count in counts.items()
        if count
    ]


def _identities(file: str, prompt_key: str) -> Iterator[str]:
    with open_file(file) as opened:
        for prompts in opened.prompts(prompt_key):
            yield from map(text_identity, prompts)
