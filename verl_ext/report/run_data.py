"""A run as the blocks of its page.

index            facts, warnings, names of the metrics, the three axes, and the entries of recipes' views (`parts`)
curves-{group}   metric -> one value per record
config           rows of the configuration
samples          texts of the start and the end

A recipe's views have their own blocks.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.report import curves, run_facts
from verl_ext.report.blocks import pack
from verl_ext.report.recipe_pages import all_pages
from verl_ext.report.run_records import RunRecords
from verl_ext.report.run_state import run_state
from verl_ext.report.run_warnings import find_warnings, null_steps
from verl_ext.report.warning_rules import LOGS
from verl_ext.run.metrics_stream import STEP
from verl_ext.run.pace import wall_clock


def curve_blocks(table: Mapping[str, Sequence[float | None]]) -> dict[str, str]:
    """Every metric's values, one block per group."""
    return {
        f"curves-{group}": pack({name: [curves.short(value) for value in table[name]] for name in names})
        for group, names in curves.groups(table).items()
    }


def run_index(run: RunRecords, views: Sequence[str]) -> dict[str, Any]:
    """The index block's value.

    Args:
        run: The run to show.
        views: The views that this run has data for.
    """
    table, nulls = curves.columns(run.metrics), null_steps(run.metrics)
    found = find_warnings(
        table,
        nulls=nulls,
        superseded=run.superseded,
        num_broken=run.num_broken,
        max_probs_diff=engine_bound(run.config),
    )
    return {
        **run_line(run, table),
        "about": [f"run folder: {run.path}"],
        "views": list(views),
        "last_write": run.last_write,
        "logs": [LOGS, str(logs)] if (logs := run.status.get("logs")) else None,
        "findings": [list(map(str, pair)) for pair in _pairs((run.summary or {}).get("findings"))],
        "command": command(run),
        "num_val_prompts": run.first_validation.get("num_prompts"),
        "versions": versions(run),
        "warnings": [one.as_dict() for one in found],
        "phases": run_facts.phases(table, wall_clock(run.status)),
        "phase_steps": run_facts.phase_steps(table),
        "phase_columns": {
            name: [curves.short(value, 4) for value in values]
            for name, values in run_facts.phase_columns(table).items()
        },
        "parts": {view.name: view.overview(run) for pages in all_pages() for view in pages.views if view.name in views},
        "own_pages": [
            entry for pages in all_pages() for page in pages.own_pages if (entry := page.entry(run.path)) is not None
        ],
        "accuracies": curves.accuracies(table),
        # A warning may name a metric that was never a number.
        "glossary": curves.explained({*table, *nulls}),
        "verls_own": curves.verls_own({*table, *nulls}),
        "groups": curves.groups(table),
        "headlines": curves.headlines(name for name in table if name != STEP),
    }


def run_line(run: RunRecords, table: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """Facts about a run for the pages of one run and of several."""
    return {
        "name": run.name,
        "recipe": run.recipe,
        "state": run_state(run.status, run.summary, run.metrics),
        "numbers": {name: curves.short(value) for name, value in run_facts.numbers(run.summary, run.metrics).items()},
        "axes": {choice: [curves.short(value) for value in curves.axis(table, choice)] for choice in curves.AXES},
        "nulls": null_steps(run.metrics),
    }


def engine_bound(config: Mapping[str, Any]) -> float | None:
    """`engine_guard.max_probs_diff`; None without a guard."""
    guard = config.get("engine_guard")
    bound = guard.get("max_probs_diff") if isinstance(guard, dict) else None
    return bound if type(bound) in (int, float) else None


def versions(run: RunRecords) -> dict[str, str]:
    """Package -> version, as far as the folder has them."""
    runtime = run.hydra.get("runtime")
    hydra = runtime.get("version") if isinstance(runtime, dict) else None
    return ({"hydra": str(hydra)} if hydra else {}) | run.versions


def command(run: RunRecords) -> str:
    """The command that started the run, as far as the folder reveals it."""
    given = run.status.get("command")
    if isinstance(given, str) and given:
        return given
    return shlex.join(["python", "-m", f"recipe.{run.recipe}.main", *run.overrides])


def _pairs(value: Any) -> list[Any]:
    return [pair for pair in value if isinstance(pair, list) and len(pair) == 2] if isinstance(value, list) else []
