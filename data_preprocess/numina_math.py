"""NuminaMath: problems from many competitions and textbooks; those whose answer a rule can check.

    python -m data_preprocess.numina_math --local_save_dir outputs/data/math --max_rows 50000

Writes numina_math.parquet. In NuminaMath-1.5 (the default), rows are dropped if flagged as proof, multiple choice or
invalid, or if the answer is "proof" or "notfound". NuminaMath-CoT has no such fields: there the answer is the last box
of the solution, and rows without one, mostly proofs, are dropped.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from data_preprocess.math.command import run
from data_preprocess.math.data import MathProblem, MathSet, read_problem
from verl_ext.data.row_report import UnusableRow
from verl_ext.data.row_source import HubSource

_NO_ANSWER = {"proof": "proof", "notfound": "no answer"}


def read(row: Mapping[str, Any]) -> MathProblem:
    """The problem of a row of NuminaMath-1.5 or NuminaMath-CoT.

    Raises:
        UnusableRow: See the module's docstring.
    """
    kind = str(row.get("question_type") or "").casefold()
    if kind == "proof":
        raise UnusableRow("proof")
    if kind == "mcq":
        raise UnusableRow("multiple choice")
    for field in ("problem_is_valid", "solution_is_valid"):
        # The values are words: "Yes", "No", "Incomplete", "Problem not solved" …
        if str(row.get(field) or "yes").casefold() not in ("yes", "true"):
            raise UnusableRow(f"not {field}")
    answer = str(row.get("answer") or "").strip().casefold()
    if answer in _NO_ANSWER:
        raise UnusableRow(_NO_ANSWER[answer])
    return read_problem(row)


DATASET = MathSet("numina_math", {"train": HubSource("AI-MO/NuminaMath-1.5", "train")}, read=read, has_solutions=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet file."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
