"""Reports data sources without a single pass, and the likely cause. Pure.

A pass rate of 0 over a whole source is seldom a matter of difficulty: the answers are cut off, or written in a format
that the reward does not read. A curriculum that takes it for difficulty would starve the source and never show why.
"""

from dataclasses import asdict, dataclass
from typing import Any

# Rollouts without a pass after which a source is reported.
MIN_ROLLOUTS = 200
# Share of these that counts as "nearly all".
_NEARLY_ALL = 0.9


@dataclass
class SourceCounts:
    """Rollouts of one data source since the start of the run."""

    rollouts: int = 0
    passes: int = 0  # graded: rollouts with a success above 0
    cut_off: int = 0  # as long as a response may be
    unanswered: int = 0  # ended at a call of a tool
    without_answer: int = 0  # in which the reward found no answer, if it reports that


class SourceWatch:
    """Counts of every data source."""

    def __init__(self) -> None:
        self.sources: dict[str, SourceCounts] = {}

    def observe(
        self, source: str, *, passed: bool, cut_off: bool, without_answer: bool, unanswered: bool = False
    ) -> None:
        """Record one rollout; with graded successes it passed if its success is above 0."""
        counts = self.sources.setdefault(source, SourceCounts())
        counts.rollouts += 1
        counts.passes += passed
        counts.cut_off += cut_off
        counts.unanswered += unanswered
        counts.without_answer += without_answer

    @property
    def silent(self) -> dict[str, SourceCounts]:
        """Sources with `MIN_ROLLOUTS` rollouts or more, none of which passed."""
        return {name: c for name, c in self.sources.items() if c.rollouts >= MIN_ROLLOUTS and not c.passes}

    def explain(self) -> list[str]:
        """One sentence per source without a pass: what was seen, and what to check."""
        return [f"{name}: {_reason(counts)}" for name, counts in sorted(self.silent.items())]

    def state_dict(self) -> dict[str, Any]:
        return {name: asdict(counts) for name, counts in self.sources.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sources = {name: SourceCounts(**counts) for name, counts in state.items()}


def _reason(counts: SourceCounts) -> str:
    seen = f"none of {counts.rollouts:,} rollouts passed"
    if counts.cut_off >= _NEARLY_ALL * counts.rollouts:
        return f"{seen}, and {counts.cut_off:,} were cut off: raise data.max_response_length"
    if counts.unanswered >= _NEARLY_ALL * counts.rollouts:
        return (
            f"{seen}, and {counts.unanswered:,} ended at a call of a tool that got no answer: raise "
            "rollout.multi_turn.max_assistant_turns, or data.max_response_length, which tool answers count towards"
        )
    if counts.without_answer >= _NEARLY_ALL * counts.rollouts:
        return (
            f"{seen}, and in {counts.without_answer:,} the reward found no answer: compare the format it expects with "
            "the model's output"
        )
    return f"{seen}: read some of them; the reward may expect another format, or the prompts may be too hard"
