"""Texts that a run wrote at its start and at its end, from the files that keep some. Reads a few lines only."""

import json
import re
from pathlib import Path
from typing import Any

from verl_ext.report.recipe_pages import Samples, all_pages
from verl_ext.report.run_records import RunRecords, first_lines, parse_lines

NUM_TEXTS = 12  # of verl's files at each end
MAX_CHARACTERS = 20_000  # of a text


def read_samples(run: RunRecords) -> Samples:
    """`start` and `end`, of a recipe's own files or else of verl's; both are empty if the folder keeps no texts."""
    for pages in all_pages():
        if pages.samples is not None and (found := pages.samples(run.path))["start"]:
            return found
    return _of_dumps(_dump_folder(run))


def _dump_folder(run: RunRecords) -> Path | None:
    """Where verl's `trainer.rollout_data_dir` wrote `{step}.jsonl`; relative ones are looked for in the run folder."""
    trainer = run.config.get("trainer")
    name = trainer.get("rollout_data_dir") if isinstance(trainer, dict) else None
    if not isinstance(name, str) or not name:
        return None
    name = name.replace("${run_dir}", ".")
    return next((folder for folder in (run.path / name, Path(name)) if folder.is_dir()), None)


def _of_dumps(folder: Path | None) -> Samples:
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
