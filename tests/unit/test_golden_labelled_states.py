"""Mini-batches of labelled states, and the reference's log-probs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.golden_redaction.method.credit import StateCredit
from recipe.golden_redaction.method.labelled_states import ReferenceLogProbs, StateTokens, mini_batches
from recipe.golden_redaction.method.targets import Targets
from recipe.golden_redaction.method.visits import StateVisit


def _visit(number: int, tokens: tuple[int, ...], problem: str = "a") -> StateVisit:
    return StateVisit(problem, 3, (number, number + 1), tokens[0], tokens, 0)


def _credited(number: int, advantages: tuple[int, ...]) -> StateVisit:
    size = len(advantages)
    visit = _visit(number, tuple(range(size)))
    visit.credit = StateCredit(np.ones(size), np.zeros(size), np.ones(size), np.array(advantages), 0.5, 1.0)
    visit.targets = _targets(advantages)
    return visit


def _targets(advantages: tuple[int, ...]) -> Targets:
    return Targets(np.array([-0.5 * advantage if advantage else np.nan for advantage in advantages]), 1.0, 1.0)


ADVANTAGES = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4).map(tuple)


@given(st.lists(ADVANTAGES, min_size=1, max_size=9), st.integers(1, 4), st.sampled_from(["state_mean", "token_mean"]))
def test_every_labelled_state_is_in_the_update_of_its_place(step, size: int, reduction: str):
    visits = [_credited(number, advantages) for number, advantages in enumerate(step)]
    batches = mini_batches(visits, size, reduction)
    labelled = [place for place, advantages in enumerate(step) if any(advantages)]
    assert [state.ids[0] for batch in batches for state in batch] == labelled
    # The n-th update has the labelled ones of the n-th `size` visits; updates without any are left out.
    assert [len(batch) for batch in batches] == [
        number
        for start in range(0, len(step), size)
        if (number := sum(place in labelled for place in range(start, start + size)))
    ]
    for batch in batches:
        for state in batch:
            assert state.advantages == step[state.ids[0]]
            assert np.array_equal(state.targets, _targets(state.advantages).log_probs, equal_nan=True)
        # Means: the weights of an update sum to 1, those without a label have none.
        assert sum(weight for state in batch for weight in state.weights) == pytest.approx(1)
        pairs = [pair for state in batch for pair in zip(state.weights, state.advantages, strict=True)]
        assert all((weight > 0) == (advantage != 0) for weight, advantage in pairs)


def test_weights_stay_with_their_tokens():
    step = [(1, 0), (0, 0, 0), (-1, 1, 0, 1)]
    visits = [_credited(number, advantages) for number, advantages in enumerate(step)]
    (batch,) = mini_batches(visits, 3, "state_mean")
    assert [state.weights for state in batch] == [(0.5, 0.0), pytest.approx((1 / 6, 1 / 6, 0, 1 / 6))]


def test_the_reference_is_asked_for_each_token_of_a_state_once():
    reference = ReferenceLogProbs()
    first, other = _visit(0, (5, 6)), _visit(9, (5,), problem="b")
    asked = [(first, StateTokens(first.ids, (5, 6))), (other, StateTokens(other.ids, (5,)))]
    assert reference.missing([first, other]) == asked
    reference.add(first, (5, 6), (-1.0, -2.0))
    again = _visit(0, (6, 7, 5))
    # Only the new tokens of a known state.
    assert reference.missing([first, again, other]) == [
        (again, StateTokens(first.ids, (7,))),
        (other, StateTokens(other.ids, (5,))),
    ]
    with pytest.raises(KeyError):
        reference.fill([again])
    reference.add(again, (7,), (-3.0,))
    reference.add(other, (5,), (-4.0,))
    reference.fill([again, other])
    assert (again.reference, other.reference) == ([-2.0, -3.0, -1.0], [-4.0])


def test_the_reference_tells_a_states_prompts_apart():
    reference = ReferenceLogProbs()
    first, other = _visit(0, (5,)), _visit(9, (5,))
    other.prompt = 1
    reference.add(first, (5,), (-1.0,))
    assert reference.missing([first, other]) == [(other, StateTokens(other.ids, (5,)))]
    reference.add(other, (5,), (-2.0,))
    reference.fill([first, other])
    assert (first.reference, other.reference) == ([-1.0], [-2.0])
