"""Judges candidates in the sandbox and picks the shortest correct one per task. Pure except for the sandbox."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from verl_ext.arc.form import form_problems, hard_coded, measure
from verl_ext.arc.importer.candidate import candidates
from verl_ext.arc.importer.modules import Library, Module, parse_module
from verl_ext.arc.importer.read import Program, Unread
from verl_ext.arc.importer.scopes import RefusedError
from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.programs import Programs
from verl_ext.sandbox.results import ProgramResult, Status, deciding_status

# Wraps a candidate in the sandbox: rejects behaviour that a golden solution may not have even if its output is right.
GUARD = """

_candidate = solve


def solve(input_grid):
    argument = [list(row) for row in input_grid]
    output = _candidate(argument)
    if argument != input_grid:
        raise ValueError("changes its argument")
    if type(output) is not list or not all(type(row) is list for row in output):
        return output
    kept = [list(row) for row in output]
    for row in output:
        row[:] = [-1] * len(row)
    if argument != input_grid:
        raise ValueError("returns rows of its argument instead of copies")
    if _candidate([list(row) for row in input_grid]) != kept:
        raise ValueError("gives another output for the same input")
    return kept
"""
# Together with the guard, below the sandbox's limit.
MAX_CHARACTERS = 60_000
ATTEMPTS = 3


class Verdict(StrEnum):
    """The verdict on a program."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    WRONG = "wrong"
    SLOW = "slow"
    UNSAFE = "unsafe"
    MALFORMED = "malformed"
    NO_TASK = "no_task"
    NOT_JUDGED = "not_judged"


_VERDICTS = {
    Status.TIMEOUT: Verdict.SLOW,
    Status.MEMORY: Verdict.SLOW,
    Status.OUTPUT_LIMIT: Verdict.SLOW,
    Status.FORBIDDEN: Verdict.UNSAFE,
    Status.SYNTAX_ERROR: Verdict.MALFORMED,
    Status.INFRASTRUCTURE_ERROR: Verdict.NOT_JUDGED,
}


@dataclass(frozen=True)
class Outcome:
    """The verdict on a program, with the reason.

    Attributes:
        program: Its source.
        task: Task id, empty if it has none.
        verdict: The verdict in one word.
        reason: The reason in one sentence; empty for an accepted one.
        source: The candidate; empty unless accepted.
        to_do: Work left before an accepted candidate is a golden solution.
    """

    program: str
    task: str
    verdict: Verdict
    reason: str = ""
    source: str = ""
    to_do: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Draft:
    program: Program
    texts: tuple[str, ...]
    tokens: int


@lru_cache(maxsize=4)
def _parsed(name: str, text: str) -> Module:
    return parse_module(name, text)


def draft(program: Program, library: Library) -> _Draft | Outcome:
    """The texts of a program's candidate, or why there are none."""
    try:
        module = _parsed(program.name.partition(":")[0] if program.entry else program.name, program.text)
        texts = tuple(candidates(module, program.task, library, program.entry))
        longest = max(map(len, texts))
        if longest > MAX_CHARACTERS:
            raise RefusedError(f"the candidate has {longest} characters: expected at most {MAX_CHARACTERS}")
        return _Draft(program, texts, measure(texts[0]).code_tokens)
    except RefusedError as error:
        return Outcome(program.name, program.task, Verdict(error.status), str(error))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # For example, blocks nested as deeply as Python allows: a candidate adds one level.
        reason = f"cannot be written within one function: {error}"
        return Outcome(program.name, program.task, Verdict.MALFORMED, reason)


def judge(
    found: Sequence[Program | Unread],
    library: Library,
    pairs: Mapping[str, Mapping[str, Pair]],
    programs: Programs,
) -> Iterator[Outcome]:
    """The outcome of every program, task by task; outcomes that need no run come first.

    Args:
        found: The programs.
        library: Modules that they may import.
        pairs: Pairs of every task, by name.
        programs: Runs the candidates.
    """
    by_task: dict[str, list[_Draft]] = {}
    for each in found:
        if isinstance(each, Unread):
            verdict = Verdict.NO_TASK if each.is_readable else Verdict.MALFORMED
            yield Outcome(each.name, each.task, verdict, each.reason)
            continue
        made = draft(each, library)
        if isinstance(made, Outcome):
            yield made
        else:
            by_task.setdefault(each.task, []).append(made)
    for task, drafts in by_task.items():
        yield from _judge_task(task, sorted(drafts, key=lambda one: one.tokens), pairs[task], programs)


def _judge_task(
    task: str, drafts: Sequence[_Draft], pairs: Mapping[str, Pair], programs: Programs
) -> Iterator[Outcome]:
    """The outcomes of one task's drafts, from short to long."""
    accepted = ""
    seen: dict[tuple[str, ...], str] = {}
    for each in drafts:
        name = each.program.name
        if each.texts in seen:
            yield Outcome(name, task, Verdict.DUPLICATE, f"the same program as {seen[each.texts]}")
        elif accepted:
            yield Outcome(name, task, Verdict.DUPLICATE, f"not run: {accepted} is right and at most as long")
        else:
            outcome = _run(each, task, pairs, programs)
            accepted = name if outcome.verdict is Verdict.ACCEPTED else ""
            yield outcome
        seen.setdefault(each.texts, name)


def _run(each: _Draft, task: str, pairs: Mapping[str, Pair], programs: Programs) -> Outcome:
    """Try every form of a draft until one is right; otherwise the one that got furthest decides."""
    results: list[tuple[str, ProgramResult]] = []
    for text in each.texts:
        (result,) = programs.run("import", [(task, text + GUARD)], {task: list(pairs.values())}, True)
        if result.solved:
            outputs = [pair.output for pair in pairs.values()]
            to_do = (*form_problems(text), *hard_coded(text, outputs))
            return Outcome(each.program.name, task, Verdict.ACCEPTED, source=text, to_do=to_do)
        results.append((text, result))
        if deciding_status(result.statuses) in (Status.TIMEOUT, Status.INFRASTRUCTURE_ERROR):
            break
    _, furthest = max(results, key=lambda one: (len(one[1].pairs), _informative(one[1])))
    status = Status(deciding_status(furthest.statuses))
    last = furthest.pairs[-1]
    reason = f"{list(pairs)[len(furthest.pairs) - 1]}: {status.replace('_', ' ')}"
    if last.detail:
        # The text of an error comes from the program: it could contain terminal control codes.
        reason += ": " + "".join(sign if sign.isprintable() else " " for sign in last.detail)
    return Outcome(each.program.name, task, _VERDICTS.get(status, Verdict.WRONG), reason)


def _informative(result: ProgramResult) -> int:
    """An output is more informative than an error caused by the grid format."""
    order = (Status.RUNTIME_ERROR, Status.INVALID_OUTPUT, Status.WRONG_OUTPUT)
    status = Status(deciding_status(result.statuses))
    return order.index(status) if status in order else len(order)


def summary(outcomes: Sequence[Outcome]) -> str:
    """A readable summary of the outcomes."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    width = max(map(len, Verdict))
    lines = [f"{len(outcomes)} programs"]
    for verdict in Verdict:
        if counts[verdict]:
            lines.append(f"  {verdict:<{width}}  {counts[verdict]}")
            if verdict not in (Verdict.ACCEPTED, Verdict.DUPLICATE):
                first = next(outcome for outcome in outcomes if outcome.verdict is verdict)
                lines.append(f"  {'':<{width}}  such as {first.program}: {first.reason}")
    ready = sum(outcome.verdict is Verdict.ACCEPTED and not outcome.to_do for outcome in outcomes)
    lines.append(
        f"{counts[Verdict.ACCEPTED] - ready} of the accepted ones still need a person's work before they are golden"
    )
    return "\n".join(lines)
