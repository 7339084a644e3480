"""Tables of `fast_dapo_safety.py`: what a method costs or gains in each domain. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safety_protocol import BASELINE, SCENARIOS, Job, Result, final_accuracy

from verl_ext.evaluation.statistics.estimates import bootstrap_mean

BAR = -1.0  # points


@dataclass(frozen=True)
class Difference:
    """A method less uniform sampling, in one domain of a scenario; all in points of accuracy.

    Attributes:
        base: Accuracy of the base model.
        uniform: Final accuracy of uniform sampling, mean over the seeds that both have.
        method_mean: Of the method.
        by_seed: Differences of the final accuracy.
    """

    method: str
    scenario: str
    domain: str
    base: float
    uniform: float
    method_mean: float
    by_seed: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.by_seed))

    def interval(self) -> tuple[float, float] | None:
        """95 % bootstrap interval of the mean over seeds; None for a single seed."""
        found = bootstrap_mean(self.by_seed)
        return None if found.low is None or found.high is None else (found.low, found.high)

    @property
    def verdict(self) -> str:
        """Whether the bar is met: yes, with the whole interval; on average; or no."""
        if self.mean < BAR:
            return "no"
        interval = self.interval()
        return "yes" if interval is not None and interval[0] >= BAR else "on average"


def differences(results: Sequence[Result]) -> list[Difference]:
    """Of every other method from uniform sampling, by scenario and domain; only seeds that both have count."""
    final: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    base: dict[str, dict[str, float]] = {}
    for result in results:
        job = Job.from_json(result["job"])
        final.setdefault((job.scenario, job.method), {})[job.seed] = final_accuracy(result)
        base[job.scenario] = result["history"][0]["accuracy_by_domain"]
    found: list[Difference] = []
    for (scenario, method), own in final.items():
        uniform = final.get((scenario, BASELINE), {})
        seeds = sorted(own.keys() & uniform.keys())
        if method == BASELINE or not seeds:
            continue
        for domain, start in base[scenario].items():
            pairs = np.array([(own[seed][domain], uniform[seed][domain]) for seed in seeds]) * 100
            mean_own, mean_uniform = pairs.mean(0).tolist()
            by_seed = tuple((pairs[:, 0] - pairs[:, 1]).tolist())
            found.append(Difference(method, scenario, domain, 100 * start, mean_uniform, mean_own, by_seed))
    return found


def worst(found: Sequence[Difference]) -> list[Difference]:
    """Of each scenario and method, the domain with the lowest difference."""
    lowest: dict[tuple[str, str], Difference] = {}
    for difference in found:
        key = difference.scenario, difference.method
        if key not in lowest or difference.mean < lowest[key].mean:
            lowest[key] = difference
    return list(lowest.values())


def row(result: Result) -> dict[str, Any]:
    """What results.json says of a run."""
    last = result["history"][-1]
    return {
        **result["job"],
        "steps": last["step"],
        "rollouts_generated": last["rollouts"],
        "rollouts_trained": last["trained"],
        "base_accuracy": result["history"][0]["accuracy_by_domain"],
        "final_accuracy": final_accuracy(result),
    }


def render(found: Sequence[Difference]) -> str:
    """A Markdown table of all domains; the worst of a scenario is in bold."""
    lowest = worst(found)
    lines = [
        "| scenario | domain | base | uniform | method | accuracy | difference, points | at most 1 point below |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for d in found:
        scenario = SCENARIOS[d.scenario]
        domain = f"{d.domain} (hardly ever rewarded)" if d.domain in scenario.hopeless else d.domain
        interval = d.interval()
        text = f"{d.mean:+.1f}" + (f" [{interval[0]:+.1f}, {interval[1]:+.1f}]" if interval else "")
        if d in lowest:
            text = f"**{text}**"
        cells = [scenario.title, domain, f"{d.base:.1f}", f"{d.uniform:.1f}", d.method, f"{d.method_mean:.1f}", text]
        lines.append("| " + " | ".join([*cells, d.verdict]) + " |")
    return "\n".join(lines)


def summary(found: Sequence[Difference]) -> str:
    """A sentence on the bar, for each method."""
    sentences = []
    for method in dict.fromkeys(d.method for d in found):
        own = [d for d in found if d.method == method]
        below = [f"{d.scenario} ({d.domain}, {d.mean:+.1f})" for d in own if d.verdict == "no"]
        text = f"{method}: more than 1 point below uniform in {len(below)} of {len(own)} domains"
        sentences.append(f"{text}: {', '.join(below)}." if below else f"{text}.")
    return "\n".join(sentences)


def write_report(folder: Path, results: Sequence[Result], protocol: str) -> str:
    """Write results.json and safety.md into `folder`; returns the Markdown."""
    found = differences(results)
    parts = ["# Safety suite: choosing against uniform sampling, domain by domain", protocol]
    if found:
        parts += [render(found), summary(found)]
    else:
        parts.append("Nothing to compare: it takes uniform_rloo and another method.")
    seconds = sum(sum(result["seconds"].values()) for result in results)
    parts.append(f"Processor time of these runs: {seconds / 60:.0f} minutes.")
    text = "\n\n".join(parts) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    rows = {"runs": [row(result) for result in results], "differences": [_as_json(d) for d in found]}
    (folder / "results.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (folder / "safety.md").write_text(text, encoding="utf-8")
    return text


def _as_json(difference: Difference) -> dict[str, Any]:
    own = {"mean": difference.mean, "interval": difference.interval(), "verdict": difference.verdict}
    return asdict(difference) | own
