"""Made-up results of runs, with accuracies that are a function of the rollouts."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from leaderboard_protocol import Job, Settings, Spacing, cost_of, cut, last_cost

BASE = 0.2
SETTINGS = Settings(3e-4, 64, 2, 1)
LOOKS = Spacing(500, 0.0)


def make_job(method: str = "greso", seed: int = 0, budget: int = 10_000, **changes: Any) -> Job:
    values = {"pool": "B", "settings": SETTINGS, "looks": LOOKS} | changes
    return Job(method=method, seed=seed, budget=budget, **values)


def play(job: Job, accuracy: Callable[[int], float]) -> dict[str, Any]:
    """A run in steps of 100 rollouts, of which half are trained on; a response has five tokens."""
    history: list[dict[str, Any]] = []
    rollouts, next_look = 0, 0.0
    while True:
        if rollouts >= next_look:
            value = accuracy(rollouts)
            history.append(
                {
                    "step": rollouts // 100,
                    "rollouts": rollouts,
                    "tokens": 5 * rollouts,
                    "trained": rollouts // 2,
                    "trained_tokens": 5 * rollouts // 2,
                    "accuracy": value,
                    "accuracy_by_domain": {"sums": value},
                }
            )
            next_look = job.looks.next_look(rollouts)
        if cost_of({"rollouts": rollouts, "trained": rollouts // 2}, job.price) >= last_cost(history, job):
            break
        rollouts += 100
    return cut({"job": asdict(job), "history": history, "seconds": {"generating": 2.0, "updating": 1.0}}, job)


def rising(per_1000: float, highest: float = 0.9) -> Callable[[int], float]:
    """Accuracy that rises by `per_1000` per 1,000 rollouts, up to `highest`."""
    return lambda rollouts: min(BASE + per_1000 * rollouts / 1000, highest)
