"""What `fast_dapo_leaderboard.py` compares, how it tunes, and when a run ends. Pure: a run is what a function returns.

A *result* is a run as JSON: its `job`, its `history` (a dict per look: rollouts, tokens, trained, trained_tokens, cost
and accuracy, among others), and its processor `seconds`. A *shape* is a batch: prompts x rollouts of a prompt. *Cost*
is counted in rollouts generated: of a look, rollouts + price x trained.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from efficiency_report import TARGETS, at_target

NUM_PROMPTS = 2048
# By name, the folder of the base model in outputs/models.
POOLS = {
    "B": "arithmetic_base",
    "E": "arithmetic_base",
    "C": "arithmetic_base",
    "T": "chains_base",
    "D": "domains_base",
}

Result = Mapping[str, Any]
Score = tuple[float, ...]

# 64 to 512 rollouts per batch, the most promising first: the quick form tries the first three.
SHAPES = ((64, 2), (64, 4), (16, 8), (128, 2), (32, 4), (128, 4), (32, 8))
# Two phases need at least two rollouts in each.
TWO_PHASE_SHAPES = ((16, 8), (32, 8), (16, 16), (32, 4), (64, 4), (8, 8), (8, 16))
# Without groups only the number of rollouts counts.
SINGLE_SHAPES = tuple((size, 1) for size in (64, 128, 256, 96, 192, 384, 512))
# With its own baseline a method can also have single rollouts.
CHOOSE_SHAPES = ((64, 2), (32, 4), (64, 1), (128, 1), (128, 2), (32, 2), (64, 4))


@dataclass(frozen=True)
class Entry:
    """A method of the leaderboard.

    Attributes:
        title: Display name.
        factory: "module:name" of what makes it: (num_prompts, *, batch, group, seed, task).
        seconds_per_1000: Processor seconds of a thousand rollouts with their updates and looks, measured on pool B.
        estimator: verl's name of the advantage estimator; not used if a method has its own advantages.
        shapes: The batches that tuning tries, equally many for every method.
    """

    title: str
    factory: str
    seconds_per_1000: float
    estimator: str = "rloo"
    shapes: Sequence[tuple[int, int]] = SHAPES


METHODS = {
    "uniform_rloo": Entry("uniform RLOO", "leaderboard_methods:Uniform", 0.65),
    "uniform_grpo": Entry("uniform GRPO", "leaderboard_methods:Uniform", 0.65, estimator="grpo"),
    "filter_groups": Entry("verl's filter_groups", "leaderboard_methods:FilterGroups", 0.6),
    "two_phase": Entry("two phases", "leaderboard_methods:two_phase", 0.65, shapes=TWO_PHASE_SHAPES),
    "pilot_commit": Entry("Pilot-Commit", "leaderboard_methods:PilotCommit", 0.5),
    "greso": Entry("GRESO", "leaderboard_methods:Greso", 0.5),
    "mopps": Entry("MoPPS", "leaderboard_methods:Mopps", 0.65),
    "dps": Entry("DPS", "leaderboard_methods:Dps", 0.65),
    "knapsack": Entry("Knapsack RL", "leaderboard_methods:Knapsack", 0.65),
    "spo": Entry("SPO", "leaderboard_methods:SingleStream", 1.9, shapes=SINGLE_SHAPES),
    "choose": Entry("choose (ours)", "choosing_method:Choose", 0.9, shapes=CHOOSE_SHAPES),
    "choose_flat": Entry(
        "choose, without features", "choosing_method:choose_without_features", 0.9, shapes=CHOOSE_SHAPES
    ),
    "choose_states": Entry(
        "choose, model states for features", "choosing_method:choose_with_states", 0.9, shapes=CHOOSE_SHAPES
    ),
    "choose_noise": Entry("choose, features of noise", "choosing_method:choose_with_noise", 0.9, shapes=CHOOSE_SHAPES),
}
BASELINES = ("uniform_rloo", "uniform_grpo")
# Run only where they are named: what they show is the difference to choose_flat at its settings.
CONTROLS = ("choose_states", "choose_noise")


@dataclass(frozen=True)
class Settings:
    """What is tuned.

    Attributes:
        learning_rate: Of AdamW.
        batch: Prompts of a batch.
        group: Rollouts of a prompt, on average where a method allocates them.
        updates: Optimizer steps on a batch.
    """

    learning_rate: float
    batch: int
    group: int
    updates: int


@dataclass(frozen=True)
class Spacing:
    """When the accuracy is looked at: `rollouts` or a share of all so far after the last look, whichever is more."""

    rollouts: int
    share: float

    def next_look(self, rollouts: int) -> float:
        """Rollouts from which on the next look is due."""
        return rollouts + max(self.rollouts, self.share * rollouts)


# A look costs as much as 100 to 150 rollouts: tuning, which has most of the runs, looks less often.
TUNING_LOOKS = Spacing(750, 0.10)
REPORTED_LOOKS = Spacing(250, 0.05)


@dataclass(frozen=True)
class Job:
    """One training run.

    Attributes:
        budget: Cost after which it ends if it has not reached the last target.
        after: Additional cost once it has.
        looks: A run looked at more often is another run.
        price: Of training on a rollout once, in rollouts generated.
    """

    method: str
    pool: str
    seed: int
    settings: Settings
    budget: int
    after: int = 0
    looks: Spacing = REPORTED_LOOKS
    price: float = 0.0

    @property
    def most_rollouts(self) -> float:
        """That the budget is enough for, if all are trained on."""
        return self.budget / (1 + self.price * self.settings.updates)

    @classmethod
    def from_json(cls, job: Mapping[str, Any]) -> "Job":
        plain = {name: value for name, value in job.items() if name not in ("settings", "looks")}
        return cls(**plain, settings=Settings(**job["settings"]), looks=Spacing(**job["looks"]))

    def __str__(self) -> str:
        own = self.settings
        return (
            f"{self.method}, pool {self.pool}, seed {self.seed}: {own.batch} x {own.group}, "
            f"rate {own.learning_rate:g}, updates {own.updates}"
        )


@dataclass(frozen=True)
class Rung:
    """A round of tuning: every candidate that is left is run on each seed at this cost, and the best `keep` advance."""

    seeds: tuple[int, ...]
    budget: int
    keep: int


@dataclass(frozen=True)
class Protocol:
    """What is tried, and what is reported.

    Attributes:
        rungs: The last one keeps one candidate.
        num_shapes: The first of each method's shapes.
        num_seeds: Reported ones, from 0.
        budget: Cost of a reported run.
        price: Of training on a rollout once, in rollouts generated: what is tuned is the cost.
    """

    pools: tuple[str, ...]
    rungs: tuple[Rung, ...]
    learning_rates: tuple[float, ...]
    updates: tuple[int, ...]
    num_shapes: int
    num_seeds: int
    budget: int
    price: float = 0.0

    def grid(self, method: str) -> list[Settings]:
        """All candidates of a method: the same number for each."""
        shapes = METHODS[method].shapes[: self.num_shapes]
        choices = itertools.product(shapes, self.learning_rates, self.updates)
        return [Settings(rate, batch, group, updates) for (batch, group), rate, updates in choices]

    @property
    def num_candidates(self) -> int:
        """Of every method."""
        return self.num_shapes * len(self.learning_rates) * len(self.updates)

    @property
    def tuning_cost(self) -> int:
        """That the tuning of one method on the first pool may have; runs that reach the last target cost less."""
        total, left = 0, self.num_candidates
        for rung in self.rungs:
            total += left * len(rung.seeds) * rung.budget
            left = rung.keep
        return total


FULL = Protocol(
    pools=tuple(POOLS),
    rungs=(
        Rung((100,), 4_000, 16),
        Rung((101,), 8_000, 6),
        Rung((102, 103), 12_000, 2),
        Rung((104, 105, 106), 40_000, 1),
    ),
    learning_rates=(7.5e-5, 1.5e-4, 3e-4),
    updates=(2, 4, 8),
    num_shapes=7,
    num_seeds=8,
    budget=40_000,
)
# Where training on a rollout costs as much as generating it: fewer updates, and three times the cost for as many
# rollouts.
BALANCED = replace(
    FULL,
    rungs=tuple(replace(rung, budget=3 * rung.budget) for rung in FULL.rungs),
    learning_rates=(1.5e-4, 3e-4, 6e-4),
    updates=(1, 2, 4),
    budget=3 * FULL.budget,
    price=1.0,
)
QUICK = Protocol(
    pools=("B",),
    rungs=(Rung((100,), 4_000, 2), Rung((101,), 12_000, 1)),
    learning_rates=(1.5e-4, 3e-4),
    updates=(4,),
    num_shapes=3,
    num_seeds=2,
    budget=20_000,
)


def cost_of(look: Mapping[str, Any], price: float) -> float:
    """Of a run until a look."""
    return look["rollouts"] + price * look["trained"] if price else look["rollouts"]


def with_costs(history: Sequence[Mapping[str, Any]], price: float) -> list[dict[str, Any]]:
    """The looks, each with its cost."""
    return [{**look, "cost": cost_of(look, price)} for look in history]


def last_cost(history: Sequence[Mapping[str, Any]], job: Job) -> float:
    """How far a run goes, by its looks so far: `after` past the last target, or to the budget."""
    reached = at_target({"history": with_costs(history, job.price)}, TARGETS[-1], "cost")
    return job.budget if np.isnan(reached) or reached > job.budget else reached + job.after


def covers(result: Result, job: Job) -> bool:
    """Whether a finished run has all results of a run of this job."""
    done, history = Job.from_json(result["job"]), result["history"]
    # Until its last look, and until its end as far as it knows of that in this job's cost.
    end = last_cost(history, done) if done.price == job.price else cost_of(history[-1], job.price)
    return end >= last_cost(history, job)


def cut(result: Result, job: Job) -> dict[str, Any]:
    """A finished run that covers a job, without the looks past the job's end."""
    end = last_cost(result["history"], job)
    history = [look for look in with_costs(result["history"], job.price) if look["cost"] <= end]
    return {**result, "job": asdict(job), "history": history}


def cost_to(result: Result, gain: float, budget: float) -> float:
    """Cost until a target; the budget if it was never reached."""
    reached = at_target(result, gain, "cost")
    return float(budget) if np.isnan(reached) else reached


def mean_gain(result: Result, budget: float) -> float:
    """Over the costs up to the budget, in points: the area under the curve."""
    history = result["history"]
    x = np.array([look["cost"] for look in history], dtype=float)
    y = 100 * (np.array([look["accuracy"] for look in history]) - history[0]["accuracy"])
    return float(np.interp(np.linspace(0, budget, 512), x, y).mean())


def score(results: Sequence[Result], budget: float) -> Score:
    """Of a candidate, over the seeds of a rung; the lower, the better.

    Mean cost to +25 points, of a seed that never got there the budget; where that is equal, to +20, then to +15; at
    last the area under the curve. So a budget too short for the last target is decided by the highest one that
    distinguishes candidates.
    """
    means = [float(np.mean([cost_to(result, gain, budget) for result in results])) for gain in reversed(TARGETS)]
    return (*means, -float(np.mean([mean_gain(result, budget) for result in results])))


def best(candidates: Sequence[Settings], scores: Sequence[Score], keep: int) -> list[Settings]:
    """The candidates with the lowest scores, best first; of equal ones the earlier."""
    order = sorted(range(len(candidates)), key=lambda place: scores[place])
    return [candidates[place] for place in order[:keep]]


def tune(
    methods: Sequence[str], pool: str, protocol: Protocol, finish: Callable[[Sequence[Job]], Sequence[Result]]
) -> dict[str, Settings]:
    """Successive halving: the settings of each method on a pool.

    The first rung is the first pool's, whichever is tuned: it sorts out what no pool would choose, once for all.

    Args:
        finish: Makes runs, and returns their results in the order of the jobs. A rung is asked for as a whole, over
            all methods, so that it can keep several processors busy.
    """
    alive = {method: protocol.grid(method) for method in methods}
    for number, rung in enumerate(protocol.rungs):
        played_on = pool if number else protocol.pools[0]
        jobs = [
            Job(method, played_on, seed, settings, rung.budget, looks=TUNING_LOOKS, price=protocol.price)
            for method, candidates in alive.items()
            for settings in candidates
            for seed in rung.seeds
        ]
        results = iter(finish(jobs))
        for method, candidates in alive.items():
            runs = [list(itertools.islice(results, len(rung.seeds))) for _ in candidates]
            alive[method] = best(candidates, [score(run, rung.budget) for run in runs], rung.keep)
    return {method: candidates[0] for method, candidates in alive.items()}


def seconds_of(method: str, rollouts: int) -> float:
    """CPU seconds of this many rollouts, as measured."""
    return METHODS[method].seconds_per_1000 * rollouts / 1000
