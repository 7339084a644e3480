"""A run as the blocks of its page.

index            facts, warnings, tables, names of the metrics, and the three axes: all that the overview needs
curves-{group}   metric -> one value a record
config           rows of the configuration
samples          texts of the start and the end
curriculum       Fast DAPO: histograms, accuracy, conservation over time, one row a prompt
prompts-{p}      histories of `curriculum_data.SHARD` prompts
influence        TracIn: distributions and extremes
"""

from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.metrics_stream import STEP
from verl_ext.report import curves, run_facts
from verl_ext.report.blocks import pack
from verl_ext.report.curriculum_data import (
    EVENTS,
    SHARD,
    accuracy_points,
    pass_histograms,
    prompt_histories,
    prompt_row,
    shards,
)
from verl_ext.report.run_records import RunRecords
from verl_ext.report.run_warnings import find_warnings, null_steps


def curve_blocks(table: Mapping[str, Sequence[float | None]]) -> dict[str, str]:
    """Every metric's values, one block a group."""
    return {
        f"curves-{group}": pack({name: [curves.short(value) for value in table[name]] for name in names})
        for group, names in curves.groups(table).items()
    }


def run_index(run: RunRecords, views: Sequence[str]) -> dict[str, Any]:
    """The index block's value.

    Args:
        run: What to show.
        views: Those that this run has data for.
    """
    table = curves.columns(run.metrics)
    found = find_warnings(
        table,
        nulls=null_steps(run.metrics),
        superseded=run.superseded,
        num_broken=run.num_broken,
        max_probs_diff=engine_bound(run.config),
    )
    return {
        **run_line(run, table),
        "about": [f"run folder: {run.path}"],
        "views": list(views),
        "last_write": run.last_write,
        "findings": [list(map(str, pair)) for pair in _pairs((run.summary or {}).get("findings"))],
        "overrides": run.overrides,
        "versions": versions(run),
        "warnings": [one.as_dict() for one in found],
        "phases": run_facts.phases(table),
        "phase_columns": {
            name: [curves.short(value, 4) for value in values]
            for name, values in run_facts.phase_columns(table).items()
        },
        "conservation": next(filter(None, map(run_facts.conservation, reversed(run.metrics))), None),
        "groups": curves.groups(table),
        "headlines": curves.headlines(name for name in table if name != STEP),
    }


def run_line(run: RunRecords, table: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """What the pages of one run and of several both show of a run."""
    return {
        "name": run.name,
        "recipe": run.recipe,
        "state": run_facts.state(run.summary, run.metrics),
        "numbers": {name: curves.short(value) for name, value in run_facts.numbers(run.summary, run.metrics).items()},
        "axes": {choice: [curves.short(value) for value in curves.axis(table, choice)] for choice in curves.AXES},
    }


def engine_bound(config: Mapping[str, Any]) -> float | None:
    """`engine_guard.max_probs_diff`; None without a guard."""
    guard = config.get("engine_guard")
    bound = guard.get("max_probs_diff") if isinstance(guard, dict) else None
    return bound if type(bound) in (int, float) else None


def versions(run: RunRecords) -> dict[str, str]:
    """Package -> version, as far as the folder tells."""
    runtime = run.hydra.get("runtime")
    hydra = runtime.get("version") if isinstance(runtime, dict) else None
    return ({"hydra": str(hydra)} if hydra else {}) | run.versions


def curriculum_blocks(run: RunRecords, events: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """`curriculum` and `prompts-{p}`; empty for a run of another recipe."""
    flows = [flow for record in run.metrics if (flow := run_facts.conservation(record)) is not None]
    histories = prompt_histories(events)
    if not flows and not histories:
        return {}
    before = (run.summary or {}).get("val_accuracy_before")
    names = [name for name, _, _ in flows[-1]["rows"]] if flows else []
    value = {
        "histograms": pass_histograms(run.metrics),
        "accuracy": accuracy_points(run.metrics, before if type(before) in (int, float) else None),
        "flow": {
            "steps": [flow["step"] for flow in flows],
            "generated": [flow["generated"] for flow in flows],
            "counts": {
                name: [next((row[1] for row in flow["rows"] if row[0] == name), None) for flow in flows]
                for name in names
            },
        },
        "events": EVENTS,
        "shard": SHARD,
        "prompts": [prompt_row(prompt, history) for prompt, history in histories.items()],
    }
    parts = {f"prompts-{place}": pack(part) for place, part in enumerate(shards(histories))}
    return {"curriculum": pack(value)} | parts


def _pairs(value: Any) -> list[Any]:
    return [pair for pair in value if isinstance(pair, list) and len(pair) == 2] if isinstance(value, list) else []
