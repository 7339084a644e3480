"""GSM8K: grade-school word problems, 7,473 for training and 1,319 for testing.

    python -m data_preprocess.gsm8k --local_save_dir outputs/data/math
    python -m data_preprocess.gsm8k --input train.jsonl --test_input test.jsonl --local_save_dir outputs/data/math

Writes gsm8k.parquet and gsm8k_test.parquet. The ground truth is the text after `####`, without thousands separators.
With --solutions, the column golden_solution has the reasoning without its `<<3*4=12>>` annotations, and a last line
with the answer in a box, as the prompt asks for it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from data_preprocess.math.command import run
from data_preprocess.math.data import MathProblem, MathSet
from data_preprocess.math.source import question_of
from verl_ext.data.row_report import UnusableRow
from verl_ext.data.row_source import HubSource

HUB = "openai/gsm8k"
_ANNOTATION = re.compile(r"<<[^<>]*>>")


def read(row: Mapping[str, Any]) -> MathProblem:
    """The problem of a row `{question, answer: "reasoning #### 42"}`.

    Raises:
        UnusableRow: It has no question, or nothing after `####`.
    """
    question = question_of(row)
    if not question:
        raise UnusableRow("no question")
    reasoning, marker, answer = (row.get("answer") or "").rpartition("####")
    answer = answer.strip().replace(",", "")
    if not marker or not answer:
        raise UnusableRow("no answer after ####")
    solution = f"{_ANNOTATION.sub('', reasoning).rstrip()}\nThe answer is \\boxed{{{answer}}}.".strip()
    return MathProblem(question, answer, solution=solution)


DATASET = MathSet(
    "gsm8k",
    {"train": HubSource(HUB, "train", "main"), "test": HubSource(HUB, "test", "main")},
    read=read,
    has_solutions=True,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet files."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
