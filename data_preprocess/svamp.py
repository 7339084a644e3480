r"""SVAMP: 1,000 grade-school word problems of one step, 700 for training and 300 for testing.

    python -m data_preprocess.svamp --input svamp.json --local_save_dir outputs/data/svamp

Writes svamp.parquet and svamp_test.parquet. The file is that of its authors (github.com/arkilpatel/SVAMP, MIT), a
list of `{Body, Question, Answer, Type, …}`; without --input it is ChilleD/SVAMP on the hub. The 300 are drawn by
--seed, and training questions equal to one of them are dropped (one or two of the 700).

Each question comes after six worked examples written for this purpose, as turns of a chat: a small model then answers
in their form, with one calculation and its result in `\boxed{}`, and ends. `--examples 0` replaces them by our
instruction after the question. With --solutions, the column golden_solution has the row's own equation in that form,
for golden redaction; one row, whose equation has another result than its answer, goes.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from data_preprocess.math.answer import checkable
from data_preprocess.math.command import run
from data_preprocess.math.data import MathProblem, MathSet, WorkedExample
from data_preprocess.math.text import answer_text
from verl_ext.data.row_report import UnusableRow
from verl_ext.data.row_source import HubSource

# Short, because a run on a CPU reads them with every rollout.
EXAMPLES = (
    WorkedExample(
        "Nora had 15 red and 8 white flowers. She gave away 6 red flowers. How many red flowers are left?",
        "15 - 6 = 9\n\\boxed{9}",
    ),
    WorkedExample("Each of 7 shelves holds 12 jars of 2 pounds. How many jars are there?", "7 * 12 = 84\n\\boxed{84}"),
    WorkedExample(
        "A farmer packed 72 eggs into boxes of 8 eggs. How many boxes did he fill?", "72 / 8 = 9\n\\boxed{9}"
    ),
    WorkedExample(
        "Tim read 23 pages on Monday and 14 pages on Tuesday. How many pages did he read?", "23 + 14 = 37\n\\boxed{37}"
    ),
    WorkedExample("Anna is 12 years old. Ben is 5 years younger than her. How old is Ben?", "12 - 5 = 7\n\\boxed{7}"),
    WorkedExample(
        "There are 34 girls and 20 boys in the park. How many more girls than boys are there?",
        "34 - 20 = 14\n\\boxed{14}",
    ),
)

_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def read(row: Mapping[str, Any]) -> MathProblem:
    """The problem of a row `{Body, Question, Answer, Type, Equation}`.

    A body without a final full stop continues in the question, after a comma.

    Raises:
        UnusableRow: It has no body, no question or no answer.
    """
    body, question = (str(row.get(name) or "").strip() for name in ("Body", "Question"))
    if not body or not question:
        raise UnusableRow("no question")
    whole = f"{body} {question}" if body[-1] in ".?!" else f"{body}, {question[0].lower()}{question[1:]}"
    kind = str(row.get("Type") or "").replace("Divison", "Division")  # one row is misspelled
    answer = checkable(answer_text(row.get("Answer")))
    return MathProblem(whole, answer, subject=kind, solution=_solution(str(row.get("Equation") or ""), answer))


def _solution(equation: str, answer: str) -> str:
    """ "( 76.0 - ( 5.0 + 2.0 ) )" and "69" as "76 - (5 + 2) = 69" and the result in a box; empty if they disagree."""
    try:
        # Written out again with no more brackets than it needs.
        tree = ast.parse(re.sub(r"(\d)\.0\b", r"\1", equation.strip()), mode="eval")
        right = _value(tree.body) == Fraction(answer)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return ""
    if not right:
        return ""
    text = ast.unparse(tree)
    return f"{text} = {answer}\n\\boxed{{{answer}}}"


def _value(node: ast.expr) -> Fraction:
    """Of sums, differences, products and quotients of numbers.

    Raises:
        ValueError: There is something else.
        ZeroDivisionError: A divisor is 0.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(f"not arithmetic: {ast.dump(node)}")


DATASET = MathSet(
    "svamp",
    {"train": HubSource("ChilleD/SVAMP", "train")},
    read=read,
    held_out=("svamp_test", 300),
    examples=EXAMPLES,
    has_solutions=True,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet files."""
    run(DATASET, __doc__, argv)


if __name__ == "__main__":
    main()
