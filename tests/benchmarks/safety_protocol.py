"""What `fast_dapo_safety.py` compares, at which settings, and where finished runs are kept. Pure.

A *result* is a run as JSON: its `job`, its `history` (a dict per look: step, rollouts, trained and accuracy_by_domain)
and its processor `seconds`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard_protocol import Settings
from leaderboard_store import RunStore

NUM_PROMPTS = 2048
LOOKS = 20  # of a run, at equal distances, besides the first
FINAL_LOOKS = 3  # the final accuracy is their mean

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Scenario:
    """A scenario of something that may go wrong.

    Attributes:
        title: Display name.
        pool: Whose base model its runs start from; also where tuned settings are looked up.
        hopeless: Domains that hardly anything is rewarded in.
    """

    title: str
    pool: str
    hopeless: tuple[str, ...] = ()


# `safety_scenarios.WORLDS` has what makes each.
SCENARIOS = {
    "format": Scenario("a format to discover", "D"),
    "swapped_rewards": Scenario("a tenth of a source has other prompts' answers", "D"),
    "inverted_rewards": Scenario("a tenth of a source rewards what is wrong", "D"),
    "failing_environments": Scenario("failing environments", "D"),
    "slow_hard_prompts": Scenario("slow hard prompts, trained on late", "T"),
    "slow_waited_for": Scenario("slow hard prompts, waited for", "T"),
    "slow_ahead": Scenario("slow hard prompts, with a batch ahead", "T"),
    "length_bias": Scenario("long responses are cut off", "T", hopeless=("long",)),
    "graded": Scenario("the share of right digits as reward", "D"),
    "graded_successes": Scenario("the same, chosen by its variance", "D"),
}

BASELINE = "uniform_rloo"
# Found by hand; `--settings` takes tuned ones, by pool and method.
BY_HAND = {
    "uniform_rloo": Settings(3e-4, 64, 4, 1),
    "choose": Settings(3e-4, 32, 4, 1),
    "choose_flat": Settings(3e-4, 32, 4, 1),
}


@dataclass(frozen=True)
class Job:
    """One training run of a method in a scenario.

    Attributes:
        budget: Rollouts after which it ends.
    """

    method: str
    scenario: str
    seed: int
    settings: Settings
    budget: int

    @property
    def most_rollouts(self) -> int:
        """As a job of the leaderboard has it."""
        return self.budget

    @classmethod
    def from_json(cls, job: Mapping[str, Any]) -> "Job":
        return cls(**{**job, "settings": Settings(**job["settings"])})

    def __str__(self) -> str:
        own = self.settings
        return f"{self.method} in {self.scenario}, seed {self.seed}: {own.batch} x {own.group}, {own.learning_rate:g}"


def looks_at(budget: int) -> list[float]:
    """Rollouts at which the accuracy is looked at, at the first step that has as many."""
    return [budget * number / LOOKS for number in range(LOOKS + 1)]


def final_accuracy(result: Result) -> dict[str, float]:
    """By domain, the mean of the last looks."""
    looks: Sequence[Mapping[str, float]] = [look["accuracy_by_domain"] for look in result["history"][-FINAL_LOOKS:]]
    return {domain: sum(look[domain] for look in looks) / len(looks) for domain in looks[0]}


class SafetyStore(RunStore):
    """Finished runs of exactly these jobs: none stands for a shorter one."""

    def find(self, job: Job) -> dict[str, Any] | None:
        return dict(self._results[job][-1]) if job in self._results else None

    def _keep(self, result: Result) -> None:
        self._results.setdefault(Job.from_json(result["job"]), []).append(result)
