"""How a task is shown to the model, and how states are built from token ids. Pure.

The user message has the instruction with the function's skeleton and every example, each grid with its size and also
transposed (columns become lines of text, so that vertical patterns are as close together as horizontal ones). It never
has the outputs of test pairs, and their inputs only on request. The assistant's answer begins with a prefix that ends
in `Observations:`, and a golden solution is its continuation:

    prompt ids   ids of (rendered chat + assistant prefix), encoded as one text
    golden ids   ids of the golden solution's source after `Observations:`, encoded as a separate text
    state        prompt ids + golden ids[:-k]                     teacher token: golden ids[-k]

From then on ids are only cut and joined, never decoded and encoded again: a text has many tokenizations, and the policy
must see the same one. A rollout's program is the decoded text of golden ids[:-k] + action + rollout after the prefix,
up to the closing fence.

The prompt's last token ends at `Observations:`. This keeps tokenizers from merging the colon with the following line
break, in states and golden solutions alike.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from pydantic import Field

from verl_ext.core.settings import Settings
from verl_ext.data.arc_tasks import Grid, Task

FENCE = "```"
CODE_PREFIX = 'def solve(input_grid):\n    """\n    Observations:'
ASSISTANT_PREFIX = f"{FENCE}python\n{CODE_PREFIX}"

INSTRUCTION = f'''\
Below are examples of a transformation: each input grid is turned into its output grid by the same rule. A grid is a \
list of rows, and each cell is a colour from 0 to 9. Every grid is shown with its size (rows x columns) and a second \
time transposed.

Find the rule, and write it as one Python function in exactly this form:

{FENCE}python
def solve(input_grid):
    """
    Observations:
    - What the examples have in common, each line true for all of them.
    Procedure:
    1. What the code does, step by step.
    """
    # code that follows the procedure
    return result
{FENCE}

`input_grid` and `result` are lists of lists of int. The function must map every example input to its output, and do \
the same for inputs that are not shown: compute the output, never write it down. Use nothing but the standard library.
'''


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used."""

    chat_template: Any

    @property
    def bos_token_id(self) -> int | None:
        """The begin-of-text token; None if there is none."""
        ...

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> Any: ...

    def apply_chat_template(
        self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool, **kwargs: Any
    ) -> Any:
        """As in transformers."""
        ...

    def decode(
        self, token_ids: Any, *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool | None = None
    ) -> Any:
        """As in transformers."""
        ...


class PromptSettings(Settings):
    """How a task is shown. A model trained on one form does not know others."""

    grid: Literal["compact", "spaced"] = "compact"
    """Format of a row's cells. compact: 070, usually one token per cell. spaced: 0 7 0, nearly two per cell."""

    test_inputs: bool = False
    """Also show the inputs of the test pairs; their outputs are never shown."""


DEFAULT = PromptSettings()

_BETWEEN = {"compact": "", "spaced": " "}

TEST_SENTENCE = "The function must map these inputs as well; their outputs are not shown.\n"


class SizeLimits(Settings):
    """Size limits of tasks; None: no limit."""

    max_cells: int | None = Field(default=None, ge=1)
    """Maximum number of cells in all example grids of a task; larger tasks are left out. null: no limit."""

    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of the prompt, including the beginning of the answer. null: no limit."""

    max_golden_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of the golden solution. null: no limit."""

    def exceeded_by(
        self, task: Task | None, prompt_ids: Sequence[int] | None = None, golden_ids: Sequence[int] | None = None
    ) -> str | None:
        """The limit that a task exceeds, as text for a report; None if there is none. None is not checked."""
        for what, size, limit in (
            ("cells in the examples", 0 if task is None else task.num_cells, self.max_cells),
            ("prompt tokens", len(prompt_ids or ()), self.max_prompt_tokens),
            ("golden tokens", len(golden_ids or ()), self.max_golden_tokens),
        ):
            if limit is not None and size > limit:
                return f"more than {limit} {what}"
        return None


# ------------------------------ text ------------------------------


def render_grid(name: str, grid: Grid, between: str = "") -> str:
    """A grid with its size, and the same transposed; `between` separates the cells of a row."""
    rows, columns = len(grid), len(grid[0])
    return (
        f"{name} ({rows} x {columns}):\n{_lines(grid, between)}\n"
        f"{name} transposed ({columns} x {rows}):\n{_lines(tuple(zip(*grid, strict=True)), between)}"
    )


def user_message(task: Task, settings: PromptSettings = DEFAULT) -> str:
    """The instruction and every example; ends in a line break, because a base model's answer follows directly."""
    between = _BETWEEN[settings.grid]
    parts = [INSTRUCTION]
    for number, pair in enumerate(task.train, start=1):
        grids = (render_grid("Input", pair.input, between), render_grid("Output", pair.output, between))
        parts.append("\n".join([f"Example {number}", *grids, ""]))
    if settings.test_inputs:
        parts.append(TEST_SENTENCE)
        for number, pair in enumerate(task.test, start=1):
            parts.append(f"Test {number}\n{render_grid('Input', pair.input, between)}\n")
    return "\n".join(parts)


def golden_text(source: str) -> str:
    """The part of a golden solution's source after the assistant prefix, without trailing white space.

    Raises:
        ValueError: if the source does not begin with the prefix, or contains the fence, where a program would be cut.
    """
    if not source.startswith(CODE_PREFIX):
        raise ValueError(f"a golden solution must begin with {CODE_PREFIX!r}, got {source[: len(CODE_PREFIX)]!r}")
    text = source[len(CODE_PREFIX) :].rstrip()
    if not text:
        raise ValueError("a golden solution must continue after `Observations:`, got nothing")
    if FENCE in text:
        raise ValueError(f"a golden solution must not contain {FENCE}, which ends a program: remove it")
    return text


def program(answer: str) -> str:
    """The source of `solve` in an answer; `answer` is the text after the assistant prefix."""
    return CODE_PREFIX + answer.partition(FENCE)[0].rstrip() + "\n"


def _lines(grid: Grid, between: str) -> str:
    return "\n".join(between.join(map(str, row)) for row in grid)


# ------------------------------ token ids ------------------------------


def encode_prompt(task: Task, tokenizer: Tokenizer, settings: PromptSettings = DEFAULT) -> list[int]:
    """Prompt ids of a task, with the assistant prefix.

    A tokenizer with a chat template renders the user message and opens the assistant's turn; one without (a base
    model's) gets the plain text, after a begin-of-text token if the tokenizer uses one for plain text.
    """
    if tokenizer.chat_template is None:
        text = user_message(task, settings) + ASSISTANT_PREFIX
        first = list(tokenizer("a")["input_ids"])[:1]
        start = first if first and first[0] == tokenizer.bos_token_id else []
        return [*start, *_encode(text, tokenizer)]
    return _encode(open_turn(user_message(task, settings), tokenizer) + ASSISTANT_PREFIX, tokenizer)


def open_turn(message: str, tokenizer: Tokenizer) -> str:
    """A user message in the tokenizer's chat template, with the assistant's turn opened.

    Thinking is switched off if the template allows it, because the answer begins with a program.
    """
    switch = {"enable_thinking": False} if "enable_thinking" in str(tokenizer.chat_template) else {}
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=True, **switch
    )


def encode_golden(source: str, tokenizer: Tokenizer) -> list[int]:
    """Golden ids of a golden solution's source.

    Raises:
        ValueError: see `golden_text`; also if the ids do not decode to the text, so that rollouts would be judged by a
            program other than the golden one.
    """
    text = golden_text(source)
    ids = _encode(text, tokenizer)
    decoded = decode_answer(ids, tokenizer)
    if decoded != text:
        raise ValueError(
            f"the tokenizer does not give a golden solution's text back: {text[:40]!r} becomes {decoded[:40]!r}. Use "
            "one that keeps line breaks and leading spaces"
        )
    return ids


def state_ids(prompt_ids: Sequence[int], golden_ids: Sequence[int], k: int) -> list[int]:
    """The state with the last k golden tokens hidden.

    Raises:
        ValueError: if k is not from 1 to the golden tokens.
    """
    _check_k(golden_ids, k)
    return [*prompt_ids, *golden_ids[: len(golden_ids) - k]]


def teacher_token(golden_ids: Sequence[int], k: int) -> int:
    """The first hidden golden token; errors as in `state_ids`."""
    _check_k(golden_ids, k)
    return golden_ids[-k]


def rollout_program(
    golden_ids: Sequence[int], k: int, action: int, rollout_ids: Sequence[int], tokenizer: Tokenizer
) -> str:
    """The program of a rollout that followed `action` in a state; errors as in `state_ids`."""
    _check_k(golden_ids, k)
    return program(decode_answer([*golden_ids[: len(golden_ids) - k], action, *rollout_ids], tokenizer))


def decode_answer(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Text of ids, exactly as written, without special tokens (an end-of-text token is not part of a program)."""
    return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _check_k(golden_ids: Sequence[int], k: int) -> None:
    if not 1 <= k <= len(golden_ids):
        raise ValueError(f"k must be from 1 to the {len(golden_ids)} golden tokens, got {k}")
