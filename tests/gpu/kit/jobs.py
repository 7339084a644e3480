"""The jobs of the kit, ordered by the value of their figures."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from sessions import Job, Setting


@dataclass(frozen=True)
class Entry:
    """A job.

    Attributes:
        title: What it measures.
        factory: "module:name" of the function that makes it from a `Setting`; loaded only when it is run.
        part: The part of the pieces that it needs.
    """

    title: str
    factory: str
    part: str

    def load(self) -> Callable[[Setting], Job]:
        """The function that makes the job."""
        module, name = self.factory.split(":")
        return getattr(importlib.import_module(module), name)


JOBS = {
    "training": Entry("the real stack: SmolLM2-135M on SVAMP", "job_training:make", "engine"),
    "leaderboard": Entry(
        "three methods x 3 seeds in plain PyTorch, SmolLM2-135M on SVAMP", "job_leaderboard:make", "plain"
    ),
    "influence": Entry("influence scores at 1.5B: exactness, time, memory", "job_influence:make", "plain"),
    "golden": Entry(
        "golden redaction's update at 4B and 8k tokens: states per hour, memory", "job_golden:make", "plain"
    ),
    "gpu_tests": Entry("tests/gpu, one test per step", "job_gpu_tests:make", "engine"),
    "faults": Entry("sleep mode, an engine killed, a run killed and resumed", "job_faults:make", "engine"),
}
