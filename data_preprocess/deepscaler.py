"""DeepScaleR: 40,000 competition problems `{problem, answer[, solution]}`.

    python -m data_preprocess.deepscaler --input deepscaler.jsonl --local_save_dir outputs/data/math \\
        --exclude_overlap outputs/data/math/math500.parquet

Writes deepscaler.parquet.
"""

from collections.abc import Sequence

from data_preprocess.math.command import run
from data_preprocess.math.data import MathSet
from verl_ext.data.row_source import HubSource

DATASET = MathSet("deepscaler", {"train": HubSource("agentica-org/DeepScaleR-Preview-Dataset", "train")})


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet file."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
