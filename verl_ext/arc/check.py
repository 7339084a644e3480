"""Checks the golden solutions: form, order, hard-coded outputs, and every pair.

    python -m recipe.golden_redaction.golden check \\
        --task-file arc-agi-1_training.json.gz --fresh arc-gen_fresh_pairs.jsonl.gz

Without `--task-file` and `--fresh`, only the text is checked. The exit status is 1 if anything is wrong.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from verl_ext.arc.form import Size, form_problems, hard_coded, measure
from verl_ext.arc.order import LEVELS
from verl_ext.arc.prompts import Tokenizer, encode_golden
from verl_ext.arc.run import PairResult, run_solutions
from verl_ext.arc.solutions import GOLDEN, GoldenError, read_pairs, read_solution, solution_names
from verl_ext.data.arc_tasks import Pair

KINDS = ("train", "test", "fresh")


@dataclass(frozen=True)
class Report:
    """The report on one solution.

    Attributes:
        task: Task id.
        level: From 1 (easy), 0 if the order does not have it.
        problems: Problems of form, order and hard-coding, then of the pairs, each with the pair's name; empty if there
            are none.
        solved: Pairs that were solved, by kind.
        pairs: Pairs that were run, by kind.
        size: Size of the text; None if it is not valid Python.
        tokens: Number of golden tokens, which redaction hides, with the given tokenizer; None without one.
    """

    task: str
    level: int
    problems: tuple[str, ...]
    solved: dict[str, int]
    pairs: dict[str, int]
    size: Size | None
    tokens: int | None


def check_solution(
    task: str,
    source: str,
    pairs: Mapping[str, Pair] = MappingProxyType({}),
    results: Sequence[PairResult] = (),
    tokenizer: Tokenizer | None = None,
) -> Report:
    """The report on a single solution, without its order.

    Args:
        task: Task id.
        source: Text of the solution.
        pairs: Pairs that it must solve, by name; empty to check only the text.
        results: Its result on each of them.
        tokenizer: Counts the golden tokens.
    """
    problems = form_problems(source)
    size, tokens = None, None
    kinds = Counter(name.split()[0] for name in pairs)
    failed: Counter[str] = Counter()
    try:
        problems += hard_coded(source, [pair.output for pair in pairs.values()])
        size = measure(source)
        tokens = len(encode_golden(source, tokenizer)) if tokenizer else None
    except (SyntaxError, ValueError):
        pass  # form_problems has reported it
    for result in results:
        if result.problem:
            failed[result.pair.split()[0]] += 1
            problems.append(f"{result.pair}: {result.problem}")
    level = next((number for number, names in enumerate(LEVELS, 1) if task in names), 0)
    solved = {kind: kinds[kind] - failed[kind] for kind in kinds}
    return Report(task, level, tuple(problems), solved, dict(kinds), size, tokens)


def order_problems(sources: Mapping[str, str], levels: Sequence[Sequence[str]] = LEVELS) -> dict[str, str]:
    """Problems of the order, by task: disagreements with the files, or code that does not get longer within a level.

    Args:
        sources: Texts of the solutions by task; those that are not valid Python are left to the form check.
        levels: Tasks of each level, from easy to hard.
    """
    known = Counter(name for level in levels for name in level)
    problems = {name: "is not in order.py: add it to a level" for name in sources if name not in known}
    problems |= {name: "is in order.py more than once" for name, count in known.items() if count > 1}
    problems |= {name: "is in order.py but has no file" for name in known if name not in sources}
    for level in levels:
        longest, before = 0, ""
        for name in level:
            if name not in sources or form_problems(sources[name]):
                continue
            tokens = measure(sources[name]).code_tokens
            if tokens < longest:
                problems.setdefault(name, f"has {tokens} code tokens but follows {before} with {longest} in its level")
            else:
                longest, before = tokens, name
    return problems


def check_all(
    folder: Path = GOLDEN,
    pairs: Mapping[str, Mapping[str, Pair]] | None = None,
    tasks: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
    time_limit: float = 20.0,
) -> list[Report]:
    """Reports of all solutions in order, or of the given tasks.

    Args:
        folder: Where the solutions are.
        pairs: Pairs of every task; None to check only the texts.
        tasks: The tasks to check; if empty, all, and their order as well.
        tokenizer: Counts the golden tokens.
        time_limit: See `run.run_solutions`.

    Raises:
        GoldenError: A given task has no solution.
    """
    sources = {name: read_solution(name, folder) for name in tasks or solution_names(folder)}
    wrong_order = {} if tasks else order_problems(sources)
    known = {name: pairs.get(name, {}) if pairs is not None else {} for name in sources}
    results = run_solutions([(source, known[name]) for name, source in sources.items()], time_limit)
    reports = []
    for (name, source), result in zip(sources.items(), results, strict=True):
        report = check_solution(name, source, known[name], result, tokenizer)
        more = [wrong_order.pop(name)] if name in wrong_order else []
        if pairs is not None and not known[name]:
            more.append("the given files have no pairs of this task")
        reports.append(replace(report, problems=(*more, *report.problems)))
    reports += [Report(name, 0, (problem,), {}, {}, None, None) for name, problem in wrong_order.items()]
    return reports


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `check`."""
    parser.add_argument("--task-file", type=Path, action="append", default=[], help="ARC collection with pairs")
    parser.add_argument("--fresh", type=Path, help="fresh pairs, JSON lines")
    parser.add_argument("--task", action="append", default=[], help="only this task; may be repeated")
    parser.add_argument("--tokenizer", help="folder or hub name; counts golden tokens")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds; see run.py")
    parser.add_argument("--json", action="store_true", help="print one JSON object per solution instead of the table")


def run(args: argparse.Namespace) -> int:
    """`check`: prints the reports and returns the exit status.

    Raises:
        GoldenError: A task or a file is missing or unreadable.
    """
    if not args.time_limit > 0:
        raise GoldenError(f"--time-limit must be above 0, got {args.time_limit:g}")
    given = args.task_file or args.fresh
    pairs = read_pairs(args.task_file, args.fresh) if given else None
    tokenizer = None
    if args.tokenizer:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    reports = check_all(GOLDEN, pairs, args.task, tokenizer, args.time_limit)
    if args.json:
        for report in reports:
            print(json.dumps(asdict(report)))
    else:
        _print_table(reports)
        if pairs is None:
            print("no pairs given (--task-file, --fresh): only the texts were checked")
    return int(any(report.problems for report in reports))


def _print_table(reports: Sequence[Report]) -> None:
    kinds = [kind for kind in KINDS if any(kind in report.pairs for report in reports)]
    counted = any(report.tokens is not None for report in reports)
    columns = ["task", "level", *kinds, "lines", "code tokens", "characters", *(["golden tokens"] if counted else [])]
    print("  ".join(columns))
    for report in reports:
        size = report.size or Size(0, 0, 0)
        cells = [report.task, report.level, *(f"{report.solved.get(k, 0)}/{report.pairs.get(k, 0)}" for k in kinds)]
        cells += [size.code_lines, size.code_tokens, size.characters, *([report.tokens] if counted else [])]
        line = "  ".join(f"{cell!s:>{len(column)}}" for cell, column in zip(cells, columns, strict=True))
        print(line + ("  WRONG" if report.problems else ""))
    for report in reports:
        for problem in report.problems:
            print(f"{report.task}: {problem}")
    print(f"{len(reports)} solutions, {sum(bool(report.problems) for report in reports)} with problems")
    for kind in kinds:
        solved, run_on = (sum(count.get(kind, 0) for count in counts) for counts in _counts(reports))
        print(f"{kind} pairs solved: {solved} of {run_on}")


def _counts(reports: Sequence[Report]) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    return [report.solved for report in reports], [report.pairs for report in reports]
