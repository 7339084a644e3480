"""The training split of MATH (competition problems), with its difficulty from 1 to 5 and its subject.

    python -m data_preprocess.math_train --input math_train.jsonl.gz --local_save_dir outputs/data/math

Writes math_train.parquet. Reads the set on the hub (`level`, `type`; the answer is the solution's last box) and files
with `answer` and `difficulty`, such as rllm's. With --solutions, the column golden_solution has the worked solutions,
which are on the hub only.
"""

from collections.abc import Sequence

from data_preprocess.math.command import run
from data_preprocess.math.data import MathSet
from verl_ext.data.row_source import HubSource

DATASET = MathSet("math_train", {"train": HubSource("DigitalLearningGmbH/MATH-lighteval", "train")}, has_solutions=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet file."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
