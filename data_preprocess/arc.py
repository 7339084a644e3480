"""ARC-AGI-1 and ARC-AGI-2: tasks as prompts for a program, with their test pairs in a separate column.

    python -m data_preprocess.arc --local_save_dir outputs/data/arc --arc1_training FILE --arc1_evaluation FILE \\
        --arc2_training FILE --arc2_evaluation FILE --tokenizer MODEL --max_prompt_tokens 6000 --drop_overlap

Files are `{id: {train, test}}` in .json or .json.gz, or folders of <id>.json files. Writes one parquet file per input:
arc_agi_1_training.parquet and so on. The prompt has the instruction and every example (`verl_ext/arc/prompts.py`);
--grid_format and --test_inputs choose how it shows the tasks. Columns beyond verl's schema:

    prompt_ids   token ids of the rendered prompt with the assistant prefix that ends in `Observations:`; only with
                 --tokenizer
    test_pairs   JSON [{"input", "output"}] of the test pairs. Their outputs are in neither prompt nor ground truth

`reward_model.ground_truth` is JSON {"train": [{"input", "output"}]}: the pairs that a rollout's reward is computed
from. `extra_info` has `index` ("arc_agi_1/007bbfb7"), `split`, `task_id`, `num_cells` and `num_examples`.

Overlap: every two files are compared, by task id and by the pairs. With --drop_overlap, tasks of an evaluation file are
removed from training files, and ARC-AGI-1's from ARC-AGI-2's training file; evaluation files stay complete. Tasks are
compared before any limit of size.

--tasks id,id keeps only these tasks, in any of the files.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from data_preprocess.ending import errors_in_one_line
from verl_ext.arc.prompt_options import add_prompt_arguments, prompt_settings
from verl_ext.arc.prompts import DEFAULT, PromptSettings, SizeLimits, Tokenizer, encode_prompt, user_message
from verl_ext.data.arc_tasks import Pair, Task, TaskOverlap, find_overlap, read_tasks
from verl_ext.data.row_choice import draw
from verl_ext.data.row_report import print_counts, reasons
from verl_ext.data.row_source import SourceError
from verl_ext.data.schema import make_row, write_parquet

# Order of precedence: a shared task stays in the first file, but evaluation files lose nothing.
FILES = ("arc2_evaluation", "arc1_evaluation", "arc1_training", "arc2_training")


def data_source(file: str) -> str:
    """data_source of the rows of one of `FILES`: arc_agi_1 or arc_agi_2."""
    return f"arc_agi_{file[3]}"


def split_name(file: str) -> str:
    """training or evaluation."""
    return file.partition("_")[2]


def overlaps(collections: Mapping[str, Sequence[Task]]) -> dict[tuple[str, str], TaskOverlap]:
    """For every two collections, in the order of `FILES`, the tasks of the second that the first also has."""
    given = [name for name in FILES if name in collections]
    return {
        (winner, loser): find_overlap(collections[loser], collections[winner])
        for winner, loser in combinations(given, 2)
    }


def drop_overlap(
    collections: Mapping[str, Sequence[Task]], counts: Mapping[str, Counter[str]]
) -> dict[str, list[Task]]:
    """The collections without the training tasks that an earlier one of `FILES` has; `counts` gets the number
    removed."""
    found, kept = overlaps(collections), {name: list(tasks) for name, tasks in collections.items()}
    for (winner, loser), overlap in found.items():
        if split_name(loser) == "training":
            stay = [task for task in kept[loser] if task.id not in overlap.ids]
            if len(stay) < len(kept[loser]):
                counts[loser][f"also in {winner}"] += len(kept[loser]) - len(stay)
            kept[loser] = stay
    return kept


def keep_named(
    collections: Mapping[str, Sequence[Task]], names: Sequence[str], counts: Mapping[str, Counter[str]]
) -> dict[str, list[Task]]:
    """The collections with only the named tasks; `counts` gets the number removed.

    Raises:
        SourceError: A name is in no collection.
    """
    known = {task.id for tasks in collections.values() for task in tasks}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SourceError(
            f"--tasks: {', '.join(unknown)} not among the {len(known):,} tasks of the given files. Expected ids with "
            "commas between them."
        )
    kept = {file: [task for task in tasks if task.id in set(names)] for file, tasks in collections.items()}
    for file, tasks in collections.items():
        if len(kept[file]) < len(tasks):
            counts[file]["not in --tasks"] += len(tasks) - len(kept[file])
    return kept


def to_rows(
    file: str,
    tasks: Iterable[Task],
    limits: SizeLimits,
    tokenizer: Tokenizer | None,
    counts: Counter[str],
    prompt: PromptSettings = DEFAULT,
) -> list[dict[str, Any]]:
    """Rows of the schema; `counts` gets the number of tasks over each limit.

    Args:
        file: One of `FILES`.
        tasks: Tasks of that collection.
        limits: `max_prompt_tokens` is not checked without a tokenizer.
        tokenizer: None: no prompt ids.
        counts: Counts to update.
        prompt: How tasks are shown.
    """
    rows = []
    for task in tasks:
        # The size in cells is known, so large tasks are never tokenized.
        reason = limits.exceeded_by(task)
        ids = encode_prompt(task, tokenizer, prompt) if tokenizer is not None and reason is None else None
        reason = reason or limits.exceeded_by(task, ids)
        if reason is not None:
            counts[reason] += 1
            continue
        row = make_row(
            data_source(file),
            user_message(task, prompt),
            json.dumps({"train": _pairs(task.train)}),
            index=f"{data_source(file)}/{task.id}",
            split=split_name(file),
            ability="arc",
            extra_info={"task_id": task.id, "num_cells": task.num_cells, "num_examples": len(task.train)},
            test_pairs=json.dumps(_pairs(task.test)),
        )
        rows.append(row | ({"prompt_ids": ids} if ids is not None else {}))
    return rows


def _pairs(pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    return [{"input": pair.input, "output": pair.output} for pair in pairs]


def prepare(args: argparse.Namespace) -> None:
    """Write the requested files and print the report.

    Raises:
        SourceError: An input or the tokenizer cannot be read, or an input has no usable tasks.
    """
    given = {name: getattr(args, name) for name in FILES if getattr(args, name) is not None}
    collections: dict[str, Sequence[Task]] = {}
    counts: dict[str, Counter[str]] = {}
    for name, path in given.items():
        collections[name], counts[name] = read_tasks(path)
    found = overlaps(collections)
    if args.drop_overlap:
        collections = {**drop_overlap(collections, counts)}
    if args.tasks is not None:
        collections = {**keep_named(collections, args.tasks.split(","), counts)}
    tokenizer = _load_tokenizer(args.tokenizer) if args.tokenizer else None
    limits = SizeLimits(max_cells=args.max_cells, max_prompt_tokens=args.max_prompt_tokens)
    rows = {}
    for name, tasks in collections.items():
        within = to_rows(name, tasks, limits, tokenizer, counts[name], prompt_settings(args))
        if args.max_rows is not None and args.max_rows < len(within) and split_name(name) == "training":
            by_id = {row["extra_info"]["task_id"]: row for row in within}
            drawn, others = draw([task for task in tasks if task.id in by_id], args.max_rows, args.seed)
            within = [by_id[task.id] for task in drawn]
            counts[name]["not drawn (--max_rows)"] = len(others)
        if not within:
            raise SourceError(
                f"{given[name]}: no task is left ({reasons(counts[name])}). Raise the limits, or leave this file out."
            )
        rows[name] = within
    for name, within in rows.items():  # nothing is written before everything is checked
        path = args.local_save_dir / f"{data_source(name)}_{split_name(name)}.parquet"
        write_parquet(within, path)
        print(f"{path} ({split_name(name)})")
        print_counts(counts[name], len(within))
        if tokenizer is not None:
            lengths = sorted(len(row["prompt_ids"]) for row in within)
            print(f"  prompt tokens: {lengths[0]:,} to {lengths[-1]:,}, median {lengths[len(lengths) // 2]:,}")
    _print_overlaps(found, args.drop_overlap)


def _load_tokenizer(path: str) -> Tokenizer:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    # transformers raises errors of several libraries for a path without a tokenizer.
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        raise SourceError(
            f"{path}: no tokenizer found ({type(error).__name__}: {first}). Check --tokenizer."
        ) from error


def _print_overlaps(found: Mapping[tuple[str, str], TaskOverlap], is_dropped: bool) -> None:
    if found:
        print(f"tasks shared by {'':<33}{'same id':>9}{'same pairs, other id':>22}")
    for (winner, loser), overlap in found.items():
        is_left_out = is_dropped and split_name(loser) == "training" and overlap.ids
        note = f"  left out of {loser}" if is_left_out else ""
        names = f"{loser} and {winner}"
        print(f"  {names:<47}{len(overlap.same_id):>9,}{len(overlap.same_pairs):>22,}{note}")


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet files; errors end the program with their message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in sorted(FILES):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help="collection: .json, .json.gz or a folder")
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the parquet files")
    parser.add_argument("--tokenizer", help="folder or hub name of the model whose tokenizer makes prompt_ids")
    add_prompt_arguments(parser)
    parser.add_argument("--tasks", metavar="ID,ID", help="keep only these tasks")
    parser.add_argument("--max_cells", type=int, help="skip tasks with more cells in their examples")
    parser.add_argument("--max_prompt_tokens", type=int, help="skip tasks with longer prompts; needs --tokenizer")
    parser.add_argument("--drop_overlap", action="store_true", help="remove shared tasks from the training files")
    parser.add_argument("--max_rows", type=int, help="draw at most this many tasks per training file")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws")
    args = parser.parse_args(argv)
    if not any(getattr(args, name) for name in FILES):
        parser.error(f"give at least one of {', '.join(f'--{name}' for name in sorted(FILES))}")
    for name in ("max_cells", "max_prompt_tokens", "max_rows"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.max_prompt_tokens is not None and args.tokenizer is None:
        parser.error("--max_prompt_tokens counts tokens: also give --tokenizer, or use --max_cells")
    with errors_in_one_line(args.local_save_dir):
        prepare(args)


if __name__ == "__main__":
    main()
