"""What is taken over from an earlier run: lengths, and visits whose policy is near the current one."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.golden_redaction.method.earlier_run import EarlierRun, log_prob_gap
from recipe.golden_redaction.method.progress import RedactionSettings
from recipe.golden_redaction.method.redaction import RedactionController
from recipe.golden_redaction.method.visits import Recorded, StateVisit
from recipe.golden_redaction.warm_start import restore_lengths

THEN = (math.log(0.75), math.log(0.25))
# After an update that reached its targets: log-probs 2 log p and log p / 2.
MOVED = (math.log(0.5), math.log(0.5))


def visit(problem: str, k: int, state_reward: float | None = 1.0, version: int = 0) -> StateVisit:
    return StateVisit(problem, k, (1, 2), 7, (7, 8), version, recorded=Recorded(THEN, state_reward))


class Policy:
    """Log-probs equal to those of the records except for some visits; records what it was asked."""

    def __init__(self, *moved: tuple[str, int]) -> None:
        self.moved = moved
        self.asked: list[list[tuple[str, int]]] = []

    def __call__(self, visits: Sequence[StateVisit]) -> list[tuple[float, ...]]:
        self.asked.append([(visit.problem, visit.k) for visit in visits])
        return [MOVED if place in self.moved else THEN for place in self.asked[-1]]


# ------------------------------ the gap ------------------------------

LOG_PROBS = st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0)), min_size=1, max_size=8)


@given(LOG_PROBS)
def test_the_gap_is_symmetric_and_between_the_smallest_and_the_largest_difference(pairs):
    then, now = zip(*pairs, strict=True)
    gap, differences = log_prob_gap(then, now), [abs(a - b) for a, b in pairs]
    assert gap == pytest.approx(log_prob_gap(now, then))
    assert min(differences) - 1e-9 <= gap <= max(differences) + 1e-9
    assert log_prob_gap(then, then) == 0


def test_a_token_counts_as_much_as_it_is_sampled():
    # By hand: weights (.75 + .5) and (.25 + .5) of 2.
    assert log_prob_gap(THEN, MOVED) == pytest.approx(1.25 / 2 * math.log(1.5) + 0.75 / 2 * math.log(2))
    common, rare = (math.log(0.9), math.log(1e-6)), (math.log(0.9), math.log(1e-8))
    assert log_prob_gap(common, rare) < 1e-4
    assert log_prob_gap((-2000.0,), (-2001.0,)) == 1


@pytest.mark.parametrize("now", [[-1.0], []])
def test_log_probs_of_other_tokens_are_refused(now):
    with pytest.raises(ValueError, match=f"same tokens, at least one, got {2 if now else 0} and {len(now)}"):
        log_prob_gap([-1.0, -2.0] if now else [], now)


# ------------------------------ visits ------------------------------


def test_visits_that_the_policy_is_far_from_are_left_out_and_others_take_their_places():
    recent = [visit("a", k) for k in range(1, 8)]
    policy, earlier = Policy(("a", 1), ("a", 2), ("a", 6), ("a", 7)), EarlierRun(recent, recent, 0.3)
    assert [taken.k for taken in earlier.take(3, policy)] == [3, 4, 5]
    assert (earlier.num_far, earlier.num_used) == (2, 5)
    assert earlier.take(3, policy) == []
    assert (earlier.num_far, earlier.is_used_up) == (2, True)


def test_any_distance_is_taken_without_a_bound_and_nothing_is_asked():
    recent, policy = [visit("a", k) for k in range(1, 5)], Policy(("a", 1), ("a", 2))
    earlier = EarlierRun(recent, recent, None)
    assert [taken.k for taken in earlier.take(3, policy)] == [1, 2, 3]
    assert [taken.k for taken in earlier.take(3, policy)] == [4]
    assert policy.asked == []


def test_a_resumed_run_goes_on_behind_the_visits_that_were_used():
    recent = [visit("a", k) for k in range(1, 7)]
    first, second = EarlierRun(recent, recent, 0.3), EarlierRun(recent, recent, 0.3)
    first.take(4, Policy(("a", 2)))
    second.num_used = first.num_used
    assert second.take(4, Policy()) == first.take(4, Policy())


# ------------------------------ lengths ------------------------------

HISTORY = [visit("a", 40), visit("b", 3, 0.5), visit("a", 50), visit("a", 62), visit("b", 4, 0.5), visit("a", 77)]


def restored(policy: Policy, max_gap: float | None = 0.3) -> dict[str, int]:
    controller = RedactionController({"a": 90, "b": 9, "c": 9}, RedactionSettings())
    restore_lengths(EarlierRun(HISTORY, (), max_gap), controller, policy)
    return {name: controller.k(name) for name in "abc"}


def test_k_is_that_of_the_earlier_run_though_its_entries_are_too_old_to_train_on(capsys):
    policy = Policy()
    assert restored(policy) == {"a": 78, "b": 4, "c": 1}
    assert policy.asked == [[("a", 77), ("b", 4)]]
    assert "2 of 2 problems continue from where they were" in capsys.readouterr().out


def test_k_is_that_of_the_last_visit_that_the_policy_is_near():
    policy = Policy(("a", 77), ("a", 62), ("b", 4), ("b", 3))
    assert restored(policy) == {"a": 51, "b": 1, "c": 1}
    assert policy.asked == [[("a", 77), ("b", 4)], [("a", 62), ("b", 3)], [("a", 50)]]
    assert restored(policy, max_gap=None) == {"a": 78, "b": 4, "c": 1}


def test_without_an_earlier_run_nothing_is_asked_or_said(capsys):
    policy, controller = Policy(), RedactionController({"a": 9}, RedactionSettings())
    restore_lengths(EarlierRun((), (), 0.3), controller, policy)
    assert (policy.asked, capsys.readouterr().out, controller.k("a")) == ([], "", 1)


def test_log_probs_may_be_arrays():
    earlier = EarlierRun(HISTORY, HISTORY, 0.3)
    assert len(earlier.take(9, lambda visits: [np.array(THEN)] * len(visits))) == len(HISTORY)
