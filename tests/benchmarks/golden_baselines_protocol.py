"""What `golden_baselines.py` compares, at which settings, what a run costs, and where finished runs are kept. Pure.

A *result* is a run as JSON: its `job`, its `looks` (a dict each: share of the budget, cost so far, and what was
measured; the first is of the base model) and, unless it was made for tuning, its `ladder` (pass rate by rung).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard_store import read_whole_lines

from verl_ext.core.json_lines import JsonLines

Result = Mapping[str, Any]

# Shares of the budget at which a run is looked at, besides its start and its end.
LOOKS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# SFT has learned most of what it learns before the first of these.
EARLY_LOOKS = (1 / 256, 1 / 128)
# Of the budget, what SFT may use where another method comes after it.
SFT_FIRST = 1 / 64
# Positions without a gradient that one with a gradient counts as: forward, and twice that backward.
WITH_GRADIENT = 3
# Pass rates that are this close count as equal while tuning: 160 answers have a standard error of up to .04.
AS_GOOD = 0.03
# Share of the budget that tuning runs have, but for SFT's.
TUNING_SHARE = 0.5
TUNING_SEED = 100

# Methods of an arm, one after the other.
ARMS: dict[str, tuple[str, ...]] = {
    "none": (),
    "sft": ("sft",),
    "grpo": ("grpo",),
    "prefix_grpo": ("prefix_grpo",),
    "redaction": ("redaction",),
    "sft_then_grpo": ("sft", "grpo"),
    "sft_then_redaction": ("sft", "redaction"),
}

# Tuned together, by method. `share` is of the budget, after which SFT ends where nothing follows it.
CANDIDATES: dict[str, tuple[dict[str, float], ...]] = {
    "sft": tuple({"rate": rate, "share": share} for rate in (1e-4, 3e-4, 1e-3) for share in (1 / 32, 1 / 8, 1 / 2)),
    "grpo": tuple({"rate": rate, "updates": n} for rate, n in ((3e-4, 1), (1e-3, 1), (1e-4, 4), (3e-4, 4))),
    "prefix_grpo": tuple({"rate": rate, "updates": n} for rate, n in ((3e-4, 1), (1e-3, 1), (1e-4, 4), (3e-4, 4))),
    "redaction": tuple({"rate": rate} for rate in (0.03, 0.06, 0.12)),
}
# Of the quick form; nothing was tuned for it.
UNTUNED: dict[str, dict[str, float]] = {
    "sft": {"rate": 3e-4, "share": 1 / 8},
    "grpo": {"rate": 3e-4, "updates": 1},
    "prefix_grpo": {"rate": 3e-4, "updates": 1},
    "redaction": {"rate": 0.06},
}


@dataclass(frozen=True)
class Cost:
    """What was spent on learning; looks and ladder are not in it.

    Attributes:
        rollouts: Generated.
        generated: Their tokens.
        without_gradient: Token positions that passed through the model: of prompts, rollouts and measurements.
        with_gradient: The same with a gradient: tokens trained on and what they stand behind, as often as they were.
        updates: Steps of the optimizer.
        programs: Run in the sandbox.
        seconds: Processor time, that of the programs included.
    """

    rollouts: float = 0
    generated: float = 0
    without_gradient: float = 0
    with_gradient: float = 0
    updates: float = 0
    programs: float = 0
    seconds: float = 0

    @property
    def passes(self) -> float:
        """What budgets count: positions, one with a gradient as `WITH_GRADIENT`."""
        return self.without_gradient + WITH_GRADIENT * self.with_gradient

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        arm: Of `ARMS`.
        solutions: Golden solutions that it may use; the other problems are only measured.
        seed: Which problems these are, and the sampling.
        settings: "method.name" and value, of the arm's methods only.
        budget: Passes per solution.
        samples: Answers per state when it is measured.
        for_tuning: Nothing but looks is measured.
    """

    arm: str
    solutions: int
    seed: int
    settings: tuple[tuple[str, float], ...]
    budget: int
    samples: int
    for_tuning: bool = False

    @classmethod
    def from_json(cls, job: Mapping[str, Any]) -> "Job":
        return cls(**{**job, "settings": tuple((name, value) for name, value in job["settings"])})

    @property
    def total(self) -> float:
        """Passes of the whole budget."""
        return self.budget * self.solutions

    def setting(self, method: str, name: str) -> float:
        """Raises KeyError if the job has no such setting."""
        return dict(self.settings)[f"{method}.{name}"]

    def phases(self) -> list[tuple[str, float]]:
        """Each method, and the share of the budget at which it ends."""
        methods = ARMS[self.arm]
        ends = [SFT_FIRST if method == "sft" else 1.0 for method in methods]
        if methods == ("sft",):
            ends = [self.setting("sft", "share")]
        return list(zip(methods, ends, strict=True))

    def looks(self, method: str, end: float) -> list[float]:
        """Shares of the budget at which a phase is looked at, rising; its end is the last one."""
        shares = LOOKS if method != "sft" else (*EARLY_LOOKS, *LOOKS)
        return [*(share for share in shares if share < end), end]

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {value:g}" for name, value in self.settings)
        return f"{self.arm}, {self.solutions} solutions, seed {self.seed} ({settings})"


def make_job(
    arm: str, solutions: int, seed: int, tuned: Mapping[str, Mapping[str, float]], budget: int, samples: int
) -> Job:
    """A reported run; of the settings by method, those that the arm uses."""
    settings = tuple(
        (f"{method}.{name}", float(value))
        for method in ARMS[arm]
        for name, value in sorted(tuned[method].items())
        if ARMS[arm] == ("sft",) or (method, name) != ("sft", "share")
    )
    return Job(arm, solutions, seed, settings, budget, samples)


def split(problems: Sequence[str], solutions: int, seed: int) -> tuple[list[str], list[str]]:
    """The problems that a run trains on, and the others; the same for all arms of a seed.

    Raises:
        ValueError: If there are not so many.
    """
    if not 1 <= solutions <= len(problems):
        raise ValueError(f"expected from 1 to {len(problems)} solutions, got {solutions}")
    chosen = set(np.random.default_rng(seed).permutation(len(problems))[:solutions].tolist())
    trained = [name for place, name in enumerate(problems) if place in chosen]
    return trained, [name for place, name in enumerate(problems) if place not in chosen]


# ------------------------------ tuning ------------------------------


def tuning_jobs(method: str, solutions: int, budget: int, samples: int) -> list[Job]:
    """A run of each candidate, on a seed that is not reported."""
    share = 1.0 if method == "sft" else TUNING_SHARE
    return [
        Job(
            method,
            solutions,
            TUNING_SEED,
            tuple((f"{method}.{name}", float(value)) for name, value in sorted(candidate.items())),
            int(budget * share),
            samples,
            for_tuning=True,
        )
        for candidate in CANDIDATES[method]
    ]


def choose(results: Sequence[Result]) -> dict[str, float]:
    """Settings of the candidate with the best pass rate at its last look; of those as good, with the least drift."""
    best = max(result["looks"][-1]["pass"] for result in results)
    as_good = [result for result in results if result["looks"][-1]["pass"] >= best - AS_GOOD]
    chosen = min(as_good, key=_drift)
    return {name.partition(".")[2]: value for name, value in Job.from_json(chosen["job"]).settings}


def _drift(result: Result) -> float:
    """Of the other tasks' solutions at the end; of the prompts, where there are no other tasks."""
    last = result["looks"][-1]
    return last["drift_prompts"] if last["drift"] is None else last["drift"]


# ------------------------------ finished runs ------------------------------


class Store:
    """Finished runs in a file, one JSON object a line; of a line that was cut off nothing is kept.

    Args:
        path: The file; its folder is made.

    Raises:
        ValueError: If a line is not JSON although more follow.
    """

    def __init__(self, path: Path) -> None:
        self._file = JsonLines(path)
        self._results = {Job.from_json(result["job"]): result for result in read_whole_lines(self._file)}

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Those without a run, each once."""
        return [job for job in dict.fromkeys(jobs) if job not in self._results]

    def finish(
        self, jobs: Sequence[Job], run: Callable[[Job], dict[str, Any]], workers: Executor, say: Callable[[str], None]
    ) -> list[Result]:
        """Make what is missing, the largest first; the results of all jobs, in their order.

        Args:
            jobs: Any.
            run: Returns a result without its job; called in the workers.
            workers: Processes.
            say: Is told of every finished run.
        """
        missing = sorted(self.missing(jobs), key=lambda job: -job.total * max([end for _, end in job.phases()] or [0]))
        futures = {workers.submit(run, job): job for job in missing}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                job = futures[future]
                try:
                    result = {"job": asdict(job), **future.result()}
                except Exception as error:
                    error.add_note(f"in the run {job}")
                    raise
                self._file.append([result])
                self._results[job] = json.loads(json.dumps(result))
                say(f"{done} of {len(missing)}: {job}: {result['looks'][-1]['cost']['seconds']:.0f} s of learning")
        finally:
            for future in futures:
                future.cancel()
        return [self._results[job] for job in jobs]
