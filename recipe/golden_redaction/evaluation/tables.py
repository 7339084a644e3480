"""Results of a golden-redaction evaluation as text and JSON, and the difference between two. Pure.

Means are over tasks: several states of a task in a rung are averaged first, and the bootstrap resamples tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recipe.golden_redaction.evaluation.states import METRICS, UNSEEN, WHOLE, Rung, StateResult
from recipe.golden_redaction.method.redaction import RedactedState
from verl_ext.core.errors import SignalError
from verl_ext.evaluation.statistics.estimates import Estimate, bootstrap_mean


def estimate(results: Sequence[StateResult], metric: str) -> Estimate | None:
    """Mean over tasks of a metric, states of a task averaged first; None if no state has a value."""
    by_task: dict[str, list[float]] = {}
    for result in results:
        value = result.metrics[metric]
        if value is not None:
            by_task.setdefault(result.problem, []).append(value)
    return bootstrap_mean([sum(values) / len(values) for values in by_task.values()]) if by_task else None


def summarize(rungs: Sequence[Rung], results: Mapping[RedactedState, StateResult]) -> dict[str, Any]:
    """The content of a result file: `whole` (every task's bare prompt), `rungs`, and each of the `states`.

    Args:
        rungs: Rungs of the ladder.
        results: Results of every state of the rungs.
    """
    bare = [results[state] for rung in rungs if rung.name in (WHOLE, UNSEEN) for state in rung.states]
    whole = {metric: estimate(bare, metric) for metric in METRICS}
    return {
        "whole": {"num_tasks": len(bare), **{name: value and asdict(value) for name, value in whole.items()}},
        "rungs": [_summarize_rung(rung, [results[state] for state in rung.states]) for rung in rungs],
        "states": [asdict(result) for result in results.values()],
    }


def _summarize_rung(rung: Rung, results: Sequence[StateResult]) -> dict[str, Any]:
    rate, solved = estimate(results, rung.rate), estimate(results, rung.solved)
    return {
        "name": rung.name,
        "metrics": {"pass rate": rung.rate, "solved": rung.solved},
        "num_tasks": len({state.problem for state in rung.states}),
        "num_states": len(rung.states),
        "num_samples": sum(result.num_samples for result in results),
        "num_labels": sum(result.num_labels for result in results),
        "pass rate": rate and asdict(rate),
        "solved": solved and asdict(solved),
        "states": [[state.problem, state.k] for state in rung.states],
    }


def render(content: Mapping[str, Any]) -> str:
    """A result file's content as text: the bare prompts of all tasks, then the ladder."""
    whole = content["whole"]
    lines = [f"bare prompts of {whole['num_tasks']} tasks (mean over tasks, 95 % interval)"]
    lines += [f"  {metric:<17}{_render(whole[metric])}" for metric in METRICS if whole[metric] is not None]
    lines += ["", f"{'rung':<16}{'tasks':>6}{'states':>8}{'no label':>10}  {'pass rate':<26}solved by vote"]
    for rung in content["rungs"]:
        unlabelled = rung["num_samples"] - rung["num_labels"]
        counts = f"{rung['num_tasks']:>6}{rung['num_states']:>8}{unlabelled:>10}"
        lines.append(f"{rung['name']:<16}{counts}  {_render(rung['pass rate']):<26}{_render(rung['solved'])}")
    return "\n".join(lines)


def _render(value: Mapping[str, Any] | None) -> str:
    return "-" if value is None else Estimate(**value).render()


# ------------------------------ two results ------------------------------


@dataclass(frozen=True)
class Comparison:
    """A rung's metric in two results, over the states that have it in both.

    Attributes:
        rung: Its name.
        metric: "pass rate" or "solved".
        num_tasks: Tasks compared.
        before: Mean over tasks in the first result.
        after: Mean over tasks in the second.
        difference: after - before, by task.
        rose: States whose value is larger after, including noise from n answers.
        fell: States whose value is smaller.
        same: States whose value is equal.
    """

    rung: str
    metric: str
    num_tasks: int
    before: float
    after: float
    difference: Estimate
    rose: int
    fell: int
    same: int


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Comparison]:
    """The rungs that two result files share, state by state.

    Raises:
        SignalError: They have no rung with a state in common.
    """
    values = [
        {(state["problem"], state["k"]): state["metrics"] for state in content["states"]} for content in (before, after)
    ]
    others = {rung["name"]: {tuple(state) for state in rung["states"]} for rung in before["rungs"]}
    found = []
    for rung in after["rungs"]:
        shared = [tuple(state) for state in rung["states"] if tuple(state) in others.get(rung["name"], ())]
        for name, metric in rung["metrics"].items():
            both = {state: (values[0][state][metric], values[1][state][metric]) for state in shared}
            known = {state: pair for state, pair in both.items() if None not in pair}
            if known:
                found.append(_compare(rung["name"], name, known))
    if not found:
        raise SignalError("the two results have no state of a rung in common: compare evaluations of the same tasks")
    return found


def _compare(rung: str, metric: str, known: Mapping[tuple[str, int], tuple[float, float]]) -> Comparison:
    by_task: dict[str, list[tuple[float, float]]] = {}
    for (problem, _), pair in known.items():
        by_task.setdefault(problem, []).append(pair)
    befores, afters = (
        [sum(pair[side] for pair in pairs) / len(pairs) for pairs in by_task.values()] for side in (0, 1)
    )
    changes = [after - before for before, after in known.values()]
    rose, fell = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    return Comparison(
        rung,
        metric,
        len(by_task),
        sum(befores) / len(befores),
        sum(afters) / len(afters),
        bootstrap_mean([after - before for before, after in zip(befores, afters, strict=True)]),
        rose,
        fell,
        len(changes) - rose - fell,
    )


def render_comparison(comparisons: Sequence[Comparison]) -> str:
    """A table with one row per rung and metric."""
    head = f"{'rung':<16}{'metric':<11}{'tasks':>6}{'before':>8}{'after':>8}  {'difference':<28}"
    lines = [f"{head}{'rose':>5}{'fell':>5}{'same':>5}"]
    for entry in comparisons:
        means = f"{entry.num_tasks:>6}{entry.before:>8.4f}{entry.after:>8.4f}"
        counts = f"{entry.rose:>5}{entry.fell:>5}{entry.same:>5}"
        lines.append(f"{entry.rung:<16}{entry.metric:<11}{means}  {entry.difference.render():<28}{counts}")
    return "\n".join(lines)
