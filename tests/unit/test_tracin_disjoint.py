"""Validation prompts that are trained on are found, whatever their form, and refused with examples."""

import pytest

from recipe.tracin.method.disjoint import ValidationOverlapError, check_disjoint
from verl_ext.data.math_instructions import INSTRUCTION
from verl_ext.data.prompt_identity import text_identity


def test_disjoint_sets_pass():
    check_disjoint(["a", "b"], ["c", "d"])
    check_disjoint([("gsm8k", 0)], [("math", 0)])
    check_disjoint([], [])


def test_shared_prompts_are_named_with_what_to_do():
    texts = [f"What is {i} + 1?" for i in range(20)]
    train = [text_identity([{"role": "user", "content": text.upper() + " "}]) for text in texts]
    validation = [text_identity(text) for text in ["Something else?", *texts[3:10]]]
    with pytest.raises(ValidationOverlapError) as caught:
        check_disjoint(train, validation, ["Something else?", *texts[3:10]])
    for words in ("7 of 8", "validation row 1 is training row 3: 'What is 3 + 1?'", "and 2 more", "Remove these rows",
                  "strategy=in_batch"):  # fmt: skip
        assert words in str(caught.value)
    with pytest.raises(ValidationOverlapError, match=r"\('gsm8k', 4\)"):
        check_disjoint([("gsm8k", 4)], [("gsm8k", 4)])


def test_identities_ignore_form_and_nothing_else():
    assert text_identity("\uff21 b\n c") == text_identity([{"role": "user", "content": "a  B C "}])
    assert text_identity("a bc") != text_identity("ab c")
    assert text_identity("1 - 2") != text_identity("1 + 2")


def test_instructions_of_mathematics_are_no_part_of_a_prompt():
    verls = 'Let\'s think step by step and output the final answer after "####".'
    assert text_identity([{"role": "user", "content": f"1+1? {verls}"}]) == text_identity(f"1+1?\n{INSTRUCTION}")
    assert text_identity("1+1? Be brief.") != text_identity("1+1?")
