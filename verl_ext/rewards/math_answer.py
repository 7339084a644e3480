r"""Reward of math problems: the final answer is mathematically equal to the ground truth, or it is wrong.

In a run's configuration:

    reward.custom_reward_function.path: pkg://verl_ext.rewards.math_answer
    reward.custom_reward_function.name: compute_score

Which text is the answer: the content of the last `\boxed{...}` (or `\fbox{...}`); without any box, the text after the
last "Answer:" up to the end of its line, the form that DAPO's prompt asks for (verl's `math_dapo` also reads both). A
number anywhere else in the response does not count, nor does a last box that is never closed.

How it is compared, cheapest first:

1. Text and integers, here: equal up to spaces and notation is right, and two different integers are wrong.
2. Guards, here: an answer that is absurdly long, deeply nested or a tower of exponents is wrong without being parsed.
3. Everything else by verl's own math-verify function (`verl.utils.reward_score.math_verify`) in a child process with
   time and memory limits; `math_pool` explains why the processes are not verl's.

Limitations, found with the answers of DeepScaleR, Minerva and OlympiadBench: 10% is neither 10 nor 0.1; units are
ignored (3 cm^3 is 3 cm^4); numbers with the same double are equal (1/2004! and 1/2005!), as are, next to a fraction,
E_1 and E_2, which math-verify takes for Euler's number; of alternatives in a ground truth ("a OR b") it may compare
only the first.

Works in any thread: of a Ray actor, of an executor, or the main one.
"""

import functools
import math
import os
import re
from collections.abc import Mapping
from typing import Any

from verl_ext.rewards.math_pool import MathPool

# data_source of the data sets whose answers are compared this way.
DATA_SOURCES = frozenset(
    {
        "aime24",
        "aime25",
        "amc23",
        "dapo_math_17k",
        "deepscaler",
        "gsm8k",
        "math500",
        "math_train",
        "numina_math",
        "openmath_reasoning",
        "svamp",
    }
)
# Prefix of the data_source of a set that `data_preprocess.math_file` made from a user's file.
FILE_PREFIX = "math_file/"

# The longest answer of MATH-500 has 53 characters and is nested 2 deep.
MAX_ANSWER_CHARACTERS = 1000
MAX_GROUND_TRUTH_CHARACTERS = 4000
MAX_NESTING = 30
# Maximum digits of the value of a power like 2^{2^{10}}.
MAX_POWER_DIGITS = 10_000
# Range, from the end of the response, in which "Answer:" is searched.
_TAIL_CHARACTERS = 3000

_BOXES = ("\\boxed{", "\\fbox{")
_ANSWER_LINE = re.compile(r"answer\s*:([^\n]*)", re.IGNORECASE)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NUMERIC_TOWER = re.compile(r"\d+(?:\.\d+)?(?:[\s)}]*(?:\^|\*\*)[\s({-]*\d+)+")
_INTEGER = re.compile(r"([-+]?)0*(\d+)", re.ASCII)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_IN_BASE = re.compile(r"(-?[0-9A-Z]+)_\{?(\d+)\}?", re.ASCII)
_SPELLINGS = (
    (re.compile(r"\\(?:left|right)(?![a-zA-Z])"), ""),
    (re.compile(r"\\[dt]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"(?<!\\)\\!"), ""),
    (re.compile(r"(?<!\\)\\[,;: ]"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<!\\)\\%"), "%"),
)
# A space between letters or digits can mean something (2 1/3 is not 21/3); any other does not.
_SPACES = re.compile(r"(?<![^\W_])\s+|\s+(?![^\W_])")


def judges(data_source: str) -> bool:
    """Whether rows of a data source are judged here unless a run names another reward."""
    return data_source in DATA_SOURCES or data_source.startswith(FILE_PREFIX)


def extract_answer(response: str) -> str:
    r"""The final answer's text, at most `MAX_ANSWER_CHARACTERS + 1` characters; "" if there is none.

    Linear in the response's length.

    Example:
        >>> extract_answer(r"First \boxed{7}. No, it is $\boxed{\frac{1}{2}}$.")
        '\\frac{1}{2}'
        >>> extract_answer("So it is 5.\n\n**Answer:** $12$.")
        '12'
    """
    start = max(response.rfind(box) + len(box) if box in response else -1 for box in _BOXES)
    if start >= 0:
        return _until_closed(response, start).strip()
    lines = _ANSWER_LINE.findall(response[-_TAIL_CHARACTERS:])
    return trim(lines[-1].strip().strip("*"))[: MAX_ANSWER_CHARACTERS + 1] if lines else ""


def _until_closed(text: str, start: int) -> str:
    r"""The text from `start` to the brace that closes the box. `\{` and `\}` are characters and open or close
    nothing."""
    depth, position = 1, start
    end = min(len(text), start + MAX_ANSWER_CHARACTERS + 1)
    while position < end:
        character = text[position]
        if character == "\\":
            position += 1
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return text[start:position]
        position += 1
    return text[start:end] if end < len(text) else ""


def trim(answer: str) -> str:
    """Strip the dollar signs, the brackets of inline math, and the full stop or lone backslash at its end."""
    answer = _without_end(answer)
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = answer[len(opening) : len(answer) - len(closing)]
        if len(answer) > len(opening + closing) and answer == opening + inner + closing and "$" not in inner:
            return _without_end(inner)
    return answer


def _without_end(answer: str) -> str:
    # The backslash is the rest of a LaTeX space.
    return answer.strip().rstrip(".").strip().rstrip("\\").strip()


def normalize(answer: str) -> str:
    r"""The answer in a normal form, for comparing texts: equal results mean equal answers, not conversely.

    Example:
        >>> normalize(r"$\dfrac {1}{2}$.")
        '\\frac{1}{2}'
        >>> normalize("1{,}234"), normalize("007"), normalize("12.000"), normalize("28\\% "), normalize("28 %")
        ('1234', '7', '12', '28%', '28%')
    """
    answer = trim(answer)
    for pattern, replacement in _SPELLINGS:
        answer = pattern.sub(replacement, answer)
    if _THOUSANDS.fullmatch(answer):  # before spaces go: "1, 234" is a list of two numbers
        answer = answer.replace(",", "")
    answer = _SPACES.sub("", answer)
    whole, dot, decimals = answer.partition(".")
    if dot and decimals and not decimals.strip("0"):
        answer = whole
    integer = _INTEGER.fullmatch(answer)
    if integer:
        sign, digits = integer.groups()
        return digits if sign != "-" or digits == "0" else f"-{digits}"
    return answer


def is_integer(normalized: str) -> bool:
    """Whether a result of `normalize` is an integer, so that comparing it as text decides both ways."""
    return _INTEGER.fullmatch(normalized) is not None


def refusal(answer: str) -> str:
    r"""Why an answer is not worth parsing; "" if it is.

    Example:
        >>> refusal(r"9^{9^{9^9}}")
        'a power with more than 10000 digits'
        >>> refusal(r"2^{2^{10}}")
        ''
    """
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return f"more than {MAX_ANSWER_CHARACTERS} characters"
    if _CONTROL_CHARACTERS.search(answer):
        return "control characters"
    depth = deepest = 0
    for character in answer:
        depth += (character in "{([") - (character in "})]")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        return f"nested more than {MAX_NESTING} deep"
    for tower in _NUMERIC_TOWER.findall(answer):
        if _power_digits([float(number) for number in re.findall(r"\d+(?:\.\d+)?", tower)]) > MAX_POWER_DIGITS:
            return f"a power with more than {MAX_POWER_DIGITS} digits"
    return ""


def _power_digits(tower: list[float]) -> float:
    """Decimal digits of a^(b^(c^...)), at least 0; infinite if even their number is too large for a float."""
    *bases, exponent = tower
    try:
        for base in reversed(bases[1:]):
            exponent = base**exponent
    except OverflowError:
        return math.inf if bases[0] > 1 else 0.0
    return max(exponent * math.log10(bases[0]), 0.0) if bases[0] > 0 else 0.0


_pool = MathPool()


def _forget_pool() -> None:
    global _pool
    _pool = MathPool()


# A forked child shares its parent's pipes, and two readers would get each other's replies.
os.register_at_fork(after_in_child=_forget_pool)


# Samples of a prompt often have the same answer.
@functools.lru_cache(maxsize=16384)
def verify(ground_truth: str, answer: str) -> float:
    """1.0 if verl's math-verify finds them equal, else 0.0; see `math_pool`. Skips the cheap path and the guards."""
    return _pool.verify(ground_truth, answer)


def is_correct(answer: str, ground_truth: str) -> bool:
    """Whether an extracted answer is equal to the ground truth.

    Raises:
        SignalError: If the processes that compare cannot be started.
    """
    normalized, gold = normalize(answer[: MAX_ANSWER_CHARACTERS + 1]), normalize(ground_truth)
    if not normalized or not gold:
        return False
    if normalized == gold:
        return True
    if is_integer(normalized) and is_integer(gold):
        return False
    in_base, gold_in_base = _IN_BASE.fullmatch(normalized), _IN_BASE.fullmatch(gold)
    if in_base and gold_in_base:  # math-verify takes 52_8 and 52_9 for the same
        return in_base.groups() == gold_in_base.groups()
    if refusal(answer) or len(gold) > MAX_GROUND_TRUTH_CHARACTERS:
        return False
    return verify(trim(ground_truth), trim(answer)) >= 1.0


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    r"""Score one response; in bounded time for any response.

    Args:
        data_source: Unused; part of verl's interface.
        solution_str: The response as text.
        ground_truth: The answer: LaTeX or a plain number, without a box.
        extra_info: Unused; part of verl's interface.
        **kwargs: Unused; other arguments that verl passes to reward functions.

    Returns:
        `score` and `acc`, both 1.0 or 0.0, and `pred`, the text of the final answer (at most `MAX_ANSWER_CHARACTERS`
        characters, "" if there is none).

    Raises:
        SignalError: If the processes that compare cannot be started. Scoring 0 instead would train on noise.

    Example:
        >>> compute_score("math500", r"The sum is $\boxed{1{,}024}$.", "1024")
        {'score': 1.0, 'acc': 1.0, 'pred': '1{,}024'}
    """
    answer = extract_answer(solution_str)
    score = float(is_correct(answer, ground_truth))
    return {"score": score, "acc": score, "pred": answer[:MAX_ANSWER_CHARACTERS]}
