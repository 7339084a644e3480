"""Check parquet files against verl's RL schema before training on them.

    python -m data_preprocess.validate train.parquet [more.parquet ...]

Files of one call are taken as used together: `extra_info.index` must be unique across all of them. Check the files of
`data.train_files` in one call and the files of `data.val_files` in another. Exit code 0 when all is well, 1 otherwise.
"""

import argparse
import sys
from collections.abc import Sequence

from verl_ext.data.schema import ParquetError, check_parquets


def main(argv: Sequence[str] | None = None) -> int:
    """Print rows and verdict of the files named in `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="parquet files that are used together")
    args = parser.parse_args(argv)
    try:
        report = check_parquets(args.files)
    except ParquetError as error:
        print(error, file=sys.stderr)
        return 1
    for path, rows in report.rows.items():
        print(f"{path}: {rows} rows")
    print(f"OK: {report.num_rows} rows follow the schema, every extra_info.index is unique")
    return 0


if __name__ == "__main__":
    sys.exit(main())
