"""MATH-500, the test set of 500 MATH problems, with difficulty and subject.

    python -m data_preprocess.math500 --input math500.jsonl --local_save_dir outputs/data/math

Writes math500.parquet.
"""

from collections.abc import Sequence

from data_preprocess.math.command import run
from data_preprocess.math.data import MathSet
from verl_ext.data.row_source import HubSource

DATASET = MathSet("math500", {"test": HubSource("HuggingFaceH4/MATH-500", "test")})


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet file."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
