r"""Any set of questions and answers, from a file whose columns you name.

    python -m data_preprocess.math_file --name olympiad_bench --input olympiadbench.jsonl \
        --question question --answer final_answer --split test --local_save_dir outputs/data/math

Writes olympiad_bench.parquet. With --holdout_size 200 it also writes olympiad_bench_held_out.parquet with 200 questions
that are removed from the training file, even reworded.

A nested column is named with a dot (`extra.answer`), an entry of a list by its number (`messages.0.content`). The
question is a text, or a conversation whose last user message is used, or several concatenated columns (`--question Body
Question`; empty ones are skipped). The instructions of verl's examples, of DAPO's authors and ours are removed, and
--instruction (default: ours; "" for none) is appended. The answer is a text, a number or a list: the text after the
last "####", or the last `\boxed{}` of a solution, or all of it. Several entries are one answer if the row has
`is_multiple_answer: true`, as in OlympiadBench; otherwise the row is dropped.
"""

import argparse
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from data_preprocess.math.answer import read_answer
from data_preprocess.math.columns import value_at
from data_preprocess.math.command import add_common_arguments, check_sizes, prepare_or_exit
from data_preprocess.math.data import MathProblem, MathSet
from data_preprocess.math.source import question_text
from verl_ext.data.math_instructions import INSTRUCTION
from verl_ext.data.row_report import UnusableRow
from verl_ext.data.row_source import SUFFIXES, HubSource
from verl_ext.rewards.math_answer import FILE_PREFIX, judges

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def read(row: Mapping[str, Any], *, question: Sequence[str], answer: str) -> MathProblem:
    """The problem of a row.

    Args:
        row: Raw row.
        question: Columns of the question.
        answer: Column of the answer.

    Raises:
        UnusableRow: It has no question or no answer, or several, or an answer that cannot be checked.
    """
    texts = [question_text(value_at(row, column)) for column in question]
    if not any(texts):
        raise UnusableRow("no question")
    return MathProblem("\n".join(filter(None, texts)), read_answer(row, answer))


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet files, and print the reward function that they need."""
    parser = _parser()
    args = parser.parse_args(argv)
    check_sizes(parser, args)
    if not _NAME.fullmatch(args.name):
        parser.error(f"--name {args.name!r}: expected letters, digits, _, - and dots, as in olympiad_bench")
    if args.split == "test" and (args.holdout_size or args.max_rows or args.exclude_overlap):
        parser.error("--holdout_size, --max_rows and --exclude_overlap are for training files: drop --split test")
    source = args.data_source or FILE_PREFIX + args.name
    dataset = MathSet(
        args.name,
        {args.split: HubSource(args.input, args.hub_split or args.split)},
        read=functools.partial(read, question=args.question, answer=args.answer),
        held_out=(f"{args.name}_held_out", args.holdout_size) if args.holdout_size else None,
        data_source=source,
        instruction=args.instruction,
        columns=[*(("question", column) for column in args.question), ("answer", args.answer)],
    )
    prepare_or_exit(dataset, args)
    if not judges(source):
        print(
            f"data_source {source} has another reward by default. Of these answers it is\n"
            "  reward.custom_reward_function.path=pkg://verl_ext.rewards.math_answer "
            "reward.custom_reward_function.name=compute_score"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="name of the set, for NAME.parquet and the indices NAME/0 ………")
    parser.add_argument("--input", required=True, help=f"file ({', '.join(SUFFIXES)}) or hub name")
    parser.add_argument("--question", required=True, nargs="+", metavar="COLUMN", help="columns of the question")
    parser.add_argument("--answer", required=True, metavar="COLUMN", help="column of the answer")
    parser.add_argument("--split", choices=("train", "test"), default="train", help="test: repeats are kept")
    parser.add_argument("--hub_split", help="split of a set on the hub (default: --split)")
    parser.add_argument(
        "--data_source", help="verl's name for the set, by which metrics are grouped (default: math_file/NAME)"
    )
    parser.add_argument("--instruction", default=INSTRUCTION, help='after every question; "" for none')
    parser.add_argument("--holdout_size", type=int, help="questions to hold out as NAME_held_out.parquet")
    add_common_arguments(parser, has_train=True)
    return parser


if __name__ == "__main__":
    main()
