"""The results of an evaluation as a table, as JSON and as a picture.

The names are lighteval's: avg@n over all n samples of each prompt, pass@k and maj@k for any k up to n. verl's
validation logs the same quantities as mean@n, best@k/mean (resampled with replacement, so slightly lower) and
maj@k/mean.

P = prompts, G = samples of a prompt.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_ext.evaluation.statistics.estimates import (
    Estimate,
    bootstrap_macro_mean,
    bootstrap_mean,
    macro_repeat_error,
    repeat_error,
)
from verl_ext.evaluation.statistics.majority_vote import majority_at_k
from verl_ext.evaluation.statistics.pass_rates import NUM_BINS, PassRateSummary, pass_at_k, summarize
from verl_ext.evaluation.statistics.samples import ScoredResponse

MACRO_AVERAGE = "macro average"

# Threshold of a success, for `acc` if the reward function reports it, otherwise for `score`.
SUCCESS_THRESHOLD = 1.0

_COLUMNS = ("data set", "metric", "mean", "95 % interval", "error over repeats")


@dataclass(frozen=True)
class DataSetResult:
    """Result of one data set.

    Attributes:
        name: Short name.
        file: The data file as given.
        summary: Summary over all prompts.
        estimates: Mean over prompts with its interval, by metric: pass@k; maj@k if the reward function reports the
            extracted answers; avg@n, the mean reward of all n samples; response_length in tokens; truncated, the share
            of responses that the length limit cut off; and the shares 0/n and n/n of the prompts without and with only
            right samples.
        repeat_errors: Standard error over repeats of the metrics that are means over samples; None for n = 1.
        groups: Summary by the value of a field of `extra_info`; empty without one.
        mean_score: Mean of the reward function's `score` over all samples.
        prompts: `index`, `num_correct`, `num_samples`, `mean_score` and the metrics of each prompt, in
            the file's order.
    """

    name: str
    file: str
    summary: PassRateSummary
    estimates: dict[str, Estimate]
    repeat_errors: dict[str, float | None]
    groups: dict[str, PassRateSummary]
    mean_score: float
    prompts: list[dict[str, Any]]


@dataclass(frozen=True)
class EvaluationResult:
    """All data sets and, if there are several, the mean of their estimates with equal weights."""

    data_sets: list[DataSetResult]
    macro_average: dict[str, Estimate]
    macro_repeat_errors: dict[str, float | None]


def summarize_data_set(
    name: str,
    file: str,
    indices_P: Sequence[int | str],
    samples_P: Sequence[Sequence[ScoredResponse]],
    ks: Sequence[int],
    groups_P: Sequence[str] | None = None,
    success_threshold: float = SUCCESS_THRESHOLD,
) -> DataSetResult:
    """Result of one data set.

    Args:
        name: Short name.
        file: The data file as given.
        indices_P: `extra_info.index` of each prompt.
        samples_P: Samples of each prompt, the same number per prompt.
        ks: The k of pass@k and maj@k.
        groups_P: A label of each prompt to break the result down by.
        success_threshold: A sample whose reward is at least this is right.

    Raises:
        ValueError: If there are no prompts or a k is larger than the number of samples.
    """
    num_samples = len(samples_P[0]) if samples_P else 0
    correct_PG = [[sample.reward >= success_threshold for sample in samples] for samples in samples_P]
    correct_P = [sum(correct) for correct in correct_PG]
    over_samples_PG = {
        f"avg@{num_samples}": [[sample.reward for sample in samples] for samples in samples_P],
        "response_length": [[float(sample.num_tokens) for sample in samples] for samples in samples_P],
        "truncated": [[float(sample.truncated) for sample in samples] for samples in samples_P],
    }
    metrics_P = {f"pass@{k}": pass_at_k(correct_P, num_samples, k).tolist() for k in ks}
    if all(sample.pred is not None for samples in samples_P for sample in samples):
        for k in ks:
            if k > 1:  # maj@1 is pass@1
                metrics_P[f"maj@{k}"] = [
                    majority_at_k([str(s.pred) for s in samples], correct, k)
                    for samples, correct in zip(samples_P, correct_PG, strict=True)
                ]
    metrics_P |= {metric: [sum(values) / num_samples for values in PG] for metric, PG in over_samples_PG.items()}
    shares_P = {
        "0/n": [float(correct == 0) for correct in correct_P],
        "n/n": [float(correct == num_samples) for correct in correct_P],
    }
    scores_P = [sum(sample.score for sample in samples) / num_samples for samples in samples_P]
    by_group: dict[str, list[int]] = {}
    for label, correct in zip(groups_P or (), correct_P, strict=groups_P is not None):
        by_group.setdefault(label, []).append(correct)
    return DataSetResult(
        name=name,
        file=file,
        summary=summarize(correct_P, num_samples, ks),
        estimates={metric: bootstrap_mean(values_P) for metric, values_P in (metrics_P | shares_P).items()},
        repeat_errors={metric: repeat_error(values_PG) for metric, values_PG in over_samples_PG.items()},
        groups={label: summarize(counts, num_samples, ks) for label, counts in sorted(by_group.items())},
        mean_score=sum(scores_P) / len(scores_P),
        prompts=[
            {
                "index": index,
                "num_correct": correct_P[number],
                "num_samples": num_samples,
                "mean_score": scores_P[number],
                **{metric: values_P[number] for metric, values_P in metrics_P.items()},
            }
            for number, index in enumerate(indices_P)
        ],
    )


def combine(data_sets: Sequence[DataSetResult]) -> EvaluationResult:
    """All results and their macro average, over the metrics that every data set has."""
    macro: dict[str, Estimate] = {}
    errors: dict[str, float | None] = {}
    if len(data_sets) > 1:
        for metric in data_sets[0].estimates:
            if all(metric in result.estimates for result in data_sets):
                macro[metric] = bootstrap_macro_mean([_values(result, metric) for result in data_sets])
        for metric in filter(macro.__contains__, data_sets[0].repeat_errors):
            errors[metric] = macro_repeat_error([result.repeat_errors[metric] for result in data_sets])
    return EvaluationResult(list(data_sets), macro, errors)


def _values(result: DataSetResult, metric: str) -> list[float]:
    if metric in ("0/n", "n/n"):
        target = 0 if metric == "0/n" else 1
        return [float(prompt["num_correct"] == target * prompt["num_samples"]) for prompt in result.prompts]
    return [prompt[metric] for prompt in result.prompts]


def _table(result: EvaluationResult) -> list[str]:
    """Lines with aligned columns: one row per metric and data set, then for the macro average."""
    parts = [(data_set.name, data_set.estimates, data_set.repeat_errors) for data_set in result.data_sets]
    if result.macro_average:
        parts.append((MACRO_AVERAGE, result.macro_average, result.macro_repeat_errors))
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for name, estimates, errors in parts:
        for number, (metric, estimate) in enumerate(estimates.items()):
            error = errors.get(metric)
            shown = "" if error is None else f"{error:.4f}"
            rows.append((name if number == 0 else "", metric, f"{estimate.value:.4f}", estimate.interval(), shown))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def render(result: EvaluationResult, by: str | None = None) -> str:
    """The result as text: a table of all estimates, then the histogram of each data set."""
    lines = _table(result)
    for data_set in result.data_sets:
        summary = data_set.summary
        lines += ["", f"{data_set.name}: {summary.num_prompts} prompts, {summary.num_samples} samples"]
        length, truncated = data_set.estimates["response_length"], data_set.estimates["truncated"]
        cut_off = f"{100 * truncated.value:.1f} % of the responses cut off"
        lines.append(f"mean score {data_set.mean_score:.4f}, mean length {length.value:.1f} tokens, {cut_off}")
        lines.append(f"pass rates, {100 * summary.histogram.mixed:.1f} % of the prompts between 0/n and n/n:")
        lines.append(summary.histogram.render())
        for label, group in data_set.groups.items():
            shares = f"0/n {100 * group.histogram.zeros:.1f} %, n/n {100 * group.histogram.ones:.1f} %"
            lines.append(f"{by}={label}: {group.num_prompts} prompts, pass@1 {group.pass_rate:.4f}, {shares}")
    return "\n".join(lines)


def write_json(result: EvaluationResult, settings: Mapping[str, Any], path: Path) -> None:
    """Settings and result as JSON; a number that does not exist (an interval of one prompt) is null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"settings": dict(settings), **dataclasses.asdict(result)}
    path.write_text(json.dumps(_without_nan(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def write_plot(result: EvaluationResult, path: Path) -> None:
    """The histograms of the pass rates as a PNG picture, one panel per data set, with the ends separate from the
    bins."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(len(result.data_sets), 3)
    rows = -(-len(result.data_sets) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    positions = [-1.0, *(number + 0.5 for number in range(NUM_BINS)), NUM_BINS + 1.0]
    colors = ["#b04a3f", *["#3f6fb0"] * NUM_BINS, "#4f8f4f"]
    for number, panel in enumerate(panels.flat):
        if number >= len(result.data_sets):
            panel.set_visible(False)
            continue
        data_set = result.data_sets[number]
        histogram = data_set.summary.histogram
        shares = [100 * share for share in (histogram.zeros, *histogram.bins, histogram.ones)]
        bars = panel.bar(positions, shares, width=0.94, color=colors)
        panel.bar_label(bars, [f"{share:.0f}" if share >= 0.5 else "" for share in shares], fontsize=7)
        panel.set_xticks([-1, *range(0, NUM_BINS + 1, 2), NUM_BINS + 1])
        panel.set_xticklabels(
            ["0/n", *(f"{tick / NUM_BINS:.1f}" for tick in range(0, NUM_BINS + 1, 2)), "n/n"], fontsize=8
        )
        estimate = data_set.estimates.get("pass@1", Estimate(data_set.summary.pass_rate))
        panel.set_title(
            f"{data_set.name}: {data_set.summary.num_prompts} prompts\npass@1 {estimate.render()}", fontsize=9
        )
        panel.set_xlabel("pass rate of a prompt")
        panel.spines[["top", "right"]].set_visible(False)
        if number % columns == 0:
            panel.set_ylabel("share of the prompts (%)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, format="png")
