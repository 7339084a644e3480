"""Rules for one metric each: the value from which it deserves attention, and a remedy. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The row of a run's facts with their folder: a remedy that sends to a log names it.
LOGS = "logs of workers and engines"


@dataclass(frozen=True)
class Rule:
    """Warns if `is_odd` holds at any step for the metrics that begin with `metric`."""

    level: str
    title: str
    metric: str
    is_odd: Callable[[float], bool]
    what: str  # with {count}, {of}, {worst}
    remedy: str
    worst: Callable[[Sequence[float]], float] = max


# Rules of every run; a recipe has its own.
RULES = (
    Rule(
        "look",
        "many clipped ratios",
        "actor/pg_clipfrac",
        lambda value: value > 0.2,
        "up to {worst:.0%} of the tokens were clipped ({count} of {of} steps)",
        "the update leaves the trust region: lower the learning rate or the number of updates per batch",
    ),
    Rule(
        "look",
        "cut responses",
        "response_length/clip_ratio",
        lambda value: value > 0.3,
        "up to {worst:.0%} of the responses reached the length limit ({count} of {of} steps)",
        "raise data.max_response_length, or check that the model ends its answers",
    ),
)
