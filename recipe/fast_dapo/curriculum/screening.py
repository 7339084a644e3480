"""How many rollouts to spend before giving up a prompt that teaches nothing. Pure.

A prompt is screened with rollouts in chunks until they are mixed (then it is continued to a group of N) or until it is
given up. The rollouts of a continued prompt are part of its group, so the cost of screening is the rollouts of prompts
that are given up: with `price` the rollouts wasted per prompt that qualifies, a trained prompt costs N + price.

`plan_screening` is the optimal stopping rule for a prompt with pass rate ~ Beta(alpha, beta). After t samples, all
alike, it is worth

    U(t) = max( -t,  P(mixed by the next chunk) * price + P(still alike) * U(t + chunk) ),   U(n) = -n

giving up wastes t rollouts; finding a mixed prompt saves the price that another one would cost. P comes from the
posterior after t failures (or t passes). The price of the policy in force, measured as wasted / qualified, is the right
one to use: replacing the price by the ratio that its own policy achieves is Dinkelbach's iteration, and ends at the
smallest ratio any such rule has (`best_price`).

The two limits (failures in a row, passes in a row) depend on the posterior and never on the samples of this screening:
that is what makes the correction of `correction.py` exact for sequential screening as well.

Sources: Dinkelbach (1967), On nonlinear fractional programming; Chow, Robbins and Siegmund (1971), Great Expectations:
The Theory of Optimal Stopping.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Screening = Literal["fixed", "sequential"]
SCREENINGS: tuple[Screening, ...] = get_args(Screening)


@dataclass(frozen=True, slots=True)
class ScreeningPlan:
    """Limits of one prompt's screening, fixed before its first rollout.

    Attributes:
        chunk: Rollouts issued at a time; the first time at least 2, if the limits allow it.
        max_fails: Rollouts after which a prompt that only failed is given up.
        max_passes: Rollouts after which a prompt that only passed is given up.
    """

    chunk: int
    max_fails: int
    max_passes: int

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.max_fails < 1 or self.max_passes < 1:
            raise ValueError(f"chunk and both limits must be at least 1, got {self}")

    def next_rollouts(self, num_passes: float, num_samples: int) -> int:
        """Rollouts to issue next; 0: screening is over, mixed or given up.

        Args:
            num_passes: Passes so far; with graded successes, which `fixed_plan` is for, their sum.
            num_samples: Samples so far.
        """
        if num_samples == 0:
            # The smaller limit may be reached by either outcome: issue no more than it allows.
            return min(max(2, self.chunk), self.max_fails, self.max_passes)
        if 0 < num_passes < num_samples:
            return 0
        limit = self.max_passes if num_passes else self.max_fails
        return max(0, min(self.chunk, limit - num_samples))


def fixed_plan(n: int) -> ScreeningPlan:
    """All n rollouts at once."""
    return ScreeningPlan(chunk=n, max_fails=n, max_passes=n)


def mixed_probability(alpha: float, beta: float, num_samples: int) -> float:
    """P(0 < passes < num_samples) for a pass rate ~ Beta(alpha, beta) (beta-binomial)."""
    return 1.0 - _all_alike(alpha, beta, num_samples) - _all_alike(beta, alpha, num_samples)


def plan_screening(alpha: float, beta: float, *, n: int, chunk: int, price: float) -> ScreeningPlan:
    """The best limits for one prompt.

    Args:
        alpha: First parameter of the posterior of its pass rate.
        beta: The second one.
        n: Rollouts after which it is given up in any case, at least 1.
        chunk: Rollouts issued at a time.
        price: Rollouts wasted per qualified prompt under the policy in force, at least 0.
    """
    return ScreeningPlan(
        chunk=chunk,
        max_fails=_limit(beta, alpha, n=n, chunk=chunk, price=price),
        max_passes=_limit(alpha, beta, n=n, chunk=chunk, price=price),
    )


def expected_outcome(alpha: float, beta: float, plan: ScreeningPlan) -> tuple[float, float]:
    """(P(qualified), expected wasted rollouts) of a plan for a pass rate ~ Beta(alpha, beta)."""
    all_fail = _all_alike(beta, alpha, plan.max_fails)
    all_pass = _all_alike(alpha, beta, plan.max_passes)
    return 1.0 - all_fail - all_pass, plan.max_fails * all_fail + plan.max_passes * all_pass


def best_price(pool: Sequence[tuple[float, float]], *, n: int, chunk: int, tolerance: float = 1e-9) -> float:
    """Smallest expected waste per qualified prompt over a pool that is screened whole, by Dinkelbach's iteration.

    Args:
        pool: (alpha, beta) of each prompt.

    Raises:
        ValueError: if no prompt of the pool can qualify.
    """
    price = float("inf")
    while True:
        plans = [
            fixed_plan(n) if price == float("inf") else plan_screening(a, b, n=n, chunk=chunk, price=price)
            for a, b in pool
        ]
        outcomes = [expected_outcome(a, b, plan) for (a, b), plan in zip(pool, plans, strict=True)]
        qualified, wasted = sum(q for q, _ in outcomes), sum(w for _, w in outcomes)
        if qualified <= 0:
            raise ValueError("no prompt of the pool can qualify: every posterior is certain")
        improved = wasted / qualified
        if improved >= price - tolerance:
            return min(price, improved)
        price = improved


def _limit(alike: float, other: float, *, n: int, chunk: int, price: float) -> int:
    """Samples at which to give up a prompt whose samples were all of the kind with pseudo-count `alike`."""
    stages = [0, *range(max(2, min(chunk, n)), n, chunk), n]
    value, limit = -float(n), n
    for t, after in zip(reversed(stages[1:-1]), reversed(stages[2:]), strict=True):
        still_alike = 1.0
        for j in range(t, after):
            still_alike *= (alike + j) / (alike + other + j)
        keep_on = (1.0 - still_alike) * price + still_alike * value
        if keep_on > -t:
            value = keep_on
        else:
            value, limit = -float(t), t
    return limit


def _all_alike(alike: float, other: float, num_samples: int) -> float:
    probability = 1.0
    for j in range(num_samples):
        probability *= (alike + j) / (alike + other + j)
    return probability
