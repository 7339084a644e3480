"""One run of `fast_dapo_safety.py`: a method learns in a world whose rewards may be wrong, late or cut off."""

import functools
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from leaderboard_protocol import METHODS
from leaderboard_training import Stopwatch, base_of
from learning_lab import Policy, Rollout
from safety_protocol import NUM_PROMPTS, SCENARIOS, Job, looks_at
from safety_scenarios import WORLDS, Grade, World
from sampling_methods import Method, Uniform


class GradedPolicy(Policy):
    """Rollouts come as a world's trainer sees them."""

    def __init__(self, *args: Any, grade: Grade, **more: Any) -> None:
        super().__init__(*args, **more)
        self.grade = grade

    def sample(self, prompts: Sequence[int]) -> list[Rollout]:
        return self.grade(super().sample(prompts), self.version)


def make_method(job: Job, world: World) -> Method:
    """The sampling method of a job.

    Raises:
        ValueError: If it is not one of those that are compared.
    """
    settings = {"batch": job.settings.batch, "group": job.settings.group, "seed": job.seed}
    match job.method:
        case "uniform_rloo":
            return Uniform(NUM_PROMPTS, **settings)
        case "choose":
            return world.choose(NUM_PROMPTS, **settings, task=world.task)
        case "choose_flat":
            return functools.partial(world.choose, use_features=False)(NUM_PROMPTS, **settings, task=world.task)
    raise ValueError(f"expected uniform_rloo, choose or choose_flat, got {job.method!r}")


def run(job: Job) -> dict[str, Any]:
    """Train to the end of a job; its result."""
    torch.set_num_threads(1)  # sums that do not depend on the machine
    world, watch = WORLDS[job.scenario](job.seed), Stopwatch()
    policy = GradedPolicy(
        base_of(SCENARIOS[job.scenario].pool),
        world.task,
        learning_rate=job.settings.learning_rate,
        estimator=METHODS[job.method].estimator,
        seed=job.seed,
        compact=True,
        grade=world.grade,
    )
    method = make_method(job, world)
    trained, history, looks = 0, [], looks_at(job.budget)
    while len(history) < len(looks):
        if method.counts.generated >= looks[len(history)]:
            with watch("looking"):
                by_domain = policy.accuracy_by_domain()
            own = {"step": policy.version, "rollouts": method.counts.generated, "trained": trained}
            history.append({**own, "accuracy_by_domain": by_domain})
            continue
        with watch("generating"):
            batch = method.next_batch(policy)
        with watch("updating"):
            updates = job.settings.updates
            policy.update(batch.rollouts, batch.groups, batch.weights, batch.advantages, updates=updates)
        trained += job.settings.updates * len(batch.rollouts)
    return {"job": asdict(job), "history": history, "seconds": watch.seconds}
