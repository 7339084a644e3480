"""Pool D: three data sources of equal share, one of which asks for a format that the base model rarely writes.

    sums         "453+812=" -> "5621"          least significant digit first, as all answers
    differences  "453-212=" -> "142"           as many digits as the first number, zeros at the end among them
    boxed        "453+812?" -> "[5621]"        anything without the brackets is wrong

The base model forgets about every other carry of a sum and every other borrow of a difference. Boxed sums it adds in
the same way, but leaves the brackets out nearly always: pass rates are near 0 there because of the format, easy sums
among them, and training on any of these prompts teaches it for all. Kinds, by the carries of the sum (of a difference,
its borrows):

    core      1-5 digits, at least one
    easy      1-3 digits, none
    hopeless  6-8 digits: longer than anything the base model has seen
"""

import numpy as np
from learning_tasks import Question

from data_preprocess.arithmetic import LENGTH_DECAY, Shares, answer, draw_pairs
from data_preprocess.arithmetic_model import sloppy_sum

SHARES = {
    "sums": Shares(hopeless=0.65, easy=0.25, core=0.10),
    "differences": Shares(hopeless=0.65, easy=0.25, core=0.10),
    "boxed": Shares(hopeless=0.70, easy=0.15, core=0.15),
}
# Learnable kinds. Easy boxed sums are initially as rarely right as core ones.
LEARNABLE = {"sums": ("core",), "differences": ("core",), "boxed": ("easy", "core")}
MAX_PROMPT, MAX_RESPONSE = 20, 12
MAX_DIGITS = 5


def difference(a: int, b: int, rng: np.random.Generator | None = None, drop_borrow: float = 0.0) -> str:
    """a - b with as many digits as a, least significant first, for a >= b.

    Args:
        a: Not smaller than b.
        b: At least 0.
        rng: Needed where borrows are dropped.
        drop_borrow: Probability that a digit does not hear of the borrow of the one before.

    Example:
        >>> difference(453, 448)
        '500'
    """
    digits, borrow = [], 0
    for position in range(len(str(a))):
        if borrow and drop_borrow and rng is not None:
            borrow = int(rng.random() >= drop_borrow)
        total = a // 10**position % 10 - b // 10**position % 10 - borrow
        digits.append(total % 10)
        borrow = int(total < 0)
    return "".join(map(str, digits))


def question_of(domain: str, kind: str, pair: tuple[int, int]) -> Question:
    """The prompt of a pair of numbers: for a difference, the result and the subtrahend."""
    a, b = pair
    if domain == "differences":
        a, b = a + b, b
        text, right = f"{a}-{b}=", difference(a, b)
    elif domain == "boxed":
        text, right = f"{a}+{b}?", f"[{answer(a, b)}]"
    else:
        text, right = f"{a}+{b}=", answer(a, b)
    return Question(text, right, kind, domain, {"digits_first": len(str(a)), "digits_second": len(str(b))})


def draw_pool(size: int, held_out: int, seed: int) -> tuple[list[Question], list[Question]]:
    """The pool in random order, and `held_out` other learnable prompts; each source has about a third of both."""
    rng = np.random.default_rng(seed)
    questions: list[Question] = []
    unseen: list[Question] = []
    for index, (domain, shares) in enumerate(SHARES.items()):
        count, count_unseen = ((total + index) // len(SHARES) for total in (size, held_out))
        counts, learnable = shares.counts(count), LEARNABLE[domain]
        for kind in counts:
            extra = 0
            if kind in learnable:
                extra = (count_unseen + learnable.index(kind)) // len(learnable)
            pairs = draw_pairs(kind, counts[kind] + extra, rng)
            # Draws are sorted by likelihood, and short prompts should reach both parts.
            mixed = [question_of(domain, kind, pairs[i]) for i in rng.permutation(len(pairs))]
            questions += mixed[: counts[kind]]
            unseen += mixed[counts[kind] :]
    return [questions[i] for i in rng.permutation(size)], unseen


def demonstration(drop_carry: float, right_format: float, rng: np.random.Generator) -> tuple[str, str]:
    """A prompt of any source and the sloppy answer to it, in the right format with a given probability."""
    lengths = np.arange(1, MAX_DIGITS + 1)
    weights = LENGTH_DECAY**lengths
    drawn = rng.choice(lengths, size=2, p=weights / weights.sum())
    a, b = rng.integers(np.where(drawn == 1, 0, 10 ** (drawn - 1)), 10**drawn).tolist()
    match rng.integers(3):
        case 0:
            return f"{a}+{b}=", sloppy_sum(a, b, drop_carry, rng)
        case 1:
            return f"{a + b}-{b}=", difference(a + b, b, rng, drop_carry)
        case _:
            text = sloppy_sum(a, b, drop_carry, rng)
            return f"{a}+{b}?", f"[{text}]" if rng.random() < right_format else text
