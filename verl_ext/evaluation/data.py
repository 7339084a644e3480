"""Prompts and scoring of an evaluation: checked parquet files and reward functions."""

import asyncio
import hashlib
import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from verl_ext.core.errors import SignalError
from verl_ext.data.data_files import UnreadableFile, read_rows
from verl_ext.data.file_checks import check_files
from verl_ext.data.schema import DataFileError
from verl_ext.evaluation.statistics.samples import PromptKey
from verl_ext.trainer import default_reward

# In the forms that mathematics rewards recognise.
DUMMY_ANSWER = "Answer: \\boxed{-1}"


@dataclass(frozen=True)
class DataSet:
    """One file's prompts.

    Attributes:
        name: Short name, unique among the data sets of an evaluation.
        file: The path as given.
        hash: Hash of the file's content.
        rows: The checked rows.
    """

    name: str
    file: str
    hash: str
    rows: list[dict[str, Any]]

    def prompt_keys(self) -> list[PromptKey]:
        """Identity of each prompt."""
        return [PromptKey(self.hash, row) for row in range(len(self.rows))]


def read_data_sets(files: Sequence[str], limit: int | None = None, by: str | None = None) -> list[DataSet]:
    """The checked rows of each file, at most `limit` of each.

    Raises:
        SignalError: If a file is missing, unsuitable, given twice, or has no field `by` in `extra_info`.
    """
    data_sets = []
    for name, file in zip(_names(files), files, strict=True):
        try:
            check_files([file])
            rows = read_rows(file, limit)
        except (DataFileError, UnreadableFile) as error:
            raise SignalError(str(error)) from error
        if by is not None and by not in rows[0]["extra_info"]:
            fields = ", ".join(rows[0]["extra_info"])
            raise SignalError(f"--by {by}: extra_info of {file} has no such field. It has: {fields}.")
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
        data_sets.append(DataSet(name, file, digest, rows))
    seen: dict[str, str] = {}
    for data_set in data_sets:
        twin = seen.setdefault(data_set.hash, data_set.file)
        if twin is not data_set.file:
            raise SignalError(f"--data: {data_set.file} and {twin} have the same content. Give each data set once.")
    return data_sets


def _names(files: Sequence[str]) -> list[str]:
    """The files' names without their folder, or with enough of it to be unique."""
    if len({str(Path(file).resolve()) for file in files}) < len(files):
        raise SignalError(f"--data names a file twice: {', '.join(files)}. Give each data set once.")
    parts = [Path(file).resolve().with_suffix("").parts for file in files]
    length = 1
    while len({part[-length:] for part in parts}) < len(files):
        length += 1
    return ["/".join(part[-length:]) for part in parts]


def load_reward(reward: str | None) -> Callable[..., Any]:
    """The reward function: `reward` if given, otherwise by data source, called as `compute_score(data_source=...,
    ...)`."""
    if reward is not None:
        from verl.utils.import_utils import load_extern_object

        path, _, name = reward.rpartition(":")
        try:
            return cast(Callable[..., Any], load_extern_object(path, name))
        except (FileNotFoundError, ImportError, AttributeError, RuntimeError) as error:
            reason = f"{error}" if error.__cause__ is None else f"{error} ({error.__cause__!r})"
            raise SignalError(f"--reward {reward} cannot be loaded: {reason}") from error

    def by_data_source(data_source: str, **kwargs: Any) -> Any:
        try:
            return default_reward.compute_score(data_source, **kwargs)
        except default_reward.NoRewardError:
            raise SignalError(
                f"neither verl nor this package has a reward function for data_source {data_source!r}. Give one with "
                "--reward file.py:function."
            ) from None

    return by_data_source


@dataclass(frozen=True)
class Verdict:
    """The result of a reward function for one response.

    Attributes:
        score: Its `score`, or the number that it returned.
        acc: Its `acc`; None if missing.
        pred: Its `pred`, the extracted answer, as text; None if missing.
    """

    score: float
    acc: float | None
    pred: str | None

    @property
    def reward(self) -> float:
        """Its `acc` if there is one, otherwise its score."""
        return self.score if self.acc is None else self.acc


def score(reward: Callable[..., Any], row: dict[str, Any], response: str) -> Verdict:
    """Score one response as verl's reward loop does.

    Raises:
        SignalError: If the reward function fails, or returns neither a number nor a dictionary with a `score`.
    """
    try:
        result = reward(
            data_source=row["data_source"],
            solution_str=response,
            ground_truth=row["reward_model"]["ground_truth"],
            extra_info=dict(row["extra_info"]),
        )
        if inspect.isawaitable(result):
            result = asyncio.run(_wait(result))
    except SignalError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        line = "" if place.filename == __file__ else f" ({place.filename}, line {place.lineno})"
        raise SignalError(
            f"the reward function failed on {_where(row)}: {type(error).__name__}: {error}{line}. Fix it, or choose "
            "another with --reward file.py:function."
        ) from error
    try:
        if not isinstance(result, dict):
            return Verdict(float(result), None, None)
        acc, pred = result.get("acc"), result.get("pred")
        return Verdict(float(result["score"]), None if acc is None else float(acc), None if pred is None else str(pred))
    except (KeyError, TypeError, ValueError) as error:
        raise SignalError(
            f"the reward function returned {result!r} for {_where(row)}. Expected a number, or a dictionary with a "
            "`score`, and `acc` and `pred` if it has them."
        ) from error


def check_reward(reward: Callable[..., Any], data_sets: Sequence[DataSet]) -> None:
    """Score a dummy answer of each data source, so that a broken reward is found before the engine starts.

    Raises:
        SignalError: If the reward function fails or does not return a score.
    """
    first = {row["data_source"]: row for data_set in reversed(data_sets) for row in reversed(data_set.rows)}
    for row in first.values():
        score(reward, row, DUMMY_ANSWER)


def _where(row: dict[str, Any]) -> str:
    return f"data_source {row['data_source']!r}, index {row['extra_info']['index']!r}"


async def _wait(awaitable: Any) -> Any:
    return await awaitable
