"""Check the data files of a run before training on them, with a run's default requirements.

    python -m data_preprocess.validate train.parquet [more.jsonl ...] [--prompt_key question]

Files of one call are treated as used together: check the files of `data.train_files` in one call and the files of
`data.val_files` in another. It accepts the formats that verl reads: parquet, JSON and JSON lines. If `extra_info.index`
does not identify the prompts, a run makes an index for each; this command reports it. Exit code 0 if there are no
problems, otherwise 1.
"""

import argparse
import sys
from collections.abc import Sequence

from verl_ext.data.file_checks import check_files
from verl_ext.data.schema import DataFileError
from verl_ext.data.schema_rules import FileRules


def main(argv: Sequence[str] | None = None) -> int:
    """Print rows and verdict of the files named in `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="files that are used together")
    parser.add_argument("--prompt_key", default="prompt", help="column of the messages, as data.prompt_key")
    args = parser.parse_args(argv)
    try:
        report = check_files(args.files, FileRules(prompt_key=args.prompt_key))
    except DataFileError as error:
        print(error, file=sys.stderr)
        return 1
    for path, rows in report.rows.items():
        print(f"{path}: {rows} rows")
    for note in report.notes:
        print(f"note: {note}")
    if report.index_gap is None:
        print(f"OK: {report.num_rows} rows can be trained on, every extra_info.index is unique")
    else:
        print(f"{report.index_gap}.")
        print(f"OK: {report.num_rows} rows can be trained on; an index will be made for each from its content")
    return 0


if __name__ == "__main__":
    sys.exit(main())
