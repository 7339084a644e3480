"""The policy's outputs, step by step: texts from the files of a run, limited to the size of a page.

Golden redaction's entries and verl's `trainer.rollout_data_dir` may have gigabytes, so only some lines are read.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_ext.report.recipe_pages import Sample, all_pages
from verl_ext.report.run_records import RunRecords, first_lines, parse_lines, read_objects
from verl_ext.run.rollout_texts import ROLLOUTS

MAX_TOTAL = 4_000_000  # characters of a page
MAX_CHARACTERS = 20_000  # of a text
NUM_STEPS = 60  # of verl's files, and of each
NUM_TEXTS = 16  # lines


def read_samples(run: RunRecords) -> list[Sample]:
    """Samples of a recipe's own files, otherwise of verl's and of those that every run keeps, by step. Empty without
    texts."""
    for pages in all_pages():
        if pages.samples is not None and (found := pages.samples(run.path)):
            return _in_page(found)
    kept = [_kept_sample(one) for one in read_objects(run.path / ROLLOUTS)[0]]
    return _in_page([*kept, *_without(_of_dumps(_dump_folder(run)), kept)])


def count_by_prompt(samples: Sequence[Sample]) -> dict[str, int]:
    """Prompt -> its rollouts; those without an index are left out."""
    found: Counter[str] = Counter()
    for sample in samples:
        if sample["index"] is not None:
            found[sample["index"]] += sample.get("times", 1)
    return dict(found)


def _without(dumped: Sequence[Sample], kept: Sequence[Sample]) -> list[Sample]:
    """verl's rollouts that are not among the kept ones, which have the index of their prompt."""

    def key(sample: Sample) -> tuple[Any, ...]:
        return tuple(sample[name] for name in ("step", "text", "reward"))

    known = Counter(map(key, kept))
    found = []
    for sample in dumped:
        if known[key(sample)]:
            known[key(sample)] -= 1
        else:
            found.append(sample)
    return found


def grouped(samples: Sequence[Sample]) -> list[Sample]:
    """Merge equal texts of a prompt in a step into the first of them, with the number of `times`."""
    found: dict[tuple[Any, ...], Sample] = {}
    for sample in samples:
        key = tuple(sample[name] for name in ("step", "where", "index", "prompt", "text", "reward"))
        if key in found:
            found[key]["times"] += sample.get("times", 1)
        else:
            found[key] = {**sample, "times": sample.get("times", 1)}
    return list(found.values())


def thinned(samples: Sequence[Sample], room: int) -> list[Sample]:
    """Samples of at most this many characters, from evenly spaced steps including the first and the last."""
    sizes: dict[Any, int] = {}
    for sample in samples:
        sizes[sample["step"]] = sizes.get(sample["step"], 0) + len(sample["text"]) + len(sample["prompt"] or "")
    steps = sorted(sizes)
    number = len(steps)
    while number > 1 and sum(sizes[step] for step in spread(steps, number)) > room:
        number = max(1, number * 3 // 4)
    kept = set(spread(steps, number))
    return [sample for sample in samples if sample["step"] in kept]


def spread(items: Sequence[Any], number: int) -> list[Any]:
    """This many evenly spaced items, including the last and, if there are two or more, the first."""
    if number >= len(items):
        return list(items)
    if number == 1:
        return [items[-1]]
    return [items[round(place * (len(items) - 1) / (number - 1))] for place in range(number)]


def _in_page(samples: Sequence[Sample]) -> list[Sample]:
    ordered = sorted(samples, key=lambda sample: sample["step"])
    return thinned(grouped(ordered), MAX_TOTAL)


def _kept_sample(record: dict[str, Any]) -> Sample:
    group = record.get("group")
    notes = f"one of {group.get('rollouts')} rollouts" if isinstance(group, dict) else ""
    if isinstance(group, dict) and isinstance(group.get("mean_reward"), (int, float)):
        notes += f", mean reward {group['mean_reward']:.3g}"
    return _sample(record, text="response", truth="ground_truth", reward="reward", prompt="prompt") | {
        "index": None if record.get("index") is None else str(record["index"]),
        "where": _text(record.get("data_source")) or "",
        "notes": notes,
    }


def _dump_folder(run: RunRecords) -> Path | None:
    """Where verl's `trainer.rollout_data_dir` wrote `{step}.jsonl`; relative ones are looked for in the run folder."""
    trainer = run.config.get("trainer")
    name = trainer.get("rollout_data_dir") if isinstance(trainer, dict) else None
    if not isinstance(name, str) or not name:
        return None
    name = name.replace("${run_dir}", ".")
    return next((folder for folder in (run.path / name, Path(name)) if folder.is_dir()), None)


def _of_dumps(folder: Path | None) -> list[Sample]:
    found = folder.glob("*.jsonl") if folder else ()
    files = {int(path.stem): path for path in found if re.fullmatch(r"\d+", path.stem)}
    return [
        _sample({"step": step, **one}, text="output", truth="gts", reward="score", prompt="input")
        for step in spread(sorted(files), NUM_STEPS)
        for one in parse_lines(first_lines(files[step], NUM_TEXTS))[0]
    ]


def _sample(record: dict[str, Any], *, text: str, truth: str, reward: str, prompt: str) -> Sample:
    score: Any = record.get(reward)
    step = record.get("step")
    return {
        "step": step if type(step) is int else 0,
        "index": None,
        "where": "",
        "prompt": _text(record.get(prompt)),
        "text": _text(record.get(text)) or "",
        "truth": _text(record.get(truth)),
        "reward": score if type(score) in (int, float) and abs(score) < 1e30 else None,
        "notes": "",
    }


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:MAX_CHARACTERS]
