"""Pool T: sums of 2 to 12 numbers, worked out term by term, so that responses have a long tail.

    "3+48+25=" -> "15+25=67"        51 is 3 + 48 and 76 the sum; answers have their least significant digit first

The running total is written after each term, and the next term in front of it. Most responses have a few tokens, some
about 80, and slow prompts tend to be hard ones: a base model that forgets three carries of five solves a chain with c
carries with probability .4^c. The kinds, as that model sees them:

    core      1-4 carries                             sometimes right
    easy      none                                    nearly always right, long ones too
    hopeless  a sixth: 6-12 terms, 7 or more carries  practically never right, until carries are trusted
              the rest: two numbers of 6-8 digits     never right: longer than anything the base model has seen
"""

from collections.abc import Sequence

import numpy as np
from learning_tasks import Question, draw_different

from data_preprocess.arithmetic import LENGTH_DECAY, Shares, num_carries
from data_preprocess.arithmetic_model import sloppy_sum

SHARES = Shares(hopeless=0.67, easy=0.25, core=0.08)
MAX_TERMS, MAX_DIGITS = 12, 3
MAX_PROMPT = MAX_TERMS * (MAX_DIGITS + 1)
MAX_RESPONSE = 84  # longer ones are not drawn

LONG_CHAINS = 1 / 6
# A chain is this factor less likely with each further term. The hopeless ones start at six terms.
TERMS_DECAY = 0.6
_TERMS = {"core": range(2, MAX_TERMS + 1), "easy": range(2, MAX_TERMS + 1), "long": range(6, MAX_TERMS + 1)}
_CARRIES = {"core": range(1, 5), "easy": range(1), "long": range(7, 100)}


def prompt_of(terms: Sequence[int]) -> str:
    """The prompt of a sum.

    Example:
        >>> prompt_of([3, 48, 25])
        '3+48+25='
    """
    return "+".join(map(str, terms)) + "="


def worked_out(terms: Sequence[int], rng: np.random.Generator | None = None, drop_carry: float = 0.0) -> str:
    """The totals of the first two, three, ... terms, with the term that is added in front of each but the first.

    Args:
        terms: At least two.
        rng: Needed where carries are dropped.
        drop_carry: Probability that an incoming carry is lost; the rest continues from the wrong total.

    Example:
        >>> worked_out([3, 48, 25])
        '15+25=67'
    """
    rng = rng or np.random.default_rng()
    text = total = sloppy_sum(terms[0], terms[1], drop_carry, rng)
    for term in terms[2:]:
        total = sloppy_sum(int(total[::-1]), term, drop_carry, rng)
        text += f"+{term}={total}"
    return text


def carries_of(terms: Sequence[int]) -> int:
    """Carries in all additions from left to right."""
    totals = np.cumsum(terms).tolist()
    return sum(num_carries(total, term) for total, term in zip(totals[:-1], terms[1:], strict=True))


def kind_of(terms: Sequence[int]) -> str | None:
    """The kind of a chain, or None for one that the pool does not contain."""
    carries = carries_of(terms)
    if max(terms) >= 10**MAX_DIGITS:
        return "hopeless"
    if carries in _CARRIES["long"]:
        return "hopeless" if len(terms) in _TERMS["long"] else None
    if carries in _CARRIES["core"]:
        return "core"
    return "easy" if carries in _CARRIES["easy"] else None


def draw_num_terms(choices: range, rng: np.random.Generator) -> int:
    """Geometric on `choices`."""
    weights = TERMS_DECAY ** np.arange(len(choices))
    return int(rng.choice(choices, p=weights / weights.sum()))


def draw_terms(num_terms: int, rng: np.random.Generator) -> list[int]:
    """Numbers of 1-3 digits, none of them larger than a digit that is drawn first: small digits carry rarely."""
    lengths = np.arange(1, MAX_DIGITS + 1)
    weights = LENGTH_DECAY**lengths
    largest = rng.integers(1, 10)
    digits_TL = rng.integers(0, largest + 1, size=(num_terms, MAX_DIGITS))  # terms, digits
    chosen = rng.choice(lengths, size=num_terms, p=weights / weights.sum())
    return [int("".join(map(str, digits[:length]))) for digits, length in zip(digits_TL.tolist(), chosen, strict=True)]


def draw_chain(kind: str, rng: np.random.Generator) -> list[int]:
    """Terms of a kind; of the hopeless ones, a share of `LONG_CHAINS` are long chains, the others of long numbers."""
    if kind == "hopeless":
        if rng.random() >= LONG_CHAINS:
            digits = rng.integers(6, 9, size=2)
            return rng.integers(10 ** (digits - 1), 10**digits).tolist()
        kind = "long"
    num_terms = draw_num_terms(_TERMS[kind], rng)
    while True:
        terms = draw_terms(num_terms, rng)
        if carries_of(terms) in _CARRIES[kind] and len(worked_out(terms)) < MAX_RESPONSE:
            return terms


def _question(kind: str, rng: np.random.Generator) -> Question:
    terms = draw_chain(kind, rng)
    digits = [len(str(term)) for term in terms]
    fields = {"terms": len(terms), "digits_longest": max(digits), "digits_total": sum(digits)}
    return Question(prompt_of(terms), worked_out(terms), kind, "chains", fields)


def draw_pool(size: int, held_out: int, seed: int) -> tuple[list[Question], list[Question]]:
    """The pool in random order, and other core prompts."""
    rng = np.random.default_rng(seed)
    known: set[str] = set()
    questions = [
        question
        for kind, count in SHARES.counts(size).items()
        for question in draw_different(lambda kind=kind: _question(kind, rng), count, known)
    ]
    unseen = draw_different(lambda: _question("core", rng), held_out, known)
    return [questions[i] for i in rng.permutation(size)], unseen


def demonstration(drop_carry: float, rng: np.random.Generator) -> tuple[str, str]:
    """A chain of numbers of up to three digits, and its solution by a demonstrator who loses carries."""
    terms = draw_terms(draw_num_terms(range(2, MAX_TERMS + 1), rng), rng)
    return prompt_of(terms), worked_out(terms, rng, drop_carry)
