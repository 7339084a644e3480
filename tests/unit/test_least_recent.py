"""The least recently taken first, against a plain list."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.least_recent import LeastRecent


@given(st.data())
def test_it_is_a_list_whose_taken_numbers_go_to_the_end(data: st.DataObject):
    size = data.draw(st.integers(1, 12))
    plain = data.draw(st.permutations(range(size)))
    order = LeastRecent(np.array(plain))
    for _ in range(data.draw(st.integers(0, 20))):
        numbers = st.lists(st.integers(0, size - 1), unique=True)
        excluded = np.zeros(size, dtype=bool)
        excluded[data.draw(numbers)] = True
        count = data.draw(st.integers(0, size + 1))
        assert order.oldest(count, excluded).tolist() == [n for n in plain if not excluded[n]][:count]
        taken = data.draw(numbers)
        order.take(np.array(taken, dtype=np.int64))
        plain = [n for n in plain if n not in taken] + taken
        assert order.order().tolist() == plain


def test_numbers_beyond_the_first_part_of_the_queue_are_found():
    """The front is read in parts of 1,024; all of the first are excluded here."""
    order = LeastRecent(np.arange(5000))
    excluded = np.arange(5000) < 3000
    assert order.oldest(3, excluded).tolist() == [3000, 3001, 3002]
    order.take(np.arange(3000))
    assert order.oldest(2, excluded).tolist() == [3000, 3001]
    assert order.oldest(9, ~excluded).tolist() == list(range(9))


def test_outdated_entries_are_read_once():
    order = LeastRecent(np.arange(100_000))
    for start in range(0, 90_000, 1000):
        order.take(np.arange(start, start + 1000))
        assert order.oldest(1, np.zeros(100_000, dtype=bool)) == start + 1000
    assert order._head == 90_000


def test_only_an_order_of_all_numbers_will_do():
    for wrong in ([0, 0, 1], [1, 2], [-1, 0]):
        with pytest.raises(ValueError, match="every number below"):
            LeastRecent(np.array(wrong))
