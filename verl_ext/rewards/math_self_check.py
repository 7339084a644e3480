r"""Checks that the math reward agrees with a data set's own answers.

    python -m verl_ext.rewards.math_self_check --input outputs/data/math/math500.parquet gsm8k_test.jsonl.gz

Each gold answer, put into a sentence with `\boxed{}`, must score 1 (`gold`), and verl's math-verify, which is normally
skipped for identical texts, must also find it equal to itself (`parsed`). Each altered answer must score 0. How answers
are altered (`alterations` below), each to something mathematically different:

- `next`: the last number of the answer plus one (5 to 6, \frac{3}{4} to \frac{3}{5}, 12_8 to 12_9); an answer without a
  number gets "+1" if it is a formula, or its words are written backwards (a palindrome's letters are doubled).
- `sign`: a plain number other than 0 with the opposite sign.
- `scaled`: a plain number other than 0 times ten.

Exit code 1 if less than 99 % of the checks hold. Files are those that `data_preprocess` writes, with the gold answer in
`reward_model.ground_truth`, or raw ones (JSON, JSON lines, CSV, parquet) with it in `answer`, after "####" if there is
one (GSM8K). Rows without an answer are left out.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_ext.core.errors import SignalError
from verl_ext.data.row_source import SourceError, read_file
from verl_ext.rewards.math_answer import compute_score, trim, verify

REQUIRED_SHARE = 0.99

_SENTENCE = "First we try 3 and 17, then it follows that the answer is $\\boxed{%s}$. That is all."
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_PLAIN_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_WORDS = re.compile(r"(?:\\text\s*\{)?([A-Za-z][A-Za-z ]*)\}?")


@dataclass
class SelfCheck:
    """Result of one file's check.

    Attributes:
        file: Name of the file.
        answers: Gold answers.
        checks: Gold and altered answers scored.
        failures: Kind of check, gold answer and scored answer of each wrong score.
        seconds: Wall-clock time.
    """

    file: str
    answers: int
    checks: int
    seconds: float
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of the checks that hold."""
        return 1 - len(self.failures) / self.checks


def read_answers(path: Path) -> list[str]:
    """The gold answers of a file, in order; rows whose answer is null or empty are left out.

    Raises:
        SourceError: If the file cannot be read or has no answers.
    """
    given = [gold_answer(row) for row in read_file(path)]
    texts = (str(answer).rpartition("####")[2].strip() for answer in given if answer is not None)
    answers = [text for text in texts if text]
    if not answers:
        raise SourceError(
            f"{path}: no row has an answer. Expected it in reward_model.ground_truth, as data_preprocess writes it, or "
            "in answer; data_preprocess.math_file reads any other column."
        )
    return answers


def gold_answer(row: Mapping[str, Any]) -> object:
    """The gold answer of a row in verl's schema or of a raw one; None if it has none."""
    rule = row.get("reward_model")
    return rule.get("ground_truth") if isinstance(rule, Mapping) else row.get("answer")


def alterations(gold: str) -> Iterator[tuple[str, str]]:
    r"""Names and texts of answers that differ from `gold` mathematically; the module's docstring lists them.

    Example:
        >>> list(alterations("1,999"))
        [('next', '2000'), ('sign', '-1,999'), ('scaled', '19990')]
        >>> list(alterations(r"\frac{x}{4}")), list(alterations(r"\text{Monday}")), list(alterations(r"\pi"))
        ([('next', '\\frac{x}{5}')], [('next', '\\text{yadnoM}')], [('next', '\\pi+1')])
    """
    numbers = list(_NUMBER.finditer(gold))
    if numbers:
        last = numbers[-1]
        yield "next", gold[: last.start()] + _plus_one(last.group()) + gold[last.end() :]
    else:
        words = _WORDS.fullmatch(gold)
        if words and (gold.startswith("\\text") or len(words.group(1)) > 1):
            text = words.group(1)
            yield "next", gold.replace(text, text[::-1] if text != text[::-1] else text * 2)
        else:
            yield "next", f"{trim(gold)}+1"  # inside its dollar signs
    if _PLAIN_NUMBER.fullmatch(gold) and gold.strip("-0.,"):
        yield "sign", gold[1:] if gold.startswith("-") else f"-{gold}"
        whole, dot, decimals = gold.replace(",", "").partition(".")
        yield "scaled", f"{whole}{decimals[:1] or 0}{dot if decimals[1:] else ''}{decimals[1:]}"


def _plus_one(number: str) -> str:
    whole, dot, decimals = number.replace(",", "").partition(".")
    return f"{int(whole) + 1}{dot}{decimals}"


def check_file(path: Path, every: int = 1, threads: int = 4) -> SelfCheck:
    """Score the gold and the altered answers of every `every`-th row.

    Raises:
        SourceError: If the file cannot be read.
    """
    answers = read_answers(path)[::every]
    cases = [
        (kind, gold, text) for gold in answers for kind, text in (("gold", gold), ("parsed", gold), *alterations(gold))
    ]

    def right(case: tuple[str, str, str]) -> bool:
        kind, gold, text = case
        if kind == "parsed":
            return verify(gold, text) >= 1.0
        return compute_score("math", _SENTENCE % text, gold)["acc"] == float(kind == "gold")

    started = time.monotonic()
    with ThreadPoolExecutor(threads) as executor:
        verdicts = list(executor.map(right, cases))
    failures = [case for case, is_right in zip(cases, verdicts, strict=True) if not is_right]
    return SelfCheck(path.name, len(answers), len(cases), time.monotonic() - started, failures)


def main(argv: Sequence[str] | None = None) -> None:
    """Check the files and print one line each, then every failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, nargs="+", required=True, help="data of mathematics")
    parser.add_argument("--every", type=int, default=1, help="check only every N-th row")
    args = parser.parse_args(argv)
    if args.every < 1:
        parser.error(f"--every must be at least 1, got {args.every}")
    try:
        checks = [check_file(path, args.every) for path in args.input]
    except SignalError as error:
        sys.exit(f"error: {error}")
    print(f"{'file':<32}{'answers':>9}{'checks':>9}{'failed':>8}{'correct':>11}{'seconds':>9}")
    for check in checks:
        counts = f"{check.answers:>9}{check.checks:>9}{len(check.failures):>8}"
        print(f"{check.file:<32}{counts}{100 * check.share:>9.2f} %{check.seconds:>9.1f}")
    for check in checks:
        for kind, gold, text in check.failures:
            print(f"{check.file}: {kind}: gold {gold!r}, scored {text!r}")
    total = sum(check.checks for check in checks)
    share = 1 - sum(len(check.failures) for check in checks) / total
    print(f"{100 * share:.3f} % of {total} checks hold (required: {100 * REQUIRED_SHARE:g} %)")
    if share < REQUIRED_SHARE:
        sys.exit(1)


if __name__ == "__main__":
    main()
