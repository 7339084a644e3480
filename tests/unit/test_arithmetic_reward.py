"""The arithmetic reward pays for the exact answer and for nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.rewards.arithmetic import compute_score


@pytest.mark.parametrize("completion", ["5621", "5621<|endoftext|>", "5621\n", "5621\n1+1=2", "5621<|endoftext|>99"])
def test_the_answer_up_to_its_end_is_right(completion):
    assert compute_score("arithmetic", completion, "5621") == {"score": 1.0, "acc": 1.0, "pred": "5621"}


@pytest.mark.parametrize(
    "completion",
    ["", "562", "56210", " 5621", "5621 ", "05621", "5621.", "\n5621", "1265", "=5621", "5621=", "5621<|im_end|>"],
)
def test_anything_before_or_after_the_answer_is_wrong(completion):
    assert compute_score("arithmetic", completion, "5621")["score"] == 0.0


@given(st.text(), st.text(alphabet="0123456789", min_size=1))
def test_score_is_one_exactly_when_the_compared_text_is_the_answer(completion, truth):
    result = compute_score("arithmetic", completion, truth)
    assert result["score"] == result["acc"] == float(result["pred"] == truth)
    assert completion.startswith(result["pred"])


def test_verls_further_arguments_are_accepted():
    result = compute_score(
        data_source="arithmetic",
        solution_str="2",
        ground_truth="2",
        extra_info={"index": 0},
        reward_router_address=None,
    )
    assert result["score"] == 1.0
