"""Texts that a run wrote at its start and at its end, from the files that keep some. Reads a few lines only."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from verl_ext.report.run_records import RunRecords, first_lines, last_lines, parse_lines

NUM_ENTRIES = 4  # states of golden redaction at each end
NUM_ROLLOUTS = 4  # of a state, one an action first
NUM_TEXTS = 12  # of verl's files at each end
MAX_CHARACTERS = 20_000  # of a text


def read_samples(run: RunRecords) -> dict[str, list[dict[str, Any]]]:
    """`start` and `end`: samples of {step, where, text, reward, notes, prompt}; both are empty if it keeps no texts."""
    for found in (_of_entries(run.folder.golden_entries), _of_dumps(_dump_folder(run))):
        if found["start"]:
            return found
    return {"start": [], "end": []}


def _of_entries(path: Path) -> dict[str, list[dict[str, Any]]]:
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


def _dump_folder(run: RunRecords) -> Path | None:
    """Where verl's `trainer.rollout_data_dir` wrote `{step}.jsonl`; relative ones are looked for in the run folder."""
    trainer = run.config.get("trainer")
    name = trainer.get("rollout_data_dir") if isinstance(trainer, dict) else None
    if not isinstance(name, str) or not name:
        return None
    name = name.replace("${run_dir}", ".")
    return next((folder for folder in (run.path / name, Path(name)) if folder.is_dir()), None)


def _of_dumps(folder: Path | None) -> dict[str, list[dict[str, Any]]]:
    found = folder.glob("*.jsonl") if folder else ()
    files = {int(path.stem): path for path in found if re.fullmatch(r"\d+", path.stem)}
    if not files:
        return {"start": [], "end": []}
    return {
        end: [_dump_sample(step, one) for one in parse_lines(first_lines(files[step], NUM_TEXTS))[0]]
        for end, step in (("start", min(files)), ("end", max(files)))
    }


def _dump_sample(step: int, record: dict[str, Any]) -> dict[str, Any]:
    score = record.get("score")
    return {
        "step": step,
        "where": "",
        "prompt": _text(record.get("input")),
        "text": _text(record.get("output")) or "",
        "reward": score if type(score) in (int, float) else None,
        "notes": f"expected {_text(record['gts'])}" if record.get("gts") is not None else "",
    }


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:MAX_CHARACTERS]
