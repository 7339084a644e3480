"""What SmolLM2 answers to SVAMP's held-out problems: the form of the examples, the calculation, the answer.

    python tests/benchmarks/svamp_answers.py outputs/benchmarks/svamp/untrained \
        outputs/benchmarks/svamp/runs/*/evaluation

Reads the samples of `recipe.fast_dapo.evaluate`, as `svamp_runs.py` leaves them, and prints a Markdown table. The
reward reads only the answer, and 66 of the 300 answers are 1, 2 or 3: a model that always says 2 is right 28 times.
So the table has the share of right answers to the other problems, and of answers whose calculation, by its true
value, is right.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet

HELD_OUT = Path(__file__).resolve().parents[2] / "outputs/data/svamp/svamp_test.parquet"
FREQUENT = frozenset({"1", "2", "3"})
CALCULATION = re.compile(r"(\d+) ([-+*/]) (\d+) = \S+\n\\boxed\{[^}\n]*\}\s*\Z")


@dataclass(frozen=True)
class Answer:
    """One answer to one problem.

    Attributes:
        truth: The problem's answer.
        response: The model's words.
        pred: The answer read from it; empty if there is none.
        correct: By the reward.
    """

    truth: str
    response: str
    pred: str
    correct: bool


@dataclass(frozen=True)
class Shares:
    """Of all answers, from 0 to 1, unless said otherwise.

    Attributes:
        correct: Right ones.
        correct_frequent: Of answers to problems whose answer is 1, 2 or 3.
        correct_other: Of answers to the other problems.
        in_form: With the examples' form: a calculation of two numbers, and the answer in a box.
        right_calculation: In this form, and the calculation's true value is the problem's answer.
        most_frequent: The most frequent answer.
        most_frequent_share: And its share.
    """

    correct: float
    correct_frequent: float
    correct_other: float
    in_form: float
    right_calculation: float
    most_frequent: str
    most_frequent_share: float


def value(response: str) -> Fraction | None:
    """The true value of the calculation of a response in the examples' form, whatever its writer made of it."""
    found = CALCULATION.match(response)
    if found is None:
        return None
    left, right = Fraction(found[1]), Fraction(found[3])
    if found[2] == "/":
        return left / right if right else None
    return {"+": left + right, "-": left - right, "*": left * right}[found[2]]


def share(events: Iterable[bool]) -> float:
    """Of what is true; nan of nothing."""
    seen = list(events)
    return sum(seen) / len(seen) if seen else float("nan")


def count(answers: Sequence[Answer]) -> Shares:
    """Of at least one answer."""
    values = [value(answer.response) for answer in answers]
    ((most_frequent, times),) = Counter(answer.pred for answer in answers).most_common(1)
    return Shares(
        correct=share(answer.correct for answer in answers),
        correct_frequent=share(answer.correct for answer in answers if answer.truth in FREQUENT),
        correct_other=share(answer.correct for answer in answers if answer.truth not in FREQUENT),
        in_form=share(CALCULATION.match(answer.response) is not None for answer in answers),
        right_calculation=share(found == Fraction(answer.truth) for found, answer in zip(values, answers, strict=True)),
        most_frequent=most_frequent,
        most_frequent_share=times / len(answers),
    )


def read_answers(evaluation: Path, data: Path) -> list[Answer]:
    """Of an evaluation's samples.

    Args:
        evaluation: The folder.
        data: The Parquet file that was evaluated.

    Raises:
        ValueError: There are none.
    """
    truths = [row["ground_truth"] for row in pyarrow.parquet.read_table(data).column("reward_model").to_pylist()]
    answers = []
    for line in (evaluation / "samples.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)  # the first has the settings
        for sample in record.get("samples", []):
            fields = (sample["response"], sample["pred"], sample["correct"])
            answers.append(Answer(truths[record["row"]], *fields))
    if not answers:
        raise ValueError(f"{evaluation}: expected samples of an evaluation, found none")
    return answers


def render(rows: Sequence[tuple[str, Shares]]) -> str:
    """A Markdown table."""
    lines = [
        "| | right | of answers 1, 2, 3 | of others | in the examples' form | right calculation | most frequent |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, shares in rows:
        figures = (shares.correct, shares.correct_frequent, shares.correct_other)
        cells = [name, *(f"{figure:.3f}" for figure in figures)]
        cells += [f"{100 * figure:.0f} %" for figure in (shares.in_form, shares.right_calculation)]
        cells.append(f"{shares.most_frequent or 'none'}, {100 * shares.most_frequent_share:.0f} %")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluations", nargs="+", type=Path, help="folders with samples.jsonl")
    parser.add_argument("--data", type=Path, default=HELD_OUT)
    args = parser.parse_args(argv)
    try:
        rows = [
            (folder.parent.name if folder.name == "evaluation" else folder.name, count(read_answers(folder, args.data)))
            for folder in args.evaluations
        ]
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(render(rows))


if __name__ == "__main__":
    main()
