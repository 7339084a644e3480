"""The form of a golden solution, and the signs of hard-coded outputs. Pure: reads text, runs nothing.

Redaction hides a golden solution from its end backwards, so all parts must be in a fixed order: the
observations, the procedure, the code that follows the procedure, and `return result` as the last line.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verl_ext.arc.prompts import golden_text
from verl_ext.data.arc_tasks import Grid

ARGUMENT = "input_grid"
ALLOWED_IMPORTS = frozenset({"collections", "copy", "itertools", "math"})
FORBIDDEN_NAMES = frozenset(
    {
        "breakpoint",
        "compile",
        "delattr",
        "eval",
        "exec",
        "exit",
        "getattr",
        "globals",
        "hash",
        "help",
        "id",
        "input",
        "locals",
        "open",
        "print",
        "quit",
        "repr",
        "setattr",
        "vars",
    }
)
MIN_OBSERVATIONS = 2
# Marks an observation or a step that an import could not derive from the program.
TO_WRITE = "TO BE WRITTEN"
MAX_CODE_LINES = 50
# The longest literals that a rule needs are tables of a few colours or offsets: four offsets with a colour each.
MAX_LITERAL = 12
MIN_MATCH = 4
MIN_ROW_MATCH = 6
MAX_BRANCHES = 4
MAX_CELL_TESTS = 3
MAX_INTEGER = 999
_SKIPPED_TOKENS = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


@dataclass(frozen=True)
class Size:
    """Size of a solution.

    Attributes:
        characters: Characters of the whole file.
        code_lines: Non-empty lines below the docstring.
        code_tokens: Python tokens of the function without its docstring; layout and comments are not counted.
    """

    characters: int
    code_lines: int
    code_tokens: int


def form_problems(source: str) -> list[str]:
    """Problems with the form of a solution; empty if there are none.

    Args:
        source: Text of the file.
    """
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        return [f"line {error.lineno}: not valid Python: {error.msg}"]
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or body[0].name != "solve":
        return ["expected one function `solve` and nothing else in the file"]
    solve = body[0]
    arguments = ast.unparse(solve.args)
    problems = []
    try:
        golden_text(source)
    except ValueError as error:
        problems.append(str(error))
    if arguments != ARGUMENT or solve.decorator_list:
        problems.append(f"expected `def solve({ARGUMENT}):` without decorators, found `def solve({arguments})`")
    problems += _docstring_problems(ast.get_docstring(solve))
    returns = [node for node in _own_nodes(solve) if isinstance(node, ast.Return)]
    if len(returns) != 1 or returns[0] is not solve.body[-1] or ast.unparse(returns[0]) != "return result":
        problems.append("expected `return result` as the last line and no other return in `solve`")
    problems += _forbidden(solve)
    lines = measure(source).code_lines
    if lines > MAX_CODE_LINES:
        problems.append(f"{lines} lines of code: at most {MAX_CODE_LINES} are allowed")
    return problems


def hard_coded(source: str, outputs: Sequence[Grid] = ()) -> list[str]:
    """Signs that a solution looks up its answers instead of computing them; empty if there are none.

    Args:
        source: Text of a file that is valid Python.
        outputs: Known outputs of the task; literals are compared with them.
    """
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    problems = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            problem = _constant_problem(node.value)
        elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            problem = _literal_problem(node, outputs)
        elif isinstance(node, ast.Compare):
            whole = any(_is_argument(side) for side in (node.left, *node.comparators))
            problem = "compares the whole input" if whole else None
        elif isinstance(node, ast.Call):
            named = isinstance(node.func, ast.Name) and node.func.id in ("str", "tuple", "frozenset")
            problem = "uses the whole input as a key" if named and any(map(_is_argument, node.args)) else None
        elif isinstance(node, ast.If | ast.Match):
            problem = _branch_problem(node)
        else:
            problem = None
        if problem:
            problems.append(f"line {line}: {problem}")
    cells = sum(map(_tests_fixed_cell, ast.walk(tree)))
    if cells > MAX_CELL_TESTS:
        problems.append(f"recognises an input by {cells} fixed cells")
    return problems


def measure(source: str) -> Size:
    """The size of a solution that is valid Python."""
    solve = ast.parse(source).body[0]
    assert isinstance(solve, ast.FunctionDef)
    first = solve.body[1].lineno if ast.get_docstring(solve) and len(solve.body) > 1 else solve.body[0].lineno
    docstring = range(solve.body[0].lineno, first) if ast.get_docstring(solve) else range(0)
    code = source.splitlines()[first - 1 :]
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _SKIPPED_TOKENS and token.start[0] not in docstring
    ]
    return Size(len(source), sum(1 for line in code if line.strip()), len(tokens))


def _docstring_problems(docstring: str | None) -> list[str]:
    if docstring is None:
        return ["no docstring: expected `Observations:` and `Procedure:`"]
    lines = [line.rstrip() for line in docstring.splitlines()]
    if not lines or lines[0] != "Observations:" or lines.count("Procedure:") != 1:
        return ["expected a docstring that starts with `Observations:` and has one line `Procedure:`"]
    cut = lines.index("Procedure:")
    observations, steps = lines[1:cut], lines[cut + 1 :]
    problems = []
    if len(observations) < MIN_OBSERVATIONS:
        problems.append(f"{len(observations)} observations: expected at least {MIN_OBSERVATIONS}")
    if len(set(observations)) < len(observations):
        problems.append("an observation is duplicated")
    problems += [f"still to be written by a person: {x!r}" for x in (*observations, *steps) if TO_WRITE in x]
    problems += [f"not an observation `- ...` in one line: {x!r}" for x in observations if not re.match(r"- \S", x)]
    if not steps:
        problems.append("the procedure has no step")
    for number, step in enumerate(steps, 1):
        if not re.match(rf"{number}\. \S", step):
            problems.append(f"expected step `{number}. ...` in one line, found {step!r}")
    return problems


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions inside it."""
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            queue += ast.iter_child_nodes(node)


def _forbidden(tree: ast.AST) -> list[str]:
    problems = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names if name.name not in ALLOWED_IMPORTS]
        elif isinstance(node, ast.ImportFrom) and (node.level or node.module not in ALLOWED_IMPORTS):
            names = [node.module or "."]
        elif isinstance(node, ast.Name) and (node.id in FORBIDDEN_NAMES or node.id.startswith("__")):
            names = [node.id]
        elif isinstance(node, ast.Attribute) and node.attr.startswith("__"):
            names = [node.attr]
        elif isinstance(node, ast.Global | ast.Nonlocal):
            names = list(node.names)
        problems += [f"line {getattr(node, 'lineno', 0)}: `{name}` is not allowed" for name in names]
    return problems


def _constant_problem(value: object) -> str | None:
    if isinstance(value, bytes) or (isinstance(value, str) and sum(map(str.isdigit, value)) >= MIN_MATCH):
        return f"cells written as text: {value!r:.40}"
    if isinstance(value, int) and value > MAX_INTEGER:
        # Python refuses to print thousands of decimal digits.
        return f"cells written as a number: {str(value) if value.bit_length() < 99 else hex(value):.40}"
    return None


def _literal_problem(node: ast.List | ast.Tuple | ast.Set | ast.Dict, outputs: Sequence[Grid]) -> str | None:
    leaves = _leaves(node)
    if leaves is None:
        return None
    if len(leaves) > MAX_LITERAL:
        return f"a literal of {len(leaves)} values: at most {MAX_LITERAL} are allowed"
    rows = node.elts if isinstance(node, ast.List) else []
    if len(rows) > 1 and all(isinstance(row, ast.List) and len(row.elts) > 1 for row in rows):
        return "a grid written out"
    for output in outputs:
        cells = [cell for row in output for cell in row]
        if len(cells) >= MIN_MATCH and _contains(leaves, cells):
            return "a literal holds a whole output"
        if any(len(row) >= MIN_ROW_MATCH and _contains(leaves, row) for row in output):
            return "a literal holds a row of an output"
    return None


def _leaves(node: ast.AST) -> list[object] | None:
    """The constants of a nested display in reading order; None if it contains anything else."""
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return [-node.operand.value] if isinstance(node.operand.value, int) else None
    if isinstance(node, ast.Dict):
        parts = [_leaves(part) if part else None for pair in zip(node.keys, node.values, strict=True) for part in pair]
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        parts = [_leaves(part) for part in node.elts]
    else:
        return None
    leaves: list[object] = []
    for part in parts:
        if part is None:
            return None
        leaves += part
    return leaves


def _contains(values: list[object], part: Sequence[int]) -> bool:
    """Whether `part` is a contiguous part of `values`."""
    return any(values[start : start + len(part)] == list(part) for start in range(len(values) - len(part) + 1))


def _is_argument(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == ARGUMENT


def _branch_problem(node: ast.If | ast.Match) -> str | None:
    if isinstance(node, ast.Match):
        count = len(node.cases)
    else:
        count, rest = 1, node.orelse
        while len(rest) == 1 and isinstance(rest[0], ast.If):
            count, rest = count + 1, rest[0].orelse
    return f"a chain of {count} cases: at most {MAX_BRANCHES} are allowed" if count > MAX_BRANCHES else None


def _tests_fixed_cell(node: ast.AST) -> bool:
    """Whether a node compares `input_grid[constant][constant]` with a constant."""
    if not isinstance(node, ast.Compare) or not all(isinstance(side, ast.Constant) for side in node.comparators):
        return False
    row = node.left.value if isinstance(node.left, ast.Subscript) else None
    return (
        isinstance(node.left, ast.Subscript)
        and isinstance(node.left.slice, ast.Constant)
        and isinstance(row, ast.Subscript)
        and isinstance(row.slice, ast.Constant)
        and _is_argument(row.value)
    )
