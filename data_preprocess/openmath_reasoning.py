"""OpenMathReasoning: problems from the AoPS forums, each once; its solutions are not used.

    python -m data_preprocess.openmath_reasoning --local_save_dir outputs/data/math --max_rows 50000

Writes openmath_reasoning.parquet. Only problems whose answer was found in the forum are kept: otherwise
`expected_answer` is the majority vote of a model, and a reward based on it would teach that model's mistakes; converted
proofs are also dropped. The set has about ten solutions per problem, which count as repeats of the question.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from data_preprocess.math.command import run
from data_preprocess.math.data import MathProblem, MathSet, read_problem
from verl_ext.data.row_report import UnusableRow
from verl_ext.data.row_source import HubSource

_UNUSABLE = {"no_answer_extracted": "answer is a majority vote", "converted_proof": "converted proof"}


def read(row: Mapping[str, Any]) -> MathProblem:
    """The problem of a row `{problem, expected_answer, problem_type, generated_solution, …}`.

    Without `expected_answer` the answer is the last box of `generated_solution`.

    Raises:
        UnusableRow: See the module's docstring.
    """
    reason = _UNUSABLE.get(str(row.get("problem_type") or ""))
    if reason:
        raise UnusableRow(reason)
    if "expected_answer" not in row and "solution" not in row:
        row = {**row, "solution": row.get("generated_solution")}
    return read_problem(row)


DATASET = MathSet("openmath_reasoning", {"train": HubSource("nvidia/OpenMathReasoning", "cot")}, read=read)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet file."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
