"""Probes: pass rates of free rollouts of each problem with fixed shares of its golden solution hidden. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.method.visits import mean_label


def hidden_tokens(golden_ids: Sequence[int], share: float) -> int:
    """Number of golden tokens that a share hides: at least one, rounded up."""
    return max(1, math.ceil(len(golden_ids) * share - 1e-9))


def probe_states(problems: Iterable[Problem], shares: Sequence[float]) -> list[tuple[float, RedactedState]]:
    """Every problem with every share hidden: (share, state)."""
    return [
        (share, RedactedState(problem.id, hidden_tokens(problem.golden_ids, share)))
        for problem in problems
        for share in shares
    ]


def probe_rows(
    step: int, states: Sequence[tuple[float, RedactedState]], labels: Sequence[Sequence[float | None]]
) -> list[dict[str, Any]]:
    """The rows to record: one per state, with the pass rate of its labels (1, 0; None: unknown)."""
    return [
        {"step": step, "problem": state.problem, "share": share, "k": state.k, "pass_rate": mean_label(found)}
        for (share, state), found in zip(states, labels, strict=True)
    ]


def probe_metrics(rows: Sequence[Mapping[str, Any]], num_rollouts: int) -> dict[str, float]:
    """Mean pass rates: `golden/probe/{share}`, without a key if unknown, and the mean of all as accuracy."""
    known = [(row["share"], row["pass_rate"]) for row in rows if row["pass_rate"] is not None]
    metrics: dict[str, float] = {}
    for share in dict.fromkeys(share for share, _ in known):
        rates = [rate for found, rate in known if found == share]
        metrics[f"golden/probe/{share:g}"] = sum(rates) / len(rates)
    accuracy = sum(rate for _, rate in known) / len(known) if known else math.nan
    return metrics | {f"val-core/golden/acc/mean@{num_rollouts}": accuracy}
