"""DAPO-Math-17k for training, and 1,000 of its questions held out as the test set dapo_1000.

    python -m data_preprocess.dapo_math_17k --input dapo_math_17k.jsonl.gz --local_save_dir outputs/data/math

Writes dapo_math_17k.parquet, dapo_1000.parquet, and dapo_1000_val.parquet with 100 questions of dapo_1000, for
validation during a run, with 32 samples per question. The set on the hub repeats every question about a hundred times
and wraps it in its own instruction: both are undone. The same seed holds out the same questions, independent of the
order of the rows and of --exclude_overlap.

The set has many questions twice in slightly different words, so about a fifth of a random test set would be trained on:
training questions that reword a held-out one are removed. It also has questions of AMC23 and MATH-500, most of them
reworded, which --exclude_overlap removes. `data_preprocess.math.overlap` defines the overlap.
"""

from collections.abc import Sequence

from data_preprocess.math.command import run
from data_preprocess.math.data import MathSet
from verl_ext.data.row_source import HubSource

DATASET = MathSet(
    "dapo_math_17k",
    {"train": HubSource("BytedTsinghua-SIA/DAPO-Math-17k", "train")},
    held_out=("dapo_1000", 1000),
    validation=("dapo_1000_val", 100),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet files."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
