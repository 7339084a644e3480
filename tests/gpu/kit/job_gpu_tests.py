"""tests/gpu, each test in its own process, so that a call may end between any two."""

import re
import sys
from pathlib import Path
from typing import Any

from command_steps import python
from sessions import Setting, Table

sys.path.append(str(Path(__file__).resolve().parents[1]))

import test_gpu_run

TESTS = (
    "test_gpu_influence.py::test_scores_under_fsdp2_are_those_of_autograd_and_change_nothing[False]",
    "test_gpu_influence.py::test_scores_under_fsdp2_are_those_of_autograd_and_change_nothing[True]",
    "test_gpu_influence.py::test_at_1_5b_scores_are_exact_and_memory_does_not_grow_with_the_samples",
    "test_gpu_golden.py::test_one_forward_at_1_5b_is_the_same_update_as_a_row_a_token",
    *(
        f"test_gpu_run.py::test_a_tiny_run_trains_to_its_end[{recipe}-{kernels}]"
        for kernels in test_gpu_run.KERNELS
        for recipe in test_gpu_run.RECIPES
    ),
    # Skipped without SGLang, which the pieces do not have.
    *(f"test_gpu_run.py::test_a_tiny_run_trains_with_sglang[{recipe}]" for recipe in test_gpu_run.WITH_SGLANG),
)
# The base model of the tiny runs: what `make demo-data` makes.
MODEL = ("-m", "data_preprocess.arithmetic_model", "--local_save_dir", "outputs/models/arithmetic_base")
# A test that has had this long and has not ended is not tried again.
MOST_SECONDS = 8 * 60.0
_COUNTED = re.compile(r"(\d+) (passed|failed|skipped|error)")


class GpuTests(Table):
    """The model, and then one step per test."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        steps: dict[str, Any] = {"the arithmetic model": lambda: self._run("model", MODEL)}
        for number, test in enumerate(TESTS):
            words = ("-m", "pytest", "-q", f"tests/gpu/{test}")
            steps[test] = lambda number=number, words=words: self._run(f"test_{number}", words)
        super().__init__(setting.state, steps)

    def figures(self) -> dict[str, Any]:
        """How each test ended; a failure with the end of its output."""
        return self.records

    def _run(self, log: str, words: tuple[str, ...]) -> Any:
        had = self._setting.seconds_left()
        ended = python(self._setting, words, f"logs/{log}", most_seconds=MOST_SECONDS)
        if ended is None:
            return None
        if not ended.in_time:
            return {"outcome": f"did not end in {ended.seconds:.0f} s"} if had >= MOST_SECONDS else None
        return {"outcome": outcome(ended.code, ended.tail), "seconds": ended.seconds} | (
            {"printed": ended.tail} if ended.code else {}
        )


def outcome(code: int, printed: str) -> str:
    """In pytest's own words: a test that was skipped has not passed."""
    counts = _COUNTED.findall(printed.splitlines()[-1] if printed.strip() else "")
    return ", ".join(f"{number} {word}" for number, word in counts) or f"exit code {code}"


def make(setting: Setting) -> GpuTests:
    """All tests; skipped where there is no CUDA device."""
    return GpuTests(setting)
