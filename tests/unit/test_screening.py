"""The stopping rule against all possible rules, and in simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.screening import (
    ScreeningPlan,
    best_price,
    expected_outcome,
    fixed_plan,
    mixed_probability,
    plan_screening,
)

counts = st.floats(0.05, 30)


def all_plans(n: int, chunk: int) -> list[ScreeningPlan]:
    stages = sorted({*range(max(2, min(chunk, n)), n, chunk), n})
    return [ScreeningPlan(chunk, fails, passes) for fails, passes in itertools.product(stages, stages)]


@given(alpha=counts, beta=counts, n=st.integers(2, 8), chunk=st.integers(1, 3), price=st.floats(0, 40))
def test_no_other_limits_are_worth_more(alpha: float, beta: float, n: int, chunk: int, price: float):
    def worth(plan: ScreeningPlan) -> float:
        qualified, wasted = expected_outcome(alpha, beta, plan)
        return price * qualified - wasted

    best = plan_screening(alpha, beta, n=n, chunk=chunk, price=price)
    assert worth(best) >= max(map(worth, all_plans(n, chunk))) - 1e-9


@given(alpha=counts, beta=counts, fails=st.integers(2, 6), passes=st.integers(2, 6), chunk=st.integers(1, 3))
def test_the_expected_outcome_is_what_playing_the_plan_gives(
    alpha: float, beta: float, fails: int, passes: int, chunk: int
):
    """By the tree of all outcomes, each weighted with its posterior predictive probability."""
    plan = ScreeningPlan(chunk, fails, passes)

    def play(num_passes: int, taken: int, probability: float) -> tuple[float, float]:
        num_next = plan.next_rollouts(num_passes, taken)
        if not num_next:
            mixed = 0 < num_passes < taken
            return (probability, 0.0) if mixed else (0.0, probability * taken)
        totals = np.zeros(2)
        for outcome in itertools.product((0, 1), repeat=num_next):
            chance, right, seen = probability, num_passes, taken
            for passed in outcome:
                rate = (alpha + right) / (alpha + beta + seen)
                chance *= rate if passed else 1 - rate
                right, seen = right + passed, seen + 1
            totals += play(right, seen, chance)
        return float(totals[0]), float(totals[1])

    assert play(0, 0, 1.0) == pytest.approx(expected_outcome(alpha, beta, plan))


def test_a_plan_stops_at_the_first_mixed_outcome_and_at_its_limits():
    plan = ScreeningPlan(chunk=2, max_fails=3, max_passes=4)
    assert plan.next_rollouts(0, 0) == 2
    assert plan.next_rollouts(1, 2) == 0
    assert plan.next_rollouts(0, 2) == 1
    assert plan.next_rollouts(2, 2) == 2
    assert plan.next_rollouts(0, 3) == plan.next_rollouts(4, 4) == plan.next_rollouts(1, 3) == 0
    assert fixed_plan(4).next_rollouts(0, 0) == 4
    assert fixed_plan(4).next_rollouts(0, 4) == 0


def test_what_is_known_is_given_up_early_and_what_is_dear_is_tried_longer():
    hopeless, unknown = (0.2, 8.2), (0.2, 0.2)
    assert plan_screening(*hopeless, n=4, chunk=1, price=10).max_fails == 2
    assert plan_screening(*unknown, n=4, chunk=2, price=5) == ScreeningPlan(2, 2, 2)
    assert plan_screening(*unknown, n=4, chunk=2, price=30) == ScreeningPlan(2, 4, 4)


def test_mixed_probability_of_a_uniform_rate():
    # Uniform: all of 0 .. n passes are equally likely.
    assert mixed_probability(1, 1, 4) == pytest.approx(3 / 5)


def test_sequential_screening_wastes_less_than_fixed_screening_in_simulation():
    """A U-shaped pool, rates ~ Beta(.2, .2): first the screener knows nothing else, then it uses what it has seen."""
    rng = np.random.default_rng(0)
    rates = rng.beta(0.2, 0.2, 20_000)
    seen = rng.binomial(4, rates)
    pool = [(0.2 + passes, 0.2 + 4 - passes) for passes in seen]
    price = best_price(pool, n=4, chunk=2)

    def simulate(plans: list[ScreeningPlan]) -> float:
        wasted = qualified = 0
        for rate, plan in zip(rates, plans, strict=True):
            passes = taken = 0
            while num_next := plan.next_rollouts(passes, taken):
                passes, taken = passes + rng.binomial(num_next, rate), taken + num_next
            mixed = 0 < passes < taken
            qualified, wasted = qualified + mixed, wasted + (0 if mixed else taken)
        return wasted / qualified

    sequential = simulate([plan_screening(a, b, n=4, chunk=2, price=price) for a, b in pool])
    fixed = simulate([fixed_plan(4)] * len(pool))
    assert sequential == pytest.approx(price, rel=0.05)
    assert sequential < 0.9 * fixed


def test_dinkelbach_ends_at_the_best_ratio_of_all_rules():
    pool = [(0.2, 0.2), (0.3, 6.0)]
    outcomes = [[expected_outcome(a, b, plan) for plan in all_plans(4, 2)] for a, b in pool]
    ratios = [sum(w for _, w in choice) / sum(q for q, _ in choice) for choice in itertools.product(*outcomes)]
    assert best_price(pool, n=4, chunk=2) == pytest.approx(min(ratios))


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        ScreeningPlan(1, 0, 4)
