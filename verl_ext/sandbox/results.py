"""The results of a program, pair by pair."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from verl_ext.data.arc_tasks import Grid


class Status(StrEnum):
    """How one execution ended. Every status except the last is the program's."""

    OK = "ok"
    WRONG_OUTPUT = "wrong_output"
    INVALID_OUTPUT = "invalid_output"
    SYNTAX_ERROR = "syntax_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    FORBIDDEN = "forbidden"
    KILLED = "killed"
    INFRASTRUCTURE_ERROR = "infrastructure_error"


def deciding_status(statuses: Iterable[str]) -> str:
    """The status that decides a program's label: an infrastructure error, otherwise the first failed pair, otherwise
    ok.

    An infrastructure error decides even if another pair is wrong: labelling failures but not possible passes would bias
    the remaining labels downwards. A program without a pair is unjudged.

    Args:
        statuses: Statuses of the program's pairs, as `Status` or its text.
    """
    known = list(statuses)
    if Status.INFRASTRUCTURE_ERROR in known or not known:
        return Status.INFRASTRUCTURE_ERROR
    return next((status for status in known if status != Status.OK), Status.OK)


def label(statuses: Iterable[str]) -> float | None:
    """1 if every pair is right, 0 if one is not, None if that is unknown; see `deciding_status`."""
    status = deciding_status(statuses)
    return None if status == Status.INFRASTRUCTURE_ERROR else float(status == Status.OK)


@dataclass(frozen=True)
class Execution:
    """One program on one input, before comparison.

    Attributes:
        status: OK when a valid grid came back.
        grid: The grid, only for OK.
        detail: A readable sentence: the exception, the limit, or the problem with the output.
        printed: The beginning of the program's output, untrusted text.
        cpu_seconds: CPU time used, 0 if unknown.
        isolation: Each layer of `policy.LAYERS` with "ok" or the reason why it did not hold.
    """

    status: Status
    grid: Grid | None = None
    detail: str = ""
    printed: str = ""
    cpu_seconds: float = 0.0
    isolation: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramResult:
    """A program on its pairs, in order."""

    pairs: tuple[Execution, ...]

    @property
    def statuses(self) -> tuple[Status, ...]:
        """Statuses of the pairs."""
        return tuple(pair.status for pair in self.pairs)

    @property
    def solved(self) -> bool:
        """Whether every pair is right."""
        return self.reward == 1.0

    @property
    def reward(self) -> float | None:
        """See `label`; None: retry or drop the rollout."""
        return label(self.statuses)

    def as_dict(self) -> dict[str, Any]:
        """The result for JSON; `solved` is false for an unknown reward, so train on `reward`."""
        return {"solved": self.solved, "reward": self.reward, "pairs": [asdict(pair) for pair in self.pairs]}


def judge(execution: Execution, expected: Grid) -> Execution:
    """Compare in the trainer's process: exact ints on both sides, so the program's `__eq__` is never called."""
    if execution.status is not Status.OK or execution.grid == tuple(map(tuple, expected)):  # a caller may have lists
        return execution
    got = execution.grid or ((),)
    sizes = f"{len(got)}x{len(got[0])}", f"{len(expected)}x{len(expected[0]) if expected else 0}"
    how = "other cells" if sizes[0] == sizes[1] else f"size {sizes[0]} instead of {sizes[1]}"
    return replace(execution, status=Status.WRONG_OUTPUT, detail=how)
