"""Texts that a golden-redaction run wrote at its start and end. Reads only a few lines."""

from pathlib import Path
from typing import Any

from recipe.golden_redaction.run_files import ENTRIES
from verl_ext.report.recipe_pages import Sample
from verl_ext.report.run_records import first_lines, last_lines, parse_lines
from verl_ext.report.run_samples import MAX_CHARACTERS

NUM_ENTRIES = 40  # states at each end


def read_samples(folder: Path) -> list[Sample]:
    """Samples of the first and last states of a run folder; empty if it has none."""
    path = folder / ENTRIES
    if not path.is_file():
        return []
    # In a short file both ends share lines.
    lines = dict.fromkeys([*first_lines(path, NUM_ENTRIES), *last_lines(path, NUM_ENTRIES)])
    return [sample for entry in parse_lines(lines)[0] for sample in _entry_samples(entry)]


def _entry_samples(entry: dict[str, Any]) -> list[Sample]:
    """Every rollout of a state, action by action."""
    step = entry.get("step")
    return [
        {
            "step": step if type(step) is int else 0,
            "index": str(entry.get("problem")),
            "where": f"hidden tokens: {entry.get('k')}",
            "prompt": None,
            "text": rollout["text"][:MAX_CHARACTERS],
            "truth": None,
            "reward": rollout.get("reward"),
            "notes": ", ".join(dict.fromkeys(map(str, rollout.get("statuses", ())))),
        }
        for action in entry.get("actions", ())
        if isinstance(action, dict)
        for rollout in action.get("rollouts", ())
        if isinstance(rollout, dict) and isinstance(rollout.get("text"), str)
    ]
