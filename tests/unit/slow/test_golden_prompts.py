"""Prompts and token ids: every example is shown twice, test outputs never, and ids are only cut and joined."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from verl_ext.arc.prompts import (
    ASSISTANT_PREFIX,
    INSTRUCTION,
    TEST_SENTENCE,
    PromptSettings,
    SizeLimits,
    encode_golden,
    encode_prompt,
    golden_text,
    open_turn,
    program,
    render_grid,
    rollout_program,
    state_ids,
    teacher_token,
    user_message,
)
from verl_ext.data.arc_tasks import Pair, Task

TASK = Task(
    "t",
    (Pair(((1, 2, 3), (4, 5, 6)), ((7,),)), Pair(((0,),), ((8, 8),))),
    (Pair(((9, 9, 9, 9),), ((3,), (3,), (3,))),),
)
SOURCE = (
    'def solve(input_grid):\n    """\n    Observations:\n    - One.\n    Procedure:\n    1. Do it.\n    """\n'
    "    result = [row[::-1] for row in input_grid]\n    return result\n"
)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def test_a_grid_is_shown_with_its_size_and_transposed():
    assert render_grid("Input", ((1, 2, 3), (4, 5, 6))) == (
        "Input (2 x 3):\n123\n456\nInput transposed (3 x 2):\n14\n25\n36"
    )
    assert render_grid("Input", ((1, 2, 3), (4, 5, 6)), " ") == (
        "Input (2 x 3):\n1 2 3\n4 5 6\nInput transposed (3 x 2):\n1 4\n2 5\n3 6"
    )


def test_every_example_is_in_the_prompt_and_no_test_pair():
    message = user_message(TASK)
    assert message.startswith(INSTRUCTION)
    for number, pair in enumerate(TASK.train, start=1):
        grids = f"{render_grid('Input', pair.input)}\n{render_grid('Output', pair.output)}"
        assert f"Example {number}\n{grids}\n" in message
    assert "Example 3" not in message
    assert "9999" not in message
    assert "Test" not in message
    assert message.endswith("\n")


def test_cells_stand_apart_on_request():
    message = user_message(TASK, PromptSettings(grid="spaced"))
    assert "Input (2 x 3):\n1 2 3\n4 5 6\n" in message
    assert message.replace(" ", "") == user_message(TASK).replace(" ", "")


@pytest.mark.parametrize(("grid", "row"), [("compact", "9999"), ("spaced", "9 9 9 9")])
def test_inputs_of_the_tests_are_shown_on_request_and_outputs_never(grid, row):
    plain, shown = (user_message(TASK, PromptSettings(grid=grid, test_inputs=given)) for given in (False, True))
    more = shown.removeprefix(plain)
    assert more == f"\n{TEST_SENTENCE}\nTest 1\nInput (1 x 4):\n{row}\nInput transposed (4 x 1):\n9\n9\n9\n9\n"


def test_another_form_of_the_prompt_has_other_ids(tokenizer):
    forms = [PromptSettings(grid=grid, test_inputs=given) for grid in ("compact", "spaced") for given in (False, True)]
    ids = [encode_prompt(TASK, tokenizer, form) for form in forms]
    assert [tokenizer.decode(own) for own in ids] == [user_message(TASK, form) + ASSISTANT_PREFIX for form in forms]
    assert encode_prompt(TASK, tokenizer) == ids[0]


def test_the_skeleton_is_valid_python_in_the_golden_form():
    skeleton = INSTRUCTION.partition("```python\n")[2].partition("```")[0]
    assert golden_text(skeleton)
    for word in ("Observations:", "Procedure:", "return result"):
        assert word in skeleton
    compile(skeleton, "skeleton", "exec")


def test_the_prompt_ends_in_the_assistants_observations(tokenizer):
    ids = encode_prompt(TASK, tokenizer)
    assert tokenizer.decode(ids) == user_message(TASK) + ASSISTANT_PREFIX
    assert ASSISTANT_PREFIX.endswith("Observations:")


def test_a_chat_template_opens_the_assistants_turn_before_the_prefix():
    tokenizer = build_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    text = tokenizer.decode(encode_prompt(TASK, tokenizer))
    message = user_message(TASK)
    assert text == f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n{ASSISTANT_PREFIX}"


def test_thinking_is_off_where_a_template_has_the_switch():
    tokenizer = build_tokenizer()
    # As in Qwen3: without the switch, the model would open a thought.
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}ANSWER "
        "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}{% endif %}"
    )
    assert open_turn("Q ", tokenizer) == "Q ANSWER <think></think>"
    tokenizer.chat_template = tokenizer.chat_template.replace("enable_thinking", "use_tools")
    assert open_turn("Q ", tokenizer) == "Q ANSWER "


def test_a_base_model_gets_plain_text_behind_its_begin_of_text_token():
    class BaseModelTokenizer:
        chat_template = None
        bos_token_id = 1

        def __call__(self, text, add_special_tokens=True):
            ids = [2 + byte for byte in text.encode()]
            return {"input_ids": [1, *ids, 2000] if add_special_tokens else ids}

    text = (user_message(TASK) + ASSISTANT_PREFIX).encode()
    # No end-of-text token at the end, though this tokenizer would add one.
    assert encode_prompt(TASK, BaseModelTokenizer()) == [1, *(2 + byte for byte in text)]  # pyright: ignore[reportArgumentType]


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_a_state_is_the_golden_solution_without_its_last_k_tokens(data):
    prompt = data.draw(st.lists(st.integers(0, 99), max_size=5))
    golden = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=8))
    k = data.draw(st.integers(1, len(golden)))
    state = state_ids(prompt, golden, k)
    assert [*state, teacher_token(golden, k), *golden[len(golden) - k + 1 :]] == prompt + golden
    assert len(state) == len(prompt) + len(golden) - k


def test_the_golden_solution_can_be_put_together_from_every_state(tokenizer):
    golden = encode_golden(SOURCE, tokenizer)
    for k in range(1, len(golden) + 1):
        rest = golden[len(golden) - k + 1 :]
        ended = [*rest, *tokenizer("\n```\nMore words.", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        for rollout in (rest, ended):
            assert rollout_program(golden, k, teacher_token(golden, k), rollout, tokenizer) == SOURCE


def test_a_program_ends_at_the_fence():
    assert program(golden_text(SOURCE) + "\n```\nprint(1)") == SOURCE
    assert program(golden_text(SOURCE)) == SOURCE


def test_golden_solutions_of_another_form_are_refused(tokenizer):
    with pytest.raises(ValueError, match="must begin with"):
        golden_text(SOURCE.replace("input_grid", "grid"))
    with pytest.raises(ValueError, match="must not contain ```"):
        golden_text(SOURCE + "# ```")
    with pytest.raises(ValueError, match="continue after"):
        golden_text(SOURCE[: SOURCE.index("Observations:") + len("Observations:")] + "\n  ")

    class Lossy:
        def __call__(self, text, add_special_tokens=True):
            return tokenizer(text.lower(), add_special_tokens=add_special_tokens)

        def decode(self, *args, **kwargs):
            return tokenizer.decode(*args, **kwargs)

    with pytest.raises(ValueError, match="does not give a golden solution's text back"):
        encode_golden(SOURCE, Lossy())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("k", [0, 4, -1])
def test_k_out_of_range_is_refused(k):
    for use in (lambda: state_ids([], [1, 2, 3], k), lambda: teacher_token([1, 2, 3], k)):
        with pytest.raises(ValueError, match="k must be from 1 to the 3 golden tokens"):
            use()


def test_size_limits_name_what_is_too_large():
    assert TASK.num_cells == 6 + 1 + 1 + 2
    assert SizeLimits().exceeded_by(TASK, range(10**6), range(10**6)) is None
    assert SizeLimits(max_cells=10).exceeded_by(TASK) is None
    assert SizeLimits(max_cells=9).exceeded_by(TASK) == "more than 9 cells in the examples"
    assert SizeLimits(max_prompt_tokens=3).exceeded_by(TASK, [0] * 3) is None
    assert SizeLimits(max_prompt_tokens=3).exceeded_by(TASK, [0] * 4) == "more than 3 prompt tokens"
    assert SizeLimits(max_golden_tokens=3).exceeded_by(TASK, [], [0] * 4) == "more than 3 golden tokens"
    for name in ("max_cells", "max_prompt_tokens", "max_golden_tokens"):
        with pytest.raises(ValueError, match=f"{name} must be an int >= 1 or null, got 0"):
            SizeLimits(**{name: 0})
