"""Texts of mathematics data sets: comparing questions, and extracting answers. Pure functions.

Two questions count as the same when `same_text_key` gives the same key. It ignores differences that are invisible in
the typeset problem: letter case, all white space, `$`, `\\(`, `\\[`, LaTeX's spacing and sizing commands (`\\,`
`\\quad` `\\left` `\\displaystyle` …), `\\dfrac` and `\\tfrac` for `\\frac`, and Unicode's compatibility forms
(full-width digits …). Braces, operators and punctuation stay: `2^{n+1}` is not `2^{n}+1`.
"""

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal

from verl_ext.data.math_instructions import INSTRUCTION

# Commands that only move or size things. `(?<!\\)`: the second half of a line break `\\` starts no command.
INVISIBLE = re.compile(r"(?<!\\)\\(?:[,;:!>() \[\]]|(?:q?quad|displaystyle|textstyle|left|right)(?![a-z]))|[\s$~]+")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")
_PLAIN_INTEGER = re.compile(r"-?\d+")
_WHOLE_DECIMAL = re.compile(r"(-?\d+)\.0+")

# The shortest decimal form of an arbitrary double has 16 or 17 significant digits; only one in ten thousand has so few
# digits, so such a double was a round number before it was printed.
_ROUND_DIGITS = 12


def unify(text: str) -> str:
    """Lower case, compatibility forms and one kind of fraction: the first step of every comparison of questions."""
    return _FRACTION.sub(r"\\frac", unicodedata.normalize("NFKC", text).casefold())


def same_text_key(question: str) -> str:
    """Key that is equal for questions with only the differences in the module's docstring.

    Example:
        >>> same_text_key("What is $\\\\dfrac{1}{2}+ x$?") == same_text_key("what is \\\\(\\\\frac{1}{2} + x\\\\)?")
        True
    """
    return INVISIBLE.sub("", unify(question))


def with_instruction(question: str, instruction: str = INSTRUCTION) -> str:
    """The user message of a row; only the question if the instruction is empty."""
    return f"{question.strip()}\n{instruction}".strip()


def last_boxed(solution: str) -> str | None:
    r"""Content of the last `\boxed{…}` or `\fbox{…}` whose braces match, or None.

    Braces may nest; `\{` and `\}` are characters, not braces. `\boxed 7` without braces gives "7".

    Example:
        >>> last_boxed("so \\boxed{\\frac{1}{2}}.")
        '\\frac{1}{2}'
    """
    for start in reversed(list(re.finditer(r"\\(?:boxed|fbox)(?![A-Za-z])\s*", solution))):
        rest = solution[start.end() :]
        if not rest.startswith("{"):
            word = re.match(r"[^\s${}.,]+", rest)
            if word:
                return word.group()
            continue
        depth = 0
        for brace in re.finditer(r"\\.|[{}]", rest, re.S):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                return rest[1 : brace.start()].strip()
    return None


def answer_text(answer: object) -> str:
    """An answer as text; a whole number loses its decimal zeros (27.0 becomes "27"), anything else is unchanged.

    A backslash at the end, the rest of a LaTeX space, is not part of it.
    """
    if answer is None:
        return ""
    text = str(answer).strip().rstrip("\\").rstrip()
    whole = _WHOLE_DECIMAL.fullmatch(text)
    return whole.group(1) if whole else text


def integer_text(answer: object) -> str:
    """Same as `answer_text`, without the leading zeros of AIME's answer sheets ("025" becomes "25")."""
    text = answer_text(answer)
    return str(int(text)) if _PLAIN_INTEGER.fullmatch(text) else text


def has_matching_braces(answer: str) -> bool:
    r"""Whether an answer can be in `\boxed{}`: every brace has its partner; `\{` and `\}` are characters.

    Example:
        >>> has_matching_braces("\\frac{1}{2}"), has_matching_braces("\\frac{1}{2"), has_matching_braces("[0, \\}")
        (True, False, True)
    """
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", answer, re.S):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth < 0:
            return False
    return depth == 0


def is_float_artefact(answer: str) -> bool:
    """Whether an integer is a rounded double printed in full, so that its last digits are noise.

    True if the integer is exactly a double, and the shortest decimal number that rounds to this double is a different
    one with at most 12 significant digits.

    Example:
        >>> is_float_artefact("22099999999999998951424"), is_float_artefact("22100000000000000000000")
        (True, False)
    """
    if not _PLAIN_INTEGER.fullmatch(answer) or not 15 < len(answer) < 300:
        return False
    value = int(answer)
    shortest = Decimal(repr(float(value)))
    digits: Sequence[int] = shortest.normalize().as_tuple().digits
    return int(float(value)) == value and shortest != value and len(digits) <= _ROUND_DIGITS
