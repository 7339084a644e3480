"""Texts that a run of golden redaction wrote at its start and at its end. Reads a few lines only."""

from collections import Counter
from pathlib import Path
from typing import Any

from recipe.golden_redaction.run_files import ENTRIES
from verl_ext.report.recipe_pages import Samples
from verl_ext.report.run_records import first_lines, last_lines, parse_lines
from verl_ext.report.run_samples import MAX_CHARACTERS

NUM_ENTRIES = 4  # states at each end
NUM_ROLLOUTS = 4  # of a state, one an action first


def read_samples(folder: Path) -> Samples:
    """Of the first and the last states of a run folder; both empty if it has none."""
    path = folder / ENTRIES
    if not path.is_file():
        return {"start": [], "end": []}
    ends = {"start": first_lines(path, NUM_ENTRIES), "end": last_lines(path, NUM_ENTRIES)}
    return {
        end: [sample for entry in parse_lines(lines)[0] for sample in _entry_samples(entry)]
        for end, lines in ends.items()
    }


def _entry_samples(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The first rollout of each action, then the second ones, up to `NUM_ROLLOUTS`; equal ones count as one."""
    actions = [action for action in entry.get("actions", ()) if isinstance(action, dict)]
    ranked = [
        (place, rollout)
        for action in actions
        for place, rollout in enumerate(action.get("rollouts", ()))
        if isinstance(rollout, dict) and isinstance(rollout.get("text"), str)
    ]
    ranked.sort(key=lambda pair: pair[0])
    times = Counter(rollout["text"] for _, rollout in ranked)
    first = {rollout["text"]: rollout for _, rollout in reversed(ranked)}
    return [
        {
            "step": entry.get("step"),
            "where": f"problem {entry.get('problem')}, hidden tokens: {entry.get('k')}",
            "prompt": None,
            "text": text[:MAX_CHARACTERS],
            "reward": first[text].get("reward"),
            "notes": ", ".join(
                [f"{times[text]} of {len(ranked)} rollouts", *map(str, first[text].get("statuses", ()))]
            ),
        }
        for text in list(dict.fromkeys(rollout["text"] for _, rollout in ranked))[:NUM_ROLLOUTS]
    ]
