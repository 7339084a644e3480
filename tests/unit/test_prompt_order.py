"""Rows of a checkpoint found again in today's data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.prompt_order import fingerprints, order_since, pack

identities = st.lists(st.integers(0, 10**9) | st.text(max_size=8), max_size=30, unique_by=str)


@given(identities, st.randoms(use_true_random=False))
def test_every_prompt_is_found_where_it_was(before, random):
    now = random.sample(before, len(before))
    order = order_since(pack(fingerprints(before)), fingerprints(now))
    assert [str(before[place]) for place in order] == [str(index) for index in now]


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ([0, 1, 2, "new"], "3 of its 4 prompts are among the 4 of the checkpoint"),
        ([0, 1, 2], "3 of its 3 prompts are among the 4 of the checkpoint"),
        ([0, 1, 2, 3, 4], "4 of its 5 prompts are among the 4 of the checkpoint"),
        ([], "0 of its 0 prompts are among the 4 of the checkpoint"),
    ],
)
def test_other_prompts_are_refused(now, message):
    with pytest.raises(ValueError, match=f"{message}.*Resume with them"):
        order_since(pack(fingerprints(range(4))), fingerprints(now))


def test_numbers_and_their_text_are_one_identity():
    assert np.array_equal(fingerprints([7, "b"]), fingerprints(["7", "b"]))
    assert len(set(fingerprints(range(1000)).tolist())) == 1000
