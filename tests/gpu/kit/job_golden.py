"""Golden redaction's update of one state on random weights at size, by tests/benchmarks/golden_actor.py.

Only the actor is measured: forward, loss and backward of all candidate tokens of a state, all parameters trained, with
gradient checkpointing. States per hour are those of the actor; they exclude the engine's rollouts, the programs and the
optimizer, whose two moments in float32 take another 8 bytes per parameter.
"""

import gc
import statistics
from dataclasses import dataclass
from typing import Any

import torch
from golden_actor import Bench
from sessions import Setting, Table

CANDIDATES = 16
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Case:
    """A shape of `golden_actor`, the tokens of a state, and the repeats after one warm-up."""

    size: str
    state_tokens: int
    repeats: int

    def __str__(self) -> str:
        return f"{self.size}, {self.state_tokens} tokens"


FULL = tuple(Case("4B", tokens, 7) for tokens in (8192, 4096, 2048))
TOY = (Case("toy", 64, 2), Case("toy", 32, 2))


class Golden(Table):
    """One step per case and method; one row per token, as in a PPO-style actor, only at the shortest state."""

    def __init__(self, setting: Setting, cases: tuple[Case, ...]) -> None:
        self._device = setting.device
        steps = {f"{case}, one forward": lambda case=case: self._measure(case, "shared") for case in cases}
        last = cases[-1]
        steps[f"{last}, a row per token"] = lambda: self._measure(last, "rows")
        steps[f"{last}, difference"] = self._difference_of(last)
        super().__init__(setting.state, steps)

    def _measure(self, case: Case, method: str) -> Any:
        """Seconds of each repeat, states per hour, and the peak memory including the weights."""
        try:
            bench = self._bench_of(case)
            is_cuda = self._device == "cuda"
            if is_cuda:
                torch.cuda.reset_peak_memory_stats()
            seconds = [bench.seconds(method, CANDIDATES) for _ in range(case.repeats + 1)][1:]
        except torch.cuda.OutOfMemoryError:
            return OUT_OF_MEMORY
        return {
            "seconds": seconds,
            "states_per_hour": 3600 / statistics.median(seconds),
            "parameters": sum(weight.numel() for weight in bench.model.parameters()),
            "peak_bytes": torch.cuda.max_memory_allocated() if is_cuda else None,
        }

    def _difference_of(self, case: Case) -> Any:
        """Makes the step that compares both methods' log-probs: a fast wrong answer is worth nothing."""

        def measure() -> Any:
            try:
                return {"nats": self._bench_of(case).disagreement()}
            except torch.cuda.OutOfMemoryError:
                return OUT_OF_MEMORY

        return measure

    def _bench_of(self, case: Case) -> Bench:
        gc.collect()
        if self._device == "cuda":
            torch.cuda.empty_cache()
        return Bench(case.size, case.state_tokens, self._device, checkpointing=True)


def make(setting: Setting) -> Golden:
    """At 4B and 8192, 4096 and 2048 tokens, or a toy."""
    return Golden(setting, TOY if setting.is_toy else FULL)
