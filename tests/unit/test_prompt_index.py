"""The identity that is made for prompts: unique, and the same wherever the row stands."""

import json
import random
import subprocess
import sys

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.data.prompt_index import make_indices, prompt_indices

TEXTS = st.text(max_size=6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "data_source": st.sampled_from(["a", "b", None]),
            "prompt": st.lists(
                st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS}), min_size=1, max_size=2
            ),
            "reward_model": st.fixed_dictionaries({"ground_truth": st.integers(0, 2)}),
        }
    ),
    min_size=1,
    max_size=12,
)


def indices(rows, cuts=(), media=()):
    """The rows as one file, or cut into batches before these rows."""
    table = pa.Table.from_pylist(rows)
    ends = [*sorted({min(cut, len(rows)) for cut in cuts}), len(rows)]
    batches = [table.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    return make_indices(batches, "prompt", media)


def with_index(rows, found):
    """Rows with their index, in any order."""
    return sorted((index, json.dumps(row, sort_keys=True)) for row, index in zip(rows, found, strict=True))


@given(ROWS)
def test_every_row_has_its_own(rows):
    assert len(set(indices(rows))) == len(rows)


@given(ROWS, st.randoms(use_true_random=False))
def test_rows_keep_it_in_any_order(rows, chance: random.Random):
    shuffled = chance.sample(rows, len(rows))
    assert with_index(rows, indices(rows)) == with_index(shuffled, indices(shuffled))


@given(ROWS, st.lists(st.integers(0, 12)))
def test_it_does_not_depend_on_batches(rows, cuts):
    assert indices(rows, cuts) == indices(rows)


@given(ROWS, ROWS)
def test_rows_that_join_take_no_ones_away(rows, others):
    assert indices(rows + others)[: len(rows)] == indices(rows)


@given(ROWS)
def test_other_columns_do_not_matter(rows):
    more = [row | {"ability": "math", "extra_info": {"index": 3}} for row in rows]
    assert indices(more) == indices(rows)


def test_each_part_of_the_content_matters():
    row = {"data_source": "a", "prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": 1}}
    others = [
        {"data_source": "b"},
        {"prompt": [{"role": "user", "content": "y"}]},
        {"prompt": [{"role": "system", "content": "x"}]},
        {"reward_model": {"ground_truth": 2}},
        {"images": [{"bytes": b"1"}]},
        {"images": [{"bytes": b"2"}]},
    ]
    found = [indices([row | other], media=("images",))[0] for other in others]
    assert len({*found, indices([row])[0]}) == len(others) + 1


def test_rows_that_say_the_same_are_counted():
    row = {"prompt": [{"role": "user", "content": "x"}]}
    first, second, third = indices([row] * 3)
    assert (second, third) == (f"{first}-2", f"{first}-3")
    assert len(first) == 16


def test_fields_that_another_file_adds_do_not_matter():
    row = {"prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": {"a": 1}}}
    joined = [row, {"reward_model": {"ground_truth": {"b": 2}}, "prompt": [{"role": "user", "content": "y"}]}]
    assert indices(joined)[0] == indices([row])[0]


def test_another_process_makes_the_same():
    """It does not use Python's own hashes, which differ from process to process."""
    code = (
        "import pyarrow as pa; from verl_ext.data.prompt_index import make_indices; "
        "print(*make_indices([pa.table({'prompt': ['x', 'y', 'x']})], 'prompt', []))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    # Written down: runs that are resumed by a later version must find their prompts again.
    assert found == make_indices([pa.table({"prompt": ["x", "y", "x"]})], "prompt", [])
    assert found == ["6317290db4c213f6", "a972fbd9be4fcbf1", "6317290db4c213f6-2"]


class RowByRow(list):
    """A data set of a user's own, without a data frame."""


def test_a_data_set_of_ones_own_is_asked_row_by_row():
    assert prompt_indices(RowByRow([{"index": "a"}, {"index": 7}])) == ["a", 7]
