"""Influence scores on random weights at size: exactness, time and memory, by tests/benchmarks/tracin_overhead.py.

One step is one figure of one method, so that a call may end between any two.
"""

import gc
import statistics
from dataclasses import dataclass
from typing import Any

import torch
import tracin_overhead
from sessions import Setting, Table
from tracin_overhead import ROWS, Bench


@dataclass(frozen=True)
class Case:
    """One model and one length of its rows.

    Attributes:
        size: A shape of `tracin_overhead`.
        seq_len: Tokens per row.
        checkpointing: Whether activations are checkpointed.
        repeats: Repeats of each timing, after one warm-up.
        samples: Numbers of samples for which peak memory is measured; multiples of 8.
    """

    size: str
    seq_len: int
    checkpointing: bool
    repeats: int
    samples: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.size}, {ROWS} x {self.seq_len} tokens, checkpointing {'on' if self.checkpointing else 'off'}"


# Without checkpointing, at half the length: the activations of eight long rows take more than 80 GB.
FULL = (Case("1.5B", 2048, True, 5, (8, 64, 256)), Case("1.5B", 1024, False, 5, (8, 64)))
TOY = (Case("toy", 16, True, 1, (8, 32)),)
# The original keeps a gradient per sample, and autograd takes one backward per sample: memory and time only at 8.
METHODS = ("plain", "scoring", "validation", "one_pass", "buffered", "autograd")
GROWING = ("buffered", "autograd")
OUT_OF_MEMORY = "out of memory"


class Influence(Table):
    """All figures of all cases; the model of a case is made only if one of them is missing."""

    def __init__(self, setting: Setting, cases: tuple[Case, ...]) -> None:
        self._device, self._cases = setting.device, cases
        self._bench: tuple[Case, Bench] | None = None
        steps: dict[str, Any] = {}
        for case in cases:
            steps[f"{case}: error"] = lambda case=case: self._measured(case, lambda bench: bench.agreement())
            for name in METHODS:
                steps[f"{case}: seconds of {name}"] = lambda case=case, name=name: self._seconds(case, name)
                for count in case.samples[:1] if name in GROWING else case.samples:
                    key = f"{case}: peak of {name} at {count}"
                    steps[key] = lambda case=case, name=name, count=count: self._peak(case, name, count)
        super().__init__(setting.state, steps)

    def figures(self) -> dict[str, Any]:
        """By case: errors, and times and peaks as multiples of the plain pass."""
        return {str(case): self._figures_of(case) for case in self._cases}

    def _figures_of(self, case: Case) -> dict[str, Any]:
        own = {
            key.removeprefix(f"{case}: "): record for key, record in self.records.items() if key.startswith(str(case))
        }
        medians = {key: statistics.median(value) for key, value in own.items() if isinstance(value, list)}
        plain, plain_peak = medians.get("seconds of plain"), own.get(f"peak of plain at {case.samples[0]}")
        ratios = {key: value / plain for key, value in medians.items() if plain}
        if isinstance(plain_peak, int):
            peaks = {key: value for key, value in own.items() if key.startswith("peak") and isinstance(value, int)}
            ratios |= {key: value / plain_peak for key, value in peaks.items()}
        return {"error": own.get("error"), "relative_to_plain": ratios, "measured": own}

    def _seconds(self, case: Case, name: str) -> Any:
        return self._measured(case, lambda bench: [bench.seconds(name, ROWS) for _ in range(case.repeats + 1)][1:])

    def _peak(self, case: Case, name: str, count: int) -> Any:
        return self._measured(case, lambda bench: bench.peak_bytes(name, count))

    def _measured(self, case: Case, measure: Any) -> Any:
        """A figure, or `OUT_OF_MEMORY` if it did not fit."""
        try:
            found = measure(self._bench_of(case))
        except torch.cuda.OutOfMemoryError:
            found = None
        if found is None:
            # Memory allocated before the failure would be missing in the next step.
            self._bench = None
            self._free()
            return OUT_OF_MEMORY
        return found

    def _bench_of(self, case: Case) -> Bench:
        if self._bench is None or self._bench[0] != case:
            self._bench = None
            self._free()
            self._bench = case, tracin_overhead.Bench(case.size, case.seq_len, self._device, case.checkpointing)
        return self._bench[1]

    def _free(self) -> None:
        gc.collect()
        if self._device == "cuda":
            torch.cuda.empty_cache()


def make(setting: Setting) -> Influence:
    """At 1.5B, or a toy."""
    return Influence(setting, TOY if setting.is_toy else FULL)
