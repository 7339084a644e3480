"""Tables of `golden_baselines.py`: the ladder, what it cost, and arms at the same pass rate. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from golden_baselines_protocol import ARMS, Job, Result

from recipe.golden_redaction.evaluation.states import FRESH, SAME, UNSEEN, WHOLE
from verl_ext.evaluation.statistics.estimates import Estimate, bootstrap_mean

BASELINE = "sft"
LEVEL = 0.5  # pass rate of whole solutions at which arms are compared
RUNGS = {SAME: "visited states", WHOLE: "whole solution", FRESH: "and every fresh pair", UNSEEN: "other tasks"}
DRIFTS = {"drift": "drift, others' solutions", "drift_prompts": "drift, prompts"}
COSTS = {
    "rollouts": "rollouts",
    "generated": "tokens generated",
    "without_gradient": "positions read",
    "with_gradient": "positions trained on",
    "updates": "updates",
    "programs": "programs",
    "seconds": "processor seconds",
    "passes": "passes",
}


def row(result: Result) -> dict[str, Any]:
    """What is reported of a run: its job, what it cost, the ladder, and where its last look found it."""
    last = result["looks"][-1]
    return {
        "job": result["job"],
        "trained": result["trained"],
        "cost": last["cost"],
        "ladder": result["ladder"],
        **{name: last[name] for name in ("golden", "golden_others", "pass", "pass_others", *DRIFTS)},
        "at_level": at_level(result, LEVEL),
    }


def at_level(result: Result, level: float) -> dict[str, Any] | None:
    """A run where whole solutions first pass that often, between its looks; None if they never do.

    Returns:
        `pass_others`, drifts, and the cost's `passes` and `seconds`, in a line between the two looks around it.
    """
    looks = result["looks"]
    place = next((place for place, look in enumerate(looks) if look["pass"] >= level), None)
    if place is None:
        return None
    later, earlier = looks[place], looks[max(place - 1, 0)]
    way = later["pass"] - earlier["pass"]
    share = (level - earlier["pass"]) / way if way else 1.0

    def between(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None else before + share * (after - before)

    found = {name: between(earlier[name], later[name]) for name in ("pass_others", *DRIFTS)}
    return found | {name: between(earlier["cost"][name], later["cost"][name]) for name in ("passes", "seconds")}


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Mean over seeds, with its 95 % bootstrap interval; None if no seed has a value."""
    known = [value for value in values if value is not None]
    return bootstrap_mean(known) if known else None


def cell(value: Estimate | None, digits: int = 3) -> str:
    """For example ".413 [.381, .444]"; "-" for nothing."""
    if value is None:
        return "-"
    if value.low is None or value.high is None:
        return f"{value.value:.{digits}f}"
    return f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


# ------------------------------ tables ------------------------------


def _by_arm(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Rows by arm, in the order of `ARMS`, and seed."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for one in sorted(rows, key=lambda one: list(ARMS).index(one["job"]["arm"])):
        found.setdefault(one["job"]["arm"], {})[one["job"]["seed"]] = one
    return found


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def _measures() -> dict[str, Callable[[Mapping[str, Any]], float | None]]:
    """What is compared of a row, by heading."""
    rungs = {title: lambda one, name=name: one["ladder"].get(name) for name, title in RUNGS.items()}
    return rungs | {title: lambda one, name=name: one[name] for name, title in DRIFTS.items()}


def ladder_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Pass rates by rung and drift, an arm a line."""
    measures = _measures()
    lines = [
        [arm, *(cell(estimate(measure(one) for one in own.values())) for measure in measures.values())]
        for arm, own in _by_arm(rows).items()
    ]
    return _table(["arm", *measures], lines)


def difference_table(rows: Sequence[Mapping[str, Any]], baseline: str = BASELINE) -> str | None:
    """Every other arm less the baseline on the same seeds; None without both."""
    by_arm, measures = _by_arm(rows), _measures()
    base = by_arm.pop(baseline, {})
    lines = []
    for arm, own in by_arm.items():
        seeds = sorted(own.keys() & base.keys())
        pairs = {title: [(measure(own[s]), measure(base[s])) for s in seeds] for title, measure in measures.items()}
        if seeds and arm != "none":
            lines.append(
                [
                    arm,
                    *(
                        cell(estimate(a - b for a, b in values if a is not None and b is not None))
                        for values in pairs.values()
                    ),
                ]
            )
    return _table([f"arm less {baseline}", *measures], lines) if lines else None


def cost_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds of everything that was spent."""
    lines = []
    for arm, own in _by_arm(rows).items():
        found = (estimate(one["cost"][name] for one in own.values()) for name in COSTS)
        lines.append([arm, *(f"{value.value:,.0f}" if value else "-" for value in found)])
    return _table(["arm", *COSTS.values()], lines)


def level_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What it took to a pass rate of `LEVEL`, and what else had moved by then."""
    lines = []
    for arm, own in _by_arm(rows).items():
        there = [one["at_level"] for one in own.values() if one["at_level"]]
        if arm != "none":
            passes = cell(estimate(one["passes"] / 1e6 for one in there))
            seconds = cell(estimate(one["seconds"] for one in there), 0)
            others = (cell(estimate(one[name] for one in there)) for name in ("pass_others", *DRIFTS))
            lines.append([arm, f"{len(there)} of {len(own)}", passes, seconds, *others])
    head = ["arm", "seeds that get there", "million passes", "processor seconds", "other tasks", *DRIFTS.values()]
    return _table(head, lines)


def render(results: Sequence[Result], description: str) -> str:
    """All tables, those of each number of solutions together."""
    rows = [row(result) for result in results]
    parts = ["# Golden redaction, SFT and GRPO", description]
    for solutions in sorted({one["job"]["solutions"] for one in rows}, reverse=True):
        own = [one for one in rows if one["job"]["solutions"] == solutions]
        parts += [f"## {solutions} golden solution{'s' * (solutions > 1)}", "The ladder at the end:", ladder_table(own)]
        differences = difference_table(own)
        if differences is not None:
            parts += [f"Less {BASELINE} on the same seeds:", differences]
        parts += ["What was spent:", cost_table(own)]
        parts += [f"Where whole solutions first have a pass rate of {LEVEL:g}, between two looks:", level_table(own)]
    return "\n\n".join(parts) + "\n"


def write_report(folder: Path, results: Sequence[Result], description: str, tuned: Mapping[str, Any]) -> str:
    """Write results.json and golden_baselines.md; returns the text of the latter."""
    text = render(results, description)
    jobs = [asdict(Job.from_json(result["job"])) for result in results]
    content = {
        "settings": tuned,
        "runs": [row(result) | {"job": job} for result, job in zip(results, jobs, strict=True)],
    }
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "golden_baselines.md").write_text(text, encoding="utf-8")
    return text
