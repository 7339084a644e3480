"""The cost of a run so far, over all resumes. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class RunTotals:
    """Cumulative counts, written into every record of the metrics stream and into checkpoints."""

    seconds: float = 0.0  # of training steps, excluding set-up and validation
    rollouts_generated: int = 0
    rollouts_trained: int = 0
    tokens_generated: int = 0  # response tokens
    tokens_trained: int = 0
    seconds_by_phase: dict[str, float] = field(default_factory=dict)

    def add_step(self, timing: Mapping[str, float]) -> None:
        """Add the seconds of one finished step; `timing` is verl's, with the whole step under `step`."""
        self.seconds += timing["step"]
        for phase, seconds in timing.items():
            self.seconds_by_phase[phase] = self.seconds_by_phase.get(phase, 0.0) + seconds

    def metrics(self) -> dict[str, float]:
        """The counts under `training/total/`."""
        return {f"training/total/{name}": value for name, value in asdict(self).items() if not isinstance(value, dict)}

    def state_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "RunTotals":
        """The inverse of `state_dict`."""
        return cls(**state)
