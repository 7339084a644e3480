"""The curriculum's counters, and the diagnosis from them when no batch can be made.

Nothing here decides what happens to a prompt: that is `data_controller.py`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.grading import WHOLE_BAND

_OUTCOMES = {
    "screened": ("prompts", "prompts whose screening has ended"),
    "qualified": ("prompts", "screened prompts with 0 < pass rate < 1, or in curriculum.band, which are continued"),
    "all_wrong": (
        "prompts",
        "screened prompts of which no rollout passed (or too hard for curriculum.band), dropped; with train_on=all: 0",
    ),
    "all_right": (
        "prompts",
        "screened prompts whose rollouts all passed (or too easy for curriculum.band), dropped; with train_on=all: 0",
    ),
    "all_wrong_kept": (
        "prompts",
        "with train_on=all: screened prompts of which no rollout passed (or too hard for curriculum.band), trained on",
    ),
    "all_right_kept": (
        "prompts",
        "with train_on=all: screened prompts whose rollouts all passed (or too easy for curriculum.band), trained on",
    ),
    "failed": ("events", "generation calls that returned fewer rollouts of a prompt than asked"),
    "expired": (
        "prompts",
        "prompts whose samples exceeded max_staleness: the samples are dropped, the prompt is screened again",
    ),
    "evicted_overflow": ("prompts", "ready prompts dropped for exceeding max_buffer_prompts, stalest first"),
    "given_up": ("prompts", "prompts dropped after max_attempts failed calls in a row"),
    "trained": ("prompts", "prompts handed to the trainer"),
    "rounds": ("calls", "generation calls completed"),
    "generated_rollouts": ("rollouts", "rollouts returned by generation, including those of failed prompts"),
    "generated_tokens": ("tokens", "response tokens of generated_rollouts"),
    "trained_rollouts": ("rollouts", "rollouts handed to the trainer"),
    "uninformative_rollouts": ("rollouts", "rollouts of prompts dropped as all_wrong or all_right"),
    "expired_rollouts": ("rollouts", "finished rollouts dropped with expired or overflowing prompts"),
    "failed_rollouts": ("rollouts", "rollouts of incomplete generation calls and of prompts given up"),
    "set_aside_rollouts": ("rollouts", "screening rollouts that correction=continuation_only does not train on"),
    "trained_tokens": ("tokens", "response tokens of trained_rollouts"),
}
_RATIOS = {
    "qualified_share": ("fraction", "qualified / screened; left out when nothing was screened, or with n = 1"),
    "screening_pass_rate/mean": (
        "fraction",
        "mean success of the rollouts of screening: passes / rollouts; left out when nothing was screened",
    ),
    "screening_rollouts/mean": (
        "rollouts",
        "screening rollouts per screened prompt; left out when nothing was screened",
    ),
    "generated_to_trained": ("ratio", "generated_rollouts / trained_rollouts; left out when nothing was trained"),
}
_GAUGES = {
    "first_phase_prompts": ("prompts", "prompts waiting for screening"),
    "second_phase_prompts": ("prompts", "qualified prompts waiting for continuation"),
    "ready_prompts": ("prompts", "prompts with all their rollouts, waiting to be trained on"),
    "in_flight_prompts": ("prompts", "prompts in the current generation call"),
    "num_gen_batches": (
        "calls",
        "merged: generation calls since the last training batch; streaming: gen_batch_sizes screened since",
    ),
    "buffered_rollouts": ("rollouts", "finished rollouts of prompts that are waiting or in flight"),
    "unaccounted_rollouts": (
        "rollouts",
        "generated minus trained, uninformative, expired, failed, set aside and buffered; always 0",
    ),
    "expected_qualified_share": (
        "fraction",
        "discounted share of screened prompts that qualified, used by streaming to admit prompts",
    ),
}
_AGES = {
    "sample_age/mean": ("weight versions", "mean age of the trained rollouts; left out when nothing was trained"),
    "sample_age/max": ("weight versions", "age of the oldest trained rollout; left out when nothing was trained"),
}
HISTOGRAM_NAME = "curriculum/screening_pass_rate/{k}_of_{n}"

METRICS: dict[str, tuple[str, str]] = {
    **{f"curriculum/{name}": entry for name, entry in {**_OUTCOMES, **_RATIOS, **_AGES, **_GAUGES}.items()},
    HISTOGRAM_NAME: (
        "prompts",
        "prompts with exactly k passes in a screening of n rollouts, k from 0 to n; graded: sum nearest to k",
    ),
    "curriculum/total/added": ("prompts", "prompts that entered the curriculum since the start of the run"),
    **{
        f"curriculum/total/{name}": (unit, f"{text}; since the start of the run")
        for name, (unit, text) in {**_OUTCOMES, **_RATIOS}.items()
    },
}
"""Every metric: name -> (unit, description). Names without `total/` count since the last `reset_step_metrics`."""

_COUNTERS = ("added", *_OUTCOMES, "trained_age", "screening_rollouts")
_WINDOWS = ("step", "batch", "total")


class CurriculumCounts:
    """The same counters over three windows: the trainer's step, since the last training batch, the whole run."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.windows: dict[str, dict[str, int]] = {name: dict.fromkeys(_COUNTERS, 0) for name in _WINDOWS}
        self.successes: dict[str, float] = dict.fromkeys(_WINDOWS, 0)  # sum of those of screening
        self.passes: dict[str, list[int]] = {name: [0] * (n + 1) for name in _WINDOWS}
        self.oldest_trained_age = 0

    def add(self, name: str, amount: int = 1) -> None:
        for window in self.windows.values():
            window[name] += int(amount)  # a NumPy integer would not survive json.dumps

    def add_screening(self, num_passes: float, num_samples: int) -> None:
        self.add("screened")
        self.add("screening_rollouts", num_samples)
        for window in _WINDOWS:
            self.successes[window] += num_passes
        if num_samples == self.n:
            for histogram in self.passes.values():
                histogram[int(num_passes + 0.5)] += 1

    def add_batch(self, num_prompts: int, ages: Sequence[int], num_tokens: int, num_set_aside: int) -> None:
        """A training batch; the window since the last one ends with it.

        Args:
            ages: Weight versions of the rollouts that are trained on.
            num_tokens: Response tokens of these rollouts.
            num_set_aside: Rollouts of the same prompts that are not trained on.
        """
        self.reset("batch")
        self.add("trained", num_prompts)
        self.add("trained_rollouts", len(ages))
        self.add("set_aside_rollouts", num_set_aside)
        self.add("trained_tokens", num_tokens)
        self.add("trained_age", sum(ages))
        self.oldest_trained_age = int(max(self.oldest_trained_age, *ages))

    def reset(self, window: str) -> None:
        self.windows[window] = dict.fromkeys(_COUNTERS, 0)
        self.successes[window] = 0
        self.passes[window] = [0] * (self.n + 1)
        if window == "step":
            self.oldest_trained_age = 0

    def metrics(self) -> dict[str, float]:
        """Step and run counters under the names of `METRICS`; a ratio whose denominator is 0 is left out, since
        a 0 would read as a collapse."""
        step = self.windows["step"]
        values: dict[str, float] = {}
        for prefix, window in (("curriculum/", "step"), ("curriculum/total/", "total")):
            counts = self.windows[window]
            values |= {prefix + name: float(counts[name]) for name in _OUTCOMES}
            if counts["screened"] and self.n > 1:  # one rollout is never mixed
                values[prefix + "qualified_share"] = counts["qualified"] / counts["screened"]
            if counts["screened"]:
                values[prefix + "screening_pass_rate/mean"] = self.successes[window] / counts["screening_rollouts"]
                values[prefix + "screening_rollouts/mean"] = counts["screening_rollouts"] / counts["screened"]
            if counts["trained_rollouts"]:
                values[prefix + "generated_to_trained"] = counts["generated_rollouts"] / counts["trained_rollouts"]
        values["curriculum/total/added"] = float(self.windows["total"]["added"])
        for k, count in enumerate(self.passes["step"]):
            values[HISTOGRAM_NAME.format(k=k, n=self.n)] = float(count)
        if step["trained_rollouts"]:
            values["curriculum/sample_age/mean"] = step["trained_age"] / step["trained_rollouts"]
            values["curriculum/sample_age/max"] = float(self.oldest_trained_age)
        return values

    def state_dict(self) -> dict[str, Any]:
        return {
            "windows": {
                name: counts | {"screening_passes": self.successes[name]} for name, counts in self.windows.items()
            },
            "passes": {name: list(counts) for name, counts in self.passes.items()},
            "oldest_trained_age": self.oldest_trained_age,
        }

    @classmethod
    def from_state_dict(cls, n: int, state: Mapping[str, Any]) -> "CurriculumCounts":
        counts = cls(n)
        for name in _WINDOWS:
            counts.windows[name] |= {key: int(state["windows"][name].get(key, 0)) for key in _COUNTERS}
            counts.successes[name] = state["windows"][name]["screening_passes"]
            counts.passes[name] = [int(count) for count in state["passes"][name]]
        counts.oldest_trained_age = int(state["oldest_trained_age"])
        return counts


def explain_missing_batch(settings: CurriculumSettings, counts: CurriculumCounts, ready: int, waiting: int) -> str:
    """The message of `TooManyGenerationBatches`: the counts since the last training batch, and what to change.

    Args:
        ready: Prompts ready for training.
        waiting: Prompts waiting for continuation.
    """
    limit, wanted, gen_batch_size = settings.max_num_gen_batches, settings.train_batch_size, settings.gen_batch_size
    window, passes, n = counts.windows["batch"], counts.passes["batch"], counts.n
    screened, qualified, rounds = window["screened"], window["qualified"], window["rounds"]
    histogram = ", ".join(f"{k}/{n}: {count}" for k, count in enumerate(passes))
    seen = (
        f"no training batch after {rounds} rounds of generation (max_num_gen_batches={limit}): {ready} of {wanted} "
        f"prompts are ready and {waiting} wait for continuation. {screened} prompts were screened with n={n}; "
        f"prompts by passes: {histogram}."
    )
    if window["failed"]:
        seen += f" {window['failed']} prompts came back with fewer rollouts than requested: check generation first."
    changes = []
    wider = "" if settings.band == WHOLE_BAND else ", a wider band"
    if window["all_wrong"]:
        earned = "earn more than wrong ones" if settings.grading.is_graded else "exceed success_threshold"
        changes.append(
            f"{window['all_wrong']} prompts were all wrong: use easier ones{wider} or a larger rollout.n, and check "
            f"that right answers {earned}"
        )
    if window["all_right"]:
        changes.append(f"{window['all_right']} prompts were all right: use harder ones{wider} or a larger rollout.n")
    if window["expired"]:
        changes.append(f"{window['expired']} qualified prompts got too old: raise max_staleness")
    if qualified:
        # One more round than screening needs: the last continuation runs in the round after its screening.
        needed = rounds + 1 + math.ceil(max(0, wanted - ready - waiting) * screened / (qualified * gen_batch_size))
        changes.append(
            f"at this rate the batch needs about {needed} rounds of gen_batch_size={gen_batch_size}: raise "
            "max_num_gen_batches or gen_batch_size, or lower train_batch_size"
        )
    changes.append(
        "the count is part of a checkpoint, so a resumed run needs a larger max_num_gen_batches (0: no limit)"
    )
    return f"{seen} To change: {'; '.join(changes)}."
