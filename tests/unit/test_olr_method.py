"""Label refinement of tests/benchmarks/olr_method.py: the two conditions, computed in another way."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from olr_method import EPOCHS, FIRST_EPOCHS, LabelRefinement, most_frequent, slope

RISING = [2, 3, 4, 5, 6, 7]  # votes for "right" among 8, visit by visit


def votes(count, answer="right"):
    return [answer] * count + [f"wrong {n}" for n in range(8 - count)]


def visits(labels, counts, answer="right"):
    return [labels.visit(0, votes(count, answer)) for count in counts]


@given(st.lists(st.integers(0, 16), min_size=2, max_size=10))
def test_the_slope_is_that_of_the_line_of_least_squares(counts):
    rates = [count / 16 for count in counts]
    assert slope(rates) == pytest.approx(np.polyfit(range(len(rates)), rates, 1)[0], abs=1e-9)


def test_one_visit_has_no_slope():
    assert slope([]) == slope([0.5]) == 0


def test_of_two_answers_as_frequent_neither_is_taken():
    assert most_frequent(["a", "b", "b"]) == "b"
    assert most_frequent(["a", "b"]) is None
    assert most_frequent([]) is None


def test_an_answer_that_rises_becomes_the_label_after_the_first_visits():
    assert FIRST_EPOCHS == 5 < EPOCHS
    assert visits(LabelRefinement(), RISING) == [None] * 5 + ["right"]


def test_an_answer_that_does_not_rise_enough_does_not():
    assert visits(LabelRefinement(), [4, 4, 4, 4, 4, 4]) == [None] * 6
    assert visits(LabelRefinement(), RISING[::-1]) == [None] * 6
    # 1/8 per visit is the slope of RISING: equal is not above.
    assert visits(LabelRefinement(least_slope=1 / 8), RISING) == [None] * 6
    assert visits(LabelRefinement(least_slope=1 / 8 - 1e-9), RISING)[-1] == "right"


def test_an_answer_that_was_seldom_the_most_frequent_one_does_not():
    labels = LabelRefinement()
    assert visits(labels, RISING[:5], "old") == [None] * 5
    # Its pass rate rises, but the history has another answer.
    assert visits(labels, [8], "new") == [None]
    assert visits(labels, [8], "old") == ["old"]


def test_prompts_have_histories_of_their_own():
    labels = LabelRefinement()
    visits(labels, RISING[:5])
    assert labels.visit(1, votes(7)) is None
    assert labels.visit(0, votes(7)) == "right"


def test_rewards_of_a_refined_prompt_are_by_its_label_and_those_of_others_stay():
    labels = LabelRefinement(first_epochs=1, least_slope=0.0)
    prompts, given = [4, 4, 4, 7, 7, 7], np.array([1.0, 0, 0, 0, 1, 0])
    first = labels.rewards(given, ["a", "a", "b", "c", "c", "c"], prompts)
    np.testing.assert_array_equal(first, given)
    second = labels.rewards(given, ["a", "a", "a", "c", "c", "d"], prompts)
    # Prompt 4: from 2/3 to 3/3; prompt 7: from 3/3 to 2/3.
    np.testing.assert_array_equal(second, [1, 1, 1, 0, 1, 0])
    np.testing.assert_array_equal(given, [1, 0, 0, 0, 1, 0])
