"""The curriculum's view of a run's page, and the fate of its rollouts."""

from collections.abc import Mapping
from typing import Any

from recipe.fast_dapo.pages.curriculum_data import (
    EVENTS,
    SHARD,
    STATES,
    accuracy_points,
    most_mixed_first,
    pass_histograms,
    prompt_histories,
    prompt_row,
    prompt_texts,
    shards,
    source_rows,
)
from recipe.fast_dapo.run_files import PROMPT_TEXTS, PROMPTS
from verl_ext.report.blocks import pack
from verl_ext.report.run_records import RunRecords, read_objects
from verl_ext.run.metrics_stream import STEP

GENERATED = "curriculum/total/generated_rollouts"

# Fates of a generated rollout: (name, metric, meaning).
_FATES = (
    ("trained", "curriculum/total/trained_rollouts", "handed to the trainer"),
    (
        "uninformative",
        "curriculum/total/uninformative_rollouts",
        "of prompts dropped because their screening was not mixed",
    ),
    ("buffered", "curriculum/buffered_rollouts", "finished, of prompts that are waiting or in flight"),
    ("expired", "curriculum/total/expired_rollouts", "dropped: older than max_staleness, or the buffer was full"),
    ("failed", "curriculum/total/failed_rollouts", "of incomplete generation calls and of prompts given up"),
    ("set aside", "curriculum/total/set_aside_rollouts", "screening rollouts that continuation_only does not train on"),
)


def curriculum_blocks(run: RunRecords) -> dict[str, str]:
    """`curriculum`: histograms, accuracy, conservation over time, one row per prompt and data source; `prompts-{p}`:
    histories and texts of `SHARD` prompts. Empty for a run without a curriculum.
    """
    events, _ = read_objects(run.path / PROMPTS)
    flows = [flow for record in run.metrics if (flow := conservation(record)) is not None]
    histories = prompt_histories(events)
    texts = prompt_texts(read_objects(run.path / PROMPT_TEXTS)[0])
    if not flows and not histories:
        return {}
    rows = [prompt_row(prompt, history, texts.get(prompt)) for prompt, history in histories.items()]
    shard_of = {row.prompt: place // SHARD for place, row in enumerate(rows)}
    names = [name for name, _, _ in flows[-1]["rows"]] if flows else []
    value = {
        "histograms": pass_histograms(run.metrics),
        "accuracy": accuracy_points(run.metrics),
        "flow": {
            "steps": [flow["step"] for flow in flows],
            "generated": [flow["generated"] for flow in flows],
            "counts": {
                name: [next((row[1] for row in flow["rows"] if row[0] == name), None) for flow in flows]
                for name in names
            },
        },
        "events": EVENTS,
        "states": STATES,
        "has_texts": bool(texts),
        "sources": source_rows(rows),
        "prompts": [[*row, shard_of[row.prompt]] for row in most_mixed_first(rows)],
    }
    details = {name: {"events": own, "text": texts.get(name)} for name, own in histories.items()}
    parts = {f"prompts-{place}": pack(part) for place, part in enumerate(shards(details))}
    return {"curriculum": pack(value)} | parts


def conservation_of_run(run: RunRecords) -> dict[str, Any] | None:
    """`conservation` of the last record that has it."""
    return next(filter(None, map(conservation, reversed(run.metrics))), None)


def conservation(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where the rollouts of Fast DAPO went up to a step; None for a recipe without these counts.

    Returns:
        `step`, `generated`, `rows` of [name, rollouts, why], and `unaccounted`: generated minus all rows.
    """
    generated = record.get(GENERATED)
    if not isinstance(generated, int | float):
        return None
    rows = [(name, record[metric], why) for name, metric, why in _FATES if type(record.get(metric)) in (int, float)]
    left = generated - sum(count for _, count, _ in rows)
    return {"step": record.get(STEP), "generated": generated, "rows": rows, "unaccounted": left}
