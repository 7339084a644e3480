"""AMC 2023, a test set of 40 problems whose answers are integers (the choices are left out).

    python -m data_preprocess.amc23 --input amc23.jsonl --local_save_dir outputs/data/math

Writes amc23.parquet.
"""

from collections.abc import Sequence

from data_preprocess.math.command import run
from data_preprocess.math.data import MathSet, read_integer_problem
from verl_ext.data.row_source import HubSource

DATASET = MathSet("amc23", {"test": HubSource("math-ai/amc23", "test")}, read=read_integer_problem)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet file."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
