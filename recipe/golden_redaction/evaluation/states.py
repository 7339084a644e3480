"""Metrics and states of a golden-redaction evaluation. Pure; `evaluation_tables.py` has the means.

A state is a task with the last k tokens of its golden solution hidden; k = 0 of a task without one is its bare prompt.
In each state the model writes n answers, and each answer is a program:

    pass_rate        share of the answers whose program maps every example input to its output
    test_pass_rate   share of the answers whose program is also right on every test pair (pass@1)
    test_solved      1 if the vote of the passing programs is right on every test pair, else 0
    test_score       share of the test pairs of which one of two attempts is right, as ARC Prize scores: the two most
                     frequent outputs of the passing programs
    fresh_right      share of the passing programs' outputs on fresh pairs that are right; none without a program
    fresh_pass_rate  share of the answers whose program is right on the examples and every fresh pair
    fresh_solved     as test_solved, on the fresh pairs

An answer without a label (an infrastructure error) is in none of these shares. The ladder asks how far a skill reaches:

    same states      those that training visited
    hidden 25 % ...  larger k of the same tasks: only states with more hidden than training ever hid
    whole solution   the bare prompt of the same tasks
    fresh pairs      the same answers, on inputs of the same tasks that were in no prompt
    unseen tasks     bare prompts of tasks that training never visited, and of tasks without a golden solution
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from recipe.golden_redaction.method.redaction import RedactedState
from verl_ext.core.errors import SignalError
from verl_ext.data.arc_tasks import Grid, Pair
from verl_ext.sandbox.results import Execution, Status, label

NUM_ATTEMPTS = 2  # at each test pair, as ARC Prize allows
METRICS = ("pass_rate", "test_pass_rate", "test_solved", "test_score", "fresh_right", "fresh_pass_rate", "fresh_solved")
SAME, WHOLE, FRESH, UNSEEN = "same states", "whole solution", "fresh pairs", "unseen tasks"


# ------------------------------ one state ------------------------------


@dataclass(frozen=True)
class Outcome:
    """The outcome of one answer.

    Attributes:
        label: 1 if its program is right on every example, 0 if not, None: unknown.
        test: Outputs on the test inputs; only used for label 1.
        fresh: Outputs on the fresh inputs; likewise.
    """

    label: float | None
    test: tuple[Execution, ...] = ()
    fresh: tuple[Execution, ...] = ()


@dataclass(frozen=True)
class StateResult:
    """One state.

    Attributes:
        problem: Task id.
        k: Hidden golden tokens; 0 for the bare prompt of a task without a golden solution.
        num_samples: Answers.
        num_labels: Answers with a label.
        num_passed: Answers with label 1.
        metrics: `METRICS`, each None if unknown.
    """

    problem: str
    k: int
    num_samples: int
    num_labels: int
    num_passed: int
    metrics: dict[str, float | None]


def vote(grids: Sequence[Grid | None]) -> Grid | None:
    """The most frequent grid, ties by first occurrence; None (no output) has no vote.

    Example:
        >>> vote([((1,),), None, ((2,),), None, ((2,),)]), vote([None])
        (((2,),), None)
    """
    return next(iter(votes(grids, 1)), None)


def votes(grids: Sequence[Grid | None], num: int) -> list[Grid]:
    """The most frequent distinct grids, at most `num`; ties by first occurrence."""
    return [grid for grid, _ in Counter(grid for grid in grids if grid is not None).most_common(num)]


def measure_state(
    state: RedactedState, outcomes: Sequence[Outcome], test_pairs: Sequence[Pair], fresh_pairs: Sequence[Pair] = ()
) -> StateResult:
    """The metrics of a state.

    Args:
        state: Which one.
        outcomes: Outcomes of its answers, in order.
        test_pairs: Test pairs, in the order of each outcome's `test`.
        fresh_pairs: Fresh pairs, in the order of each outcome's `fresh`; if empty, their metrics are None.
    """
    labelled = [outcome for outcome in outcomes if outcome.label is not None]
    passed = [outcome for outcome in labelled if outcome.label == 1]
    metrics: dict[str, float | None] = dict.fromkeys(METRICS)
    metrics["pass_rate"] = len(passed) / len(labelled) if labelled else None
    failures = len(labelled) - len(passed)
    for name, pairs in (("test", test_pairs), ("fresh", fresh_pairs)):
        if labelled and pairs:
            runs = [getattr(outcome, name) for outcome in passed]
            metrics[f"{name}_pass_rate"] = _pass_rate(runs, failures)
            metrics[f"{name}_solved"] = _solved(runs, pairs)
            if name == "test":
                metrics["test_score"] = _score(runs, pairs)
    judged = [
        run.status is Status.OK
        for outcome in passed
        for run in outcome.fresh
        if run.status is not Status.INFRASTRUCTURE_ERROR
    ]
    metrics["fresh_right"] = sum(judged) / len(judged) if judged else None
    return StateResult(state.problem, state.k, len(outcomes), len(labelled), len(passed), metrics)


def _pass_rate(runs: Sequence[tuple[Execution, ...]], failures: int) -> float | None:
    """Share of right answers, counting `failures` more that were wrong on the examples."""
    labels = [label(execution.status for execution in run) for run in runs]
    known = [value for value in labels if value is not None]
    return sum(known) / (len(known) + failures) if known or failures else None


def _solved(runs: Sequence[tuple[Execution, ...]], pairs: Sequence[Pair]) -> float | None:
    """Whether the vote is right on every pair; None if there is no vote because nothing could be run."""
    unknown = False
    for place, pair in enumerate(pairs):
        grid = vote([run[place].grid for run in runs])
        if grid is None and any(run[place].status is Status.INFRASTRUCTURE_ERROR for run in runs):
            unknown = True
        elif grid != pair.output:
            return 0.0
    return None if unknown else 1.0


def _score(runs: Sequence[tuple[Execution, ...]], pairs: Sequence[Pair]) -> float | None:
    """Share of the pairs of which an attempt is right; None if one without attempts could not be run."""
    right = 0
    for place, pair in enumerate(pairs):
        tried = votes([run[place].grid for run in runs], NUM_ATTEMPTS)
        if not tried and any(run[place].status is Status.INFRASTRUCTURE_ERROR for run in runs):
            return None
        right += pair.output in tried
    return right / len(pairs)


# ------------------------------ the ladder ------------------------------


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes:
        name: Display name.
        rate: The metric that is its pass rate.
        solved: The metric that is its share of solved tasks.
        states: The states that it averages over.
    """

    name: str
    rate: str
    solved: str
    states: tuple[RedactedState, ...]


def choose_rungs(
    lengths: Mapping[str, int],
    visited: Mapping[str, Collection[int]] | None,
    fractions: Sequence[float],
    fresh: Collection[str] = (),
) -> list[Rung]:
    """The rungs that have states, from near to far.

    Args:
        lengths: Golden tokens of every task, 0 for a task without a golden solution.
        visited: The k of every task that training visited; None: not known, every task with a golden solution counts as
            seen and there are no "same states".
        fractions: Shares of the golden tokens to hide, in (0, 1]; k is rounded up.
        fresh: Tasks with fresh pairs.

    Raises:
        SignalError: A visited k is more than the golden solution has.
    """
    golden = [problem for problem, length in lengths.items() if length]
    seen = golden if visited is None else [problem for problem in golden if visited.get(problem)]
    largest = {problem: max(visited[problem]) if visited else 0 for problem in seen}
    for problem in seen:
        if largest[problem] > lengths[problem]:
            raise SignalError(
                f"training hid {largest[problem]} tokens of task {problem}, but its golden solution has "
                f"{lengths[problem]}: give the model, solutions and states of the same run"
            )
    same = [RedactedState(problem, k) for problem in seen for k in sorted((visited or {}).get(problem, ()))]
    rungs = [Rung(SAME, "pass_rate", "test_solved", tuple(same))]
    for fraction in sorted(set(fractions)):
        hidden = {problem: math.ceil(fraction * lengths[problem]) for problem in seen}
        states = [RedactedState(problem, k) for problem, k in hidden.items() if largest[problem] < k < lengths[problem]]
        rungs.append(Rung(f"hidden {100 * fraction:g} %", "pass_rate", "test_solved", tuple(states)))
    whole = [RedactedState(problem, lengths[problem]) for problem in seen]
    unseen = [RedactedState(problem, length) for problem, length in lengths.items() if problem not in set(seen)]
    rungs.append(Rung(WHOLE, "pass_rate", "test_solved", tuple(whole)))
    rungs.append(Rung(FRESH, "fresh_pass_rate", "fresh_solved", tuple(s for s in whole if s.problem in fresh)))
    rungs.append(Rung(UNSEEN, "pass_rate", "test_solved", tuple(unseen)))
    return [rung for rung in rungs if rung.states]
