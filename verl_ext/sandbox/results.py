"""What came of a program, pair by pair."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from verl_ext.data.arc_tasks import Grid


class Status(StrEnum):
    """How one execution ended. Every status but the last says something about the program."""

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
    """What the label of a program comes from: an infrastructure error, else the first pair that failed, else ok.

    An infrastructure error decides even where another pair is wrong: were failures labelled and possible passes not,
    the labels that remain would be too low. A program without a pair is unjudged.

    Args:
        statuses: Of the program's pairs, as `Status` or its text.
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
    """One program on one input, before anybody compares.

    Attributes:
        status: OK when a valid grid came back.
        grid: The grid, for OK only.
        detail: A sentence for people: the exception, the limit, what was wrong with the output.
        printed: The beginning of what the program printed, untrusted text.
        cpu_seconds: Processor time used, 0 where unknown.
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
    """A program on its pairs, in their order."""

    pairs: tuple[Execution, ...]

    @property
    def statuses(self) -> tuple[Status, ...]:
        """Of the pairs."""
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
        """For JSON; `solved` is false for an unknown reward, so read `reward` to learn from it."""
        return {"solved": self.solved, "reward": self.reward, "pairs": [asdict(pair) for pair in self.pairs]}


def judge(execution: Execution, expected: Grid) -> Execution:
    """Compare in the trainer's process: exact ints on both sides, so no `__eq__` of the program's is ever called."""
    if execution.status is not Status.OK or execution.grid == tuple(map(tuple, expected)):  # a caller may have lists
        return execution
    got = execution.grid or ((),)
    sizes = f"{len(got)}x{len(got[0])}", f"{len(expected)}x{len(expected[0]) if expected else 0}"
    how = "other cells" if sizes[0] == sizes[1] else f"size {sizes[0]} instead of {sizes[1]}"
    return replace(execution, status=Status.WRONG_OUTPUT, detail=how)
