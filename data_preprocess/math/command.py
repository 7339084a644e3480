"""The command line of the scripts for mathematics data sets; see `data_preprocess.math.data`."""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from data_preprocess.ending import errors_in_one_line
from data_preprocess.math.columns import Columns, listed
from data_preprocess.math.data import NOT_DRAWN, Entry, MathSet, collect, to_rows
from data_preprocess.math.overlap import OverlapIndex, fingerprint
from data_preprocess.math.source import read_questions
from verl_ext.data.row_choice import draw
from verl_ext.data.row_report import print_counts, reasons
from verl_ext.data.row_source import SourceError, read_rows
from verl_ext.data.schema import write_parquet


@dataclass(frozen=True)
class Overlap:
    """How many questions of a test set a file repeats."""

    test_questions: int
    same_text: int
    reworded: int


def run(dataset: MathSet, description: str | None, argv: Sequence[str] | None = None) -> None:
    """Parse the arguments, write the parquet files, print the report; errors end the program with their message."""
    parser = _parser(dataset, description)
    args = parser.parse_args(argv)
    check_sizes(parser, args)
    prepare_or_exit(dataset, args)


def check_sizes(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the program if a number of rows is below 1."""
    for name in ("holdout_size", "validation_size", "max_rows"):
        if getattr(args, name, None) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")


def prepare_or_exit(dataset: MathSet, args: argparse.Namespace) -> None:
    """Same as `prepare`; errors end the program with their message."""
    with errors_in_one_line(args.local_save_dir):
        prepare(dataset, args)


def _parser(dataset: MathSet, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    splits = list(dataset.hub)
    parser.add_argument("--input", help=f"file or hub name (default: {dataset.hub[splits[0]].name} on the hub)")
    if len(splits) > 1:
        parser.add_argument(
            "--test_input", help="the same for the test split; without it none is written if --input is given"
        )
    if dataset.held_out:
        name, size = dataset.held_out
        parser.add_argument("--holdout_size", type=int, default=size, help=f"questions in {name}.parquet ({size})")
    if dataset.validation:
        name, size = dataset.validation
        parser.add_argument(
            "--validation_size", type=int, default=size, help=f"of these, questions in {name}.parquet, too ({size})"
        )
    if dataset.examples:
        most = len(dataset.examples)
        parser.add_argument(
            "--examples",
            type=int,
            default=most,
            choices=range(most + 1),
            help=f"worked examples before a question; 0: our instruction after it ({most})",
        )
    if dataset.has_solutions:
        parser.add_argument(
            "--solutions",
            action="store_true",
            help="add the worked solutions as column golden_solution, for golden redaction; rows without one go",
        )
    add_common_arguments(parser, has_train="train" in splits)
    return parser


def add_common_arguments(parser: argparse.ArgumentParser, *, has_train: bool) -> None:
    """Arguments of every script for a mathematics data set.

    Args:
        parser: Parser to extend.
        has_train: Whether there may be a training file, from which questions can be removed.
    """
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the parquet files")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws")
    if has_train:
        parser.add_argument("--max_rows", type=int, help="draw at most this many training rows")
        parser.add_argument(
            "--exclude_overlap",
            type=Path,
            nargs="+",
            default=[],
            metavar="FILE",
            help="test files (raw or parquet) whose questions are removed from the training file",
        )
    parser.add_argument(
        "--report_overlap",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="test files to only compare with",
    )


def prepare(dataset: MathSet, args: argparse.Namespace) -> None:
    """Write the requested files.

    Raises:
        SourceError: An input cannot be read, or has nothing to write.
    """
    if dataset.examples:
        dataset = replace(dataset, examples=dataset.examples[: args.examples])
    if dataset.has_solutions:
        dataset = replace(dataset, with_solutions=args.solutions)
    exclude = getattr(args, "exclude_overlap", [])
    tests = {str(path): OverlapIndex(read_questions(path)) for path in [*exclude, *args.report_overlap]}
    excluded = {str(path) for path in exclude}

    inputs = {"test": getattr(args, "test_input", None)} | {next(iter(dataset.hub)): args.input}
    given = [split for split in dataset.hub if inputs[split]] or list(dataset.hub)
    files: dict[str, list[Entry]] = {}  # test sets first, because the training set is compared with them
    counts: dict[str, Counter[str]] = {}
    for split in sorted(given):
        name, source = dataset.file_name(split), inputs[split] or dataset.hub[split].name
        columns = Columns(dataset.columns)
        files[name], counts[name] = collect(dataset, split, columns.watch(read_rows(source, dataset.hub[split])))
        columns.check(source)
        if not files[name]:
            raise SourceError(_nothing_usable(source, dataset, counts[name], columns.names))

    train = dataset.file_name("train") if "train" in given else None
    train_overlaps: dict[str, Overlap] = {}
    if train is not None:
        if dataset.held_out is not None:
            held_out = dataset.held_out[0]
            files[held_out], files[train] = _hold_out(files.pop(train), args.holdout_size, args.seed)
            counts[train]["held out as a test set"] = args.holdout_size
            excluded.add(held_out)  # our own test set must not be trained on, not even reworded
        own = {
            name: OverlapIndex(e.problem.question for e in entries) for name, entries in files.items() if name != train
        }
        files[train], train_overlaps = compare(files[train], tests | own, excluded, counts[train])
        if args.max_rows is not None and args.max_rows < len(files[train]):
            files[train], others = draw(files[train], args.max_rows, args.seed)
            counts[train][NOT_DRAWN] = len(others)
        if not files[train]:
            raise SourceError(f"every question is in a test set of --exclude_overlap ({reasons(counts[train])}).")
    if dataset.held_out is not None and dataset.validation is not None:
        held_out, validation = files[dataset.held_out[0]], dataset.validation[0]
        files[validation], others = draw(held_out, args.validation_size, args.seed)
        counts[validation] = Counter({"rows read": len(held_out), "not drawn (--validation_size)": len(others)})

    for name, entries in files.items():  # nothing is written before everything is checked
        path = args.local_save_dir / f"{name}.parquet"
        split = "train" if name == train else "test"
        overlaps = train_overlaps if name == train else compare(entries, tests, set(), Counter())[1]
        write_parquet(to_rows(dataset, split, entries), path)
        print(f"{path} ({split})")
        print_counts(counts.get(name, Counter({"rows read": len(entries)})), len(entries))
        _print_overlaps(overlaps, excluded if name == train else set())


def _nothing_usable(source: str, dataset: MathSet, counts: Counter[str], columns: Iterable[str]) -> str:
    if not counts["rows read"]:
        return f"{source}: the file has no rows. Download it again."
    options = dict.fromkeys(f"--{option}" for option, _ in dataset.columns)
    cure = f"Check {' and '.join(options)}." if options else f"Is it {dataset.name}?"
    return f"{source}: no row is usable ({reasons(counts)}). Its columns: {listed(columns)}. {cure}"


def _hold_out(entries: list[Entry], size: int, seed: int) -> tuple[list[Entry], list[Entry]]:
    if size >= len(entries):
        raise SourceError(
            f"--holdout_size {size} of {len(entries)} usable questions leaves none to train on. Lower it."
        )
    return draw(entries, size, seed)


def compare(
    entries: Sequence[Entry], tests: Mapping[str, OverlapIndex], excluded: Set[str], counts: Counter[str]
) -> tuple[list[Entry], dict[str, Overlap]]:
    """Compare questions with test sets.

    Args:
        entries: The questions.
        tests: Test sets by name.
        excluded: Names of the test sets whose questions must be removed.
        counts: Gets the number removed per test set.

    Returns:
        The remaining questions, and for each test set how much of it all questions repeat.
    """
    kept = []
    same: dict[str, set[int]] = {name: set() for name in tests}
    reworded: dict[str, set[int]] = {name: set() for name in tests}
    for entry in entries:
        mark = fingerprint(entry.problem.question)
        found = {name: hits for name, index in tests.items() if (hits := index.find(mark))}
        for name, hits in found.items():
            same[name] |= hits.same_text
            reworded[name] |= hits.reworded
        reason = next((name for name in found if name in excluded), None)
        if reason is None:
            kept.append(entry)
        else:
            counts[f"question of {reason}"] += 1
    return kept, {
        name: Overlap(len(index), len(same[name]), len(reworded[name] - same[name])) for name, index in tests.items()
    }


def _print_overlaps(overlaps: Mapping[str, Overlap], excluded: Set[str]) -> None:
    width = max(map(len, [*overlaps, "questions shared with"]))
    if overlaps:
        print(f"  {'questions shared with':<{width}}  {'of':>7}  {'same text':>9}  {'reworded':>8}")
    for name, overlap in overlaps.items():
        note = "  left out" if name in excluded and overlap.same_text + overlap.reworded else ""
        numbers = f"{overlap.test_questions:>7,}  {overlap.same_text:>9,}  {overlap.reworded:>8,}"
        print(f"  {name:<{width}}  {numbers}{note}")
