"""Rows and table of `fast_dapo_leaderboard.py`'s reported runs. Pure: numpy and scipy.

A result is a run as in `leaderboard_protocol.py`. A seed that never reached a target counts with what it had used at
its end, so that means with such a seed are lower bounds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from efficiency_report import TARGETS, at_target, smoothed
from leaderboard_protocol import BASELINES, METHODS, Job, Result, score
from scipy.stats import bootstrap

from verl_ext.evaluation.statistics.estimates import CONFIDENCE, NUM_RESAMPLES, bootstrap_mean

# A token that is generated to a token that is trained on.
PRICES = ((1, 1), (1, 3), (3, 1))
# A run collapses if its accuracy falls by so much after the last target.
COLLAPSE = 0.03

Interval = tuple[float, float]


def name_of(gain: float) -> str:
    """A target as results.json names it: +15."""
    return f"+{round(100 * gain)}"


def by_method(results: Sequence[Result]) -> dict[str, list[Result]]:
    """In order of appearance."""
    names = dict.fromkeys(result["job"]["method"] for result in results)
    return {name: [result for result in results if result["job"]["method"] == name] for name in names}


def row(result: Result) -> dict[str, Any]:
    """What results.json says of a run; null where a target was not reached."""
    job, last = result["job"], result["history"][-1]
    return {
        "method": job["method"],
        "pool": job["pool"],
        "seed": job["seed"],
        "settings": job["settings"],
        "rollouts_generated": _by_target(result, "rollouts"),
        "rollouts_trained": _by_target(result, "trained"),
        "tokens_generated": _by_target(result, "tokens"),
        "tokens_trained": _by_target(result, "trained_tokens"),
        "final_accuracy": last["accuracy"],
        "accuracy_by_domain": last["accuracy_by_domain"],
    }


def _by_target(result: Result, column: str) -> dict[str, int | None]:
    values = {name_of(gain): at_target(result, gain, column) for gain in TARGETS}
    return {name: None if np.isnan(value) else int(value) for name, value in values.items()}


@dataclass(frozen=True)
class Needed:
    """What each seed needed to reach a target, of those that did not what they had used.

    Attributes:
        reached: Seeds that did.
    """

    by_seed: tuple[float, ...]
    reached: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.by_seed))

    @property
    def is_bound(self) -> bool:
        """Whether the mean is a lower bound only."""
        return self.reached < len(self.by_seed)

    def interval(self) -> Interval | None:
        """95 % bootstrap interval of the mean over seeds; None for a single seed."""
        found = bootstrap_mean(self.by_seed)
        return None if found.low is None or found.high is None else (found.low, found.high)


def needed(results: Sequence[Result], gain: float, prices: Mapping[str, float]) -> Needed:
    """The seeds' need of columns, each times its price: {"rollouts": 1.0}."""
    values, reached = [], 0
    for result in results:
        costs = {column: at_target(result, gain, column) for column in prices}
        if np.isnan(list(costs.values())).any():
            # Of a run whose budget is rollouts, all of these.
            budget = {} if result["job"]["price"] else {"rollouts": result["job"]["budget"]}
            costs = {column: budget.get(column, result["history"][-1][column]) for column in prices}
        else:
            reached += 1
        values.append(float(sum(price * costs[column] for column, price in prices.items())))
    return Needed(tuple(values), reached)


@dataclass(frozen=True)
class Ratio:
    """A mean by another.

    Attributes:
        sign: "" or what the ratio is a bound of: ">" it may be more, "<" it may be less, "?" both.
    """

    value: float
    interval: Interval | None
    sign: str


def ratio(over: Needed, under: Needed) -> Ratio:
    """How many times as much `over` needs, with a 95 % bootstrap interval over the seeds of both."""
    signs = {(False, False): "", (True, False): ">", (False, True): "<", (True, True): "?"}
    interval = None
    if min(len(over.by_seed), len(under.by_seed)) > 1:
        found = bootstrap(
            (over.by_seed, under.by_seed),
            lambda x, y, axis: np.mean(x, axis) / np.mean(y, axis),
            n_resamples=NUM_RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
        interval = float(found.low), float(found.high)
    return Ratio(over.mean / under.mean, interval, signs[over.is_bound, under.is_bound])


def largest_fall(result: Result) -> float | None:
    """How far the accuracy fell after the last target; None where it was not reached or the run ended there.

    Both accuracies are means of three looks.
    """
    reached = at_target(result, TARGETS[-1], "rollouts")
    history = result["history"]
    if np.isnan(reached) or not result["job"]["after"]:
        return None
    place = next(place for place, look in enumerate(history) if look["rollouts"] == reached)
    later = [smoothed(history, end) for end in range(place, len(history))]
    return later[0] - min(later)


@dataclass(frozen=True)
class Line:
    """A method on a pool: a line of the table.

    Attributes:
        rollouts: Generated, by target.
        trained: Rollouts trained on until the last target, each as often as it was in an update.
        gain: How many times fewer rollouts than tuned uniform to the last target; None without uniform.
        costs: Relative to tuned uniform to the last target, for each of `PRICES`.
        falls: Of the seeds that went on after the last target.
    """

    job: Job
    rollouts: Mapping[str, Needed]
    trained: Needed
    gain: Ratio | None
    costs: Sequence[Ratio | None]
    falls: Sequence[float]


def best_uniform(results: Sequence[Result]) -> str | None:
    """The better of the tuned uniform methods, on the reported seeds; None if there is none."""
    methods = by_method(results)
    found = {name: score(methods[name], methods[name][0]["job"]["budget"]) for name in BASELINES if name in methods}
    return min(found, key=lambda name: found[name]) if found else None


def lines(results: Sequence[Result]) -> list[Line]:
    """The methods on one pool, best first."""
    methods = by_method(results)
    uniform = best_uniform(results)
    last = TARGETS[-1]

    def relative(own: Sequence[Result], prices: Mapping[str, float]) -> Ratio | None:
        return ratio(needed(own, last, prices), needed(methods[uniform], last, prices)) if uniform else None

    found = []
    for own in sorted(methods.values(), key=lambda own: score(own, own[0]["job"]["budget"])):
        rollouts = {name_of(gain): needed(own, gain, {"rollouts": 1.0}) for gain in TARGETS}
        falls = [largest_fall(result) for result in own]
        line = Line(
            job=Job.from_json(own[0]["job"]),
            rollouts=rollouts,
            trained=needed(own, last, {"trained": 1.0}),
            gain=ratio(needed(methods[uniform], last, {"rollouts": 1.0}), rollouts[name_of(last)]) if uniform else None,
            costs=[relative(own, {"tokens": made, "trained_tokens": trained}) for made, trained in PRICES],
            falls=[fall for fall in falls if fall is not None],
        )
        found.append(line)
    return found


def render(results: Sequence[Result]) -> str:
    """A Markdown table of the methods on one pool."""
    head = ["method", "prompts x rollouts", "rate", "updates", "reached", *(name_of(gain) for gain in TARGETS)]
    head += ["x uniform", f"trained to {name_of(TARGETS[-1])}"]
    head += [f"cost {made}:{trained}" for made, trained in PRICES] + ["collapses"]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    uniform = best_uniform(results)
    for line in lines(results):
        settings, last = line.job.settings, line.rollouts[name_of(TARGETS[-1])]
        cells = [METHODS[line.job.method].title, f"{settings.batch} x {settings.group}"]
        cells += [f"{settings.learning_rate:g}", f"{settings.updates}", f"{last.reached} of {len(last.by_seed)}"]
        cells += [_thousands(value) for value in line.rollouts.values()]
        if line.job.method == uniform:
            cells += ["1", _thousands(line.trained), *["1"] * len(PRICES)]
        else:
            cells += [ratio_text(line.gain), _thousands(line.trained)]
            cells += [ratio_text(cost, with_interval=False) for cost in line.costs]
        cells.append(_collapses(line.falls))
        table.append("| " + " | ".join(cells) + " |")
    return "\n".join(table)


def _thousands(value: Needed) -> str:
    text = f"{'>' * value.is_bound}{value.mean / 1000:.1f}k"
    interval = value.interval()
    return text if interval is None else f"{text} [{interval[0] / 1000:.1f}, {interval[1] / 1000:.1f}]"


def ratio_text(value: Ratio | None, *, with_interval: bool = True) -> str:
    """1.23 [1.10, 1.40], with its sign."""
    if value is None:
        return "-"
    text = f"{value.sign}{value.value:.2f}"
    if value.interval is None or not with_interval:
        return text
    return f"{text} [{value.interval[0]:.2f}, {value.interval[1]:.2f}]"


def _collapses(falls: Sequence[float]) -> str:
    if not falls:
        return "-"
    return f"{sum(fall > COLLAPSE for fall in falls)} of {len(falls)} (at most {100 * max(falls):.1f} points)"


def write_report(folder: Path, results: Sequence[Result], protocol: str) -> str:
    """Write results.json, summary.json, leaderboard.md and curves*.svg into `folder`; returns the Markdown."""
    from leaderboard_plot import plot
    from leaderboard_summary import summarize, write

    pools = dict.fromkeys(result["job"]["pool"] for result in results)
    seconds = {name: sum(result["seconds"][name] for result in results) for name in results[0]["seconds"]}
    shares = ", ".join(f"{name} {100 * value / sum(seconds.values()):.0f} %" for name, value in seconds.items())
    parts = ["# Leaderboard: rollouts generated to a gain in accuracy", protocol]
    for pool in pools:
        own = [result for result in results if result["job"]["pool"] == pool]
        base = own[0]["history"][0]["accuracy"]
        parts += [f"## Pool {pool}", f"Accuracy of the base model: {base:.3f}.", render(own)]
    parts.append(f"Processor time of these runs: {sum(seconds.values()) / 3600:.2f} hours ({shares}).")
    text = "\n\n".join(parts) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(row(result)) for result in results)
    (folder / "results.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    (folder / "leaderboard.md").write_text(text, encoding="utf-8")
    write(folder / "summary.json", summarize(results))
    plot(results, folder / "curves.svg")
    for pool in pools:
        plot([result for result in results if result["job"]["pool"] == pool], folder / f"curves_{pool}.svg")
    return text
