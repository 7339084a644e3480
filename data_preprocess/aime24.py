"""AIME 2024, a test set of 30 problems whose answers are integers from 0 to 999.

    python -m data_preprocess.aime24 --input aime24.jsonl --local_save_dir outputs/data/math

Writes aime24.parquet.
"""

from collections.abc import Sequence

from data_preprocess.math.command import run
from data_preprocess.math.data import MathSet, read_integer_problem
from verl_ext.data.row_source import HubSource

DATASET = MathSet("aime24", {"test": HubSource("HuggingFaceH4/aime_2024", "train")}, read=read_integer_problem)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet file."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
