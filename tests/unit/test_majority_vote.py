"""maj@k against going through every subset of the samples."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.evaluation.statistics.majority_vote import majority_at_k


def by_enumeration(answers: list[str], correct: list[bool], k: int) -> Fraction:
    """Mean accuracy over all subsets; each of the answers that tie is drawn with the same chance."""
    subsets = list(combinations(range(len(answers)), k))
    total = Fraction(0)
    for subset in subsets:
        votes: dict[str, int] = {}
        for sample in subset:
            if answers[sample]:
                votes[answers[sample]] = votes.get(answers[sample], 0) + 1
        winners = [answer for answer, count in votes.items() if count == max(votes.values())]
        for winner in winners:
            verdicts = [right for answer, right in zip(answers, correct, strict=True) if answer == winner]
            total += Fraction(sum(verdicts), len(verdicts) * len(winners))
    return total / len(subsets)


@st.composite
def votes(draw):
    answers = draw(st.lists(st.sampled_from(["", "1", "2", "3", "4"]), min_size=1, max_size=9))
    right = draw(st.sets(st.sampled_from(["1", "2", "3"])))
    return answers, [answer in right for answer in answers], draw(st.integers(1, len(answers)))


@given(votes())
def test_it_is_the_mean_over_all_subsets(case):
    assert majority_at_k(*case) == pytest.approx(float(by_enumeration(*case)), abs=1e-12)


@given(votes(), st.randoms())
def test_the_order_of_the_samples_does_not_matter(case, random):
    answers, correct, k = case
    order = random.sample(range(len(answers)), len(answers))
    shuffled = majority_at_k([answers[i] for i in order], [correct[i] for i in order], k)
    assert shuffled == pytest.approx(majority_at_k(answers, correct, k), abs=1e-12)


def test_one_answer_that_is_right_only_sometimes_counts_its_share():
    assert majority_at_k(["x", "x", "x", "x"], [True, False, False, False], 3) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("answers", "k", "expected"),
    [
        (["1", "1", "2"], 3, 1.0),
        (["1", "2", "2"], 3, 0.0),
        (["1", "1", "2", "2"], 4, 0.5),
        (["1", "", "", ""], 4, 1.0),
        (["", ""], 2, 0.0),
        (["1", "2"], 1, 0.5),
    ],
)
def test_known_votes(answers: list[str], k: int, expected: float):
    assert majority_at_k(answers, [answer == "1" for answer in answers], k) == pytest.approx(expected)


def test_many_samples_keep_within_bounds():
    answers = [str(number % 7) for number in range(600)] + [""] * 400
    accuracy = majority_at_k(answers, [answer == "0" for answer in answers], 64)
    assert 1 / 7 < accuracy < 1 / 6


@pytest.mark.parametrize(("samples", "k"), [(4, 0), (4, 5), (1001, 1)])
def test_impossible_votes_are_refused(samples: int, k: int):
    with pytest.raises(ValueError, match="1 <= k <= samples <= 1000"):
        majority_at_k(["1"] * samples, [True] * samples, k)
    with pytest.raises(ValueError, match="one verdict per answer"):
        majority_at_k(["1"], [], 1)
