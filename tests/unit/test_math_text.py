"""Questions that are the same, boxes, answers, and reworded copies."""

import functools
import importlib.util
import string
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_preprocess.math.overlap import OverlapIndex, fingerprint
from data_preprocess.math.text import (
    answer_text,
    integer_text,
    is_float_artefact,
    last_boxed,
    same_text_key,
    with_instruction,
)
from verl_ext.data.math_instructions import INSTRUCTION, strip_instructions


@pytest.mark.parametrize(
    "variant",
    [
        "what is $\\frac{1}{2} + x$?",
        "What is \\( \\frac{1}{2}+x \\)?",
        "What is\n\\[\\dfrac{1}{2}\\, +\\;x\\] ?",
        "What is $\\displaystyle\\tfrac{1}{2}+\\quad x$?",
        "What is $\\frac{\uff11}{2}+x$\uff1f",
    ],
)
def test_what_a_reader_does_not_see_makes_no_difference(variant: str):
    assert same_text_key(variant) == same_text_key("What is $\\frac{1}{2}+x$?")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("$2^{n+1}$", "$2^{n}+1$"),
        ("$x+y$", "$x-y$"),
        ("$\\leftarrow$", "$\\rightarrow$"),
        ("Find $x$.", "Find $y$."),
        ("$\\{1, 2\\}$", "$(1, 2)$"),
    ],
)
def test_what_a_reader_sees_makes_a_difference(one: str, other: str):
    assert same_text_key(one) != same_text_key(other)


@given(st.lists(st.sampled_from(["x", "\\frac", "{1}", "+", "Find", "42", "\\{"])), st.data())
def test_space_and_dollars_may_be_anywhere_between_tokens(tokens: list[str], data: st.DataObject):
    gaps = st.sampled_from([" ", "\n", "$", " $ ", "\\, ", "~", "\\quad "])
    spaced = "".join(token + data.draw(gaps) for token in tokens)
    assert same_text_key(spaced) == same_text_key(" ".join(tokens))


@given(st.text(string.ascii_letters + string.digits + "$+ ", min_size=1).map(str.strip).filter(bool))
def test_an_instruction_that_was_added_can_be_taken_off(question: str):
    assert strip_instructions(with_instruction(question)) == question


def test_the_instruction_of_dapos_authors_is_taken_off():
    prompt = (
        "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
        "$Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is 1+1?\n\n"
        'Remember to put your answer on its own line after "Answer:".'
    )
    assert strip_instructions(prompt) == "What is 1+1?"


VERLS_INSTRUCTIONS = [
    # examples/data_preprocess/math_dataset.py, gsm8k.py and gsm8k_tool_agent_loop.py of verl.
    "Let's think step by step and output the final answer within \\boxed{}.",
    'Let\'s think step by step and output the final answer after "####".',
    "Let's think step by step and output the final answer after `####`.",
]


@pytest.mark.parametrize("instruction", VERLS_INSTRUCTIONS)
def test_the_instructions_of_verls_examples_are_taken_off_and_not_doubled(instruction: str):
    assert strip_instructions(f"What is 1+1? {instruction}") == "What is 1+1?"
    assert strip_instructions(f"What is 1+1? {instruction}".replace("'", "\u2019")) == "What is 1+1?"
    twice = with_instruction(f"What is 1+1? {instruction}\n")
    assert with_instruction(strip_instructions(twice)) == f"What is 1+1?\n{INSTRUCTION}"


def test_words_of_an_instruction_inside_a_question_stay():
    question = "Let's think step by step and output the final answer within \\boxed{} squares. How many are there?"
    assert strip_instructions(question) == question


BOXES = [
    ("so \\boxed{7}.", "7"),
    ("\\boxed{1} and \\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{1}{\\sqrt{2}}"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
    ("\\boxed{\\left\\{x}\\right.", "\\left\\{x"),
    ("\\boxed {5}", "5"),
    ("is $\\boxed 7$.", "7"),
    ("\\fbox{3}", "3"),
    ("\\boxed{1} then \\boxed{cut of", "1"),
    ("\\boxedquestion{1}", None),
    ("nothing", None),
    ("\\boxed{\\boxed{2}}", "2"),
]


@pytest.mark.parametrize(("solution", "answer"), BOXES)
def test_the_last_box_with_matching_braces_is_the_answer(solution: str, answer: str | None):
    assert last_boxed(solution) == answer


BALANCED = st.recursive(
    st.text("ab1+ ", max_size=4),
    lambda inner: st.lists(inner.map(lambda t: "{" + t + "}") | inner, max_size=3).map("".join),
    max_leaves=8,
)


@functools.cache
def verls_math_reward() -> ModuleType:
    """Only the one file: importing the package takes seconds."""
    package = importlib.util.find_spec("verl")
    assert package is not None
    assert package.submodule_search_locations is not None
    path = Path(package.submodule_search_locations[0]) / "utils/reward_score/math_reward.py"
    spec = importlib.util.spec_from_file_location("verls_math_reward", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@settings(deadline=None)
@given(BALANCED.map(str.strip), st.text("ab\\ $.", max_size=5))
def test_nested_braces_are_read_as_verl_reads_them(content: str, after: str):
    verl = verls_math_reward()
    solution = "first \\boxed{0}, then \\boxed{" + content + "} " + after
    assert last_boxed(solution) == content == verl.remove_boxed(verl.last_boxed_only_string(solution)).strip()


@pytest.mark.parametrize(
    ("answer", "text"), [(27.0, "27"), (3, "3"), (" 1/2 ", "1/2"), ("2.50", "2.50"), (None, ""), ("-4.00", "-4")]
)
def test_answers_are_text(answer: object, text: str):
    assert answer_text(answer) == text


def test_contest_answers_lose_their_leading_zeros():
    assert [integer_text(a) for a in ("025", "000", 70.0, "x+025")] == ["25", "0", "70", "x+025"]


@pytest.mark.parametrize(("answer", "text"), [("185\\", "185"), ("3 \\ ", "3"), ("\\pi", "\\pi")])
def test_the_rest_of_a_latex_space_is_no_part_of_an_answer(answer: str, text: str):
    assert answer_text(answer) == text


@given(st.integers(-(10**14), 10**14))
def test_integers_that_a_double_holds_are_no_artefacts(value: int):
    assert not is_float_artefact(str(value))


@given(st.integers(16, 60), st.integers(1, 10**9))
def test_exactly_the_printed_doubles_that_miss_their_round_number_are_artefacts(zeros: int, lead: int):
    number = lead * 10**zeros
    assert not is_float_artefact(str(number))
    assert is_float_artefact(str(int(float(number)))) == (int(float(number)) != number)


def test_large_powers_of_two_are_no_artefacts():
    assert not any(is_float_artefact(str(2**n)) for n in range(54, 200))


CHOICE = "Janet rolls a standard $6$-sided die $4$ times and keeps a running total of the numbers she rolls. "
TEST = CHOICE + "What is the probability that her total equals $3$? The answer is $\\frac{m}{n}$. What is $m+n$?"


def _hits(question: str) -> tuple[int, int]:
    hits = OverlapIndex(["What is $7\\cdot 8$?", TEST]).find(fingerprint(question))
    return len(hits.same_text), len(hits.reworded)


def test_a_copy_is_found_by_its_text():
    assert _hits(TEST.replace("$", "").upper()) == (1, 0)


def test_another_form_of_the_answer_is_a_reworded_copy():
    changed = CHOICE.replace("$", "") + "Find the probability that her total equals 3. Please give the value of k + m."
    assert _hits(changed) == (0, 1)


def test_other_numbers_are_another_question():
    assert _hits(TEST.replace("$4$", "$5$")) == (0, 0)


def test_a_shared_answer_form_alone_is_no_copy():
    other = (
        "A frog has 6 legs, 4 eyes and 3 ears. What is the probability? The answer is $\\frac{m}{n}$. What is $m+n$?"
    )
    assert _hits(other) == (0, 0)


def test_the_instruction_is_not_part_of_a_question():
    assert INSTRUCTION not in strip_instructions(with_instruction(TEST))
