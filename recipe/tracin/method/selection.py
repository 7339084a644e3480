"""Which samples of a step are trained on, given their influence scores. Pure: numpy.

The score of sample i is s_i = <grad L_i, grad L_val>, the first-order decrease of the validation loss by a step along
-grad L_i: **s_i > 0 means that training on sample i lowers the validation loss**. L_i is the sample's exact
contribution to verl's loss (with the mini-batch's own denominator), so scores of one mini-batch add up.

Leaving samples out affects two more things, each with a setting:

- *Baselines.* `before`: advantages stay those of the whole group, as they were scored. `after`: they are
  centred again among the kept siblings (`recentre`). A kept sample's advantage can then change its sign, and with it
  the sign of its influence.
- *Denominators.* What the loss is divided by when rows are missing; see `denominators.py`.

A prompt can be selected as a whole (`unit: prompt`): the score of its rollouts' summed gradient is the sum of theirs.

B: samples of a step.

Sources: Pruthi et al. (2020), Estimating training data influence by tracing gradient descent, arXiv:2002.08484 (TracIn:
the inner product of the two gradients at one checkpoint, section 3.2); GradAlign selects whole problems, by the cosine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from pydantic import Field

from verl_ext.core.settings import Settings
from verl_ext.influence.method.denominators import Denominator

Rule = Literal["positive", "top_fraction", "soft", "random", "none"]
RULES: tuple[Rule, ...] = get_args(Rule)
Unit = Literal["rollout", "prompt"]
Divisibility = Literal["pad", "drop"]
DIVISIBILITIES: tuple[Divisibility, ...] = get_args(Divisibility)
# Rules that decide on a sample only by its own score, before the others are known.
PER_SAMPLE_RULES = ("positive", "none")
# verl's estimators whose advantages are (reward - group's mean) times a factor of the group or of the batch, and one
# number per sample: those that `recentre` supports.
CENTRED_BY_GROUP = (
    "grpo",
    "grpo_vectorized",
    "rloo",
    "rloo_vectorized",
    "gpg",
    "reinforce_plus_plus_baseline",
)

_QUANTILES = (5, 25, 50, 75, 95)


class SelectionSettings(Settings):
    """Settings of `select` and its effects."""

    rule: Rule = "positive"
    """positive: samples whose score is above 0: training on them lowers the validation loss.
    top_fraction: the highest scores, whatever their sign.
    soft: advantages weighted by clip(score / scale, 0, 1).
    random: the number that positive would keep, drawn at random, as a control.
    none: scores are only recorded, everything is kept."""

    unit: Unit = "rollout"
    """What is selected. rollout: each by its own score. prompt: all rollouts of a prompt or none, by the sum of their
    scores; top_fraction, min_keep and random then count prompts."""

    top_fraction: float = Field(default=0.5, gt=0, le=1)
    """Share that top_fraction keeps."""

    soft_scale: float = Field(default=0.5, gt=0, le=1)
    """Quantile of the step's positive scores at which a soft weight reaches 1; 1: the maximum."""

    min_keep: int = Field(default=0, ge=0)
    """Minimum number of samples kept: the best of the others are added, even with negative scores. 0: no minimum; a
    step with no selected sample makes no update."""

    baseline: Literal["before", "after"] = "before"
    """before: advantages of the whole group, as they were scored. after: centred again among the kept siblings; a
    single survivor gets 0. A sample's advantage can change its sign."""

    denominator: Denominator = "kept"
    """What the loss is divided by. kept: the mean over the kept samples. all: the sum of the kept samples'
    contributions to the loss of all samples."""

    divisibility: Divisibility = "pad"
    """pad: rows stay where they are, masked, so mini-batches keep their sizes.
    drop: rows are removed, along with the worst selected ones until the rest fills whole mini-batches."""

    seed: int = Field(default=0, ge=0)
    """Random seed of rule=random, used together with the step."""


@dataclass(frozen=True, eq=False)
class Selection:
    """The decision on B samples.

    Attributes:
        weights: (B,) float64 in [0, 1], factors of the advantages; 0 for a sample that is left out.
        ranking: (B,) int64, a permutation of the positions 0 .. B-1. The first `num_selected` are kept; if fewer are
            wanted, they are dropped from the last to the first.
    """

    weights: np.ndarray
    ranking: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        """(B,) bool."""
        return self.weights > 0

    @property
    def num_selected(self) -> int:
        """Samples that are kept."""
        return int(self.kept.sum())

    @property
    def selection_ratio(self) -> float:
        """Share of the samples that are kept."""
        return self.num_selected / len(self.weights)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept: the caller then skips this step's update."""
        return self.num_selected == 0


def keep_all(num_samples: int) -> Selection:
    """Keep everything: for a step without a validation gradient."""
    return Selection(np.ones(num_samples), np.arange(num_samples))


def select(scores: np.ndarray, settings: SelectionSettings, step: int) -> Selection:
    """Decide on the samples of one step.

    Ties are decided by position, the earlier sample first. A score that is not finite (an overflow in that sample's
    gradient) is never selected, except by `none`.

    - positive: weight 1 if s > 0.
    - top_fraction: weight 1 for the top_fraction * B highest scores, rounded (halves up), at least 1.
    - soft: clip(s / scale, 0, 1) with scale = the `soft_scale` quantile of this step's positive scores. With the
      default, the median, half of the positive samples keep their full weight and an outlier cannot starve the
      others. Weights are not renormalised: the update shrinks with them.
    - random: the number of samples that `positive` would keep (with the same `min_keep`), drawn from (seed, step).
    - none: weight 1 for all.

    `min_keep` adds the next best scores, at weight 1; under `soft` at the lowest weight that a selected sample
    has (1 if there is none), so that weights never fall as scores rise.

    Args:
        scores: (B,) float64 influence scores, B >= 1.
        settings: See `SelectionSettings`.
        step: The training step, >= 0; only `random` uses it, so that a resumed run repeats its draws.

    Raises:
        ValueError: if scores are not of shape (B,) with B >= 1.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or not len(scores):
        raise ValueError(f"expected scores of shape (B,) with B >= 1, got {scores.shape}")
    if settings.rule == "none":
        return Selection(np.ones(len(scores)), _by_score(scores))
    finite = np.isfinite(scores)
    positive = finite & (scores > 0)
    count = int(positive.sum())
    if settings.rule == "top_fraction":
        count = max(1, int(settings.top_fraction * len(scores) + 0.5))
    count = min(max(count, settings.min_keep), int(finite.sum()))
    ranking = _by_score(scores)
    if settings.rule == "random":
        ranking[: finite.sum()] = np.random.default_rng([settings.seed, step]).permutation(np.flatnonzero(finite))
    weights = np.zeros(len(scores))
    if settings.rule == "soft":
        weights[positive] = _soft_weights(scores[positive], settings.soft_scale)
        filled = ranking[int((weights > 0).sum()) : count]
        weights[filled] = weights[weights > 0].min(initial=1.0)
    else:
        weights[ranking[:count]] = 1.0
    return Selection(weights, ranking)


def select_samples(
    scores: np.ndarray, groups: Sequence[object] | np.ndarray, settings: SelectionSettings, step: int
) -> Selection:
    """`select` among the samples, or with `unit: prompt` among their groups.

    A group's score is the sum of its samples' scores: <sum of their gradients, the validation gradient>. It is not
    finite, so the group is not selected, if one of them is not. The samples of a group follow each other in the
    ranking, in order; groups of equal score follow the order of their first samples.

    Args:
        scores: (B,) float64 influence scores, B >= 1.
        groups: (B,) the uid of each sample's prompt.
        settings: See `SelectionSettings`.
        step: See `select`.

    Raises:
        ValueError: if the lengths differ, or there are no scores.
    """
    if len(scores) != len(groups):
        raise ValueError(f"expected one group per score, got {len(groups)} and {len(scores)}")
    if settings.unit == "rollout":
        return select(scores, settings, step)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    group = np.array([numbers[name] for name in groups], dtype=np.int64)
    with np.errstate(invalid="ignore"):  # opposite infinities
        chosen = select(np.bincount(group, weights=scores), settings, step)
    place = np.argsort(chosen.ranking)
    return Selection(chosen.weights[group], np.argsort(place[group], kind="stable"))


def make_divisible(selection: Selection, divisibility: str, multiple: int) -> tuple[Selection, np.ndarray]:
    """Arrange the batch so that verl can split it into mini-batches and ranks.

    Args:
        selection: Selection among B samples.
        divisibility: pad: all rows stay where they are, those not kept with a masked response and advantage 0, so
            mini-batches keep their rows and sizes. drop: rows not kept are removed, along with the last ranked kept
            ones until their number is a multiple; if fewer than one multiple are kept, nothing remains.
        multiple: Rows that a batch must be a multiple of: those of a mini-batch (itself a multiple of the ranks).

    Returns:
        The selection over the same B samples, and the positions of the rows that stay in the batch, increasing int64.
        A row that stays without being kept must be masked (`denominators.rows_to_mask`).

    Raises:
        ValueError: if `multiple` is below 1 or `divisibility` unknown.
    """
    if multiple < 1:
        raise ValueError(f"multiple must be at least 1, got {multiple}")
    if divisibility not in DIVISIBILITIES:
        raise ValueError(f"divisibility must be one of {', '.join(DIVISIBILITIES)}; got {divisibility!r}")
    if divisibility == "pad":
        return selection, np.arange(len(selection.weights))
    weights = selection.weights.copy()
    weights[selection.ranking[selection.num_selected // multiple * multiple :]] = 0.0
    remaining = Selection(weights, selection.ranking)
    return remaining, np.flatnonzero(remaining.kept)


def recentre(advantages: np.ndarray, groups: Sequence[object] | np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Advantages centred again among the kept samples of each group (`baseline: after`).

    For estimators of one scalar per sample that are (reward - group mean) times a factor of the group: GRPO, Dr. GRPO,
    RLOO. The new advantage is (reward - mean of the kept rewards) times the same factor: GRPO's standard deviation and
    RLOO's G / (G - 1) remain those of the whole group. Soft weights do not affect the mean.

    Args:
        advantages: (B,) float, each sample's advantage.
        groups: (B,) the uid of each sample's prompt.
        kept: (B,) bool.

    Returns:
        (B,) float64; exactly 0 for samples that are not kept, and where all survivors of a group are equal or there is
        one.

    Raises:
        ValueError: if the lengths differ.
    """
    advantages, kept = np.asarray(advantages, dtype=np.float64), np.asarray(kept, dtype=bool)
    if not advantages.shape == kept.shape == (len(groups),):
        raise ValueError(
            f"expected one advantage, group and kept flag per sample, got {advantages.shape}, ({len(groups)},) and "
            f"{kept.shape}: advantages must be one scalar per sample"
        )
    group = np.unique(np.asarray(groups), return_inverse=True)[1]
    mean = np.bincount(group, weights=np.where(kept, advantages, 0.0)) / np.maximum(np.bincount(group, weights=kept), 1)
    # The mean of equal numbers may differ from them in floating point, and Adam would turn the difference into steps.
    highest, lowest = np.full(len(mean), -np.inf), np.full(len(mean), np.inf)
    np.maximum.at(highest, group[kept], advantages[kept])
    np.minimum.at(lowest, group[kept], advantages[kept])
    return np.where(kept & (highest > lowest)[group], advantages - mean[group], 0.0)


def selection_metrics(
    scores: np.ndarray, selection: Selection, rewards: np.ndarray | None = None, success_threshold: float = 0.5
) -> dict[str, float]:
    """Metrics of one step. Scores and rewards that are not finite are left out; a mean over zero values has no key.

    Args:
        scores: (B,) float64.
        selection: Selection among the same samples.
        rewards: (B,) float or None; a sample is `reward_high` when its reward exceeds `success_threshold`.
        success_threshold: Threshold in units of the reward.
    """
    scores = np.asarray(scores, dtype=np.float64)
    finite = np.isfinite(scores)
    metrics = {
        "tracin/num_selected": float(selection.num_selected),
        "tracin/selection_ratio": selection.selection_ratio,
        "tracin/num_non_finite": float((~finite).sum()),
    }
    if not finite.any():
        return metrics
    metrics["tracin/mean_ip"] = float(scores[finite].mean())
    quantiles = np.quantile(scores[finite], np.array(_QUANTILES) / 100)
    metrics |= {f"tracin/score/q{q:02d}": float(value) for q, value in zip(_QUANTILES, quantiles, strict=True)}
    metrics["tracin/positive_share"] = float((scores[finite] > 0).mean())
    if rewards is not None:
        rewards = np.asarray(rewards, dtype=np.float64)
        high, known = rewards > success_threshold, finite & np.isfinite(rewards)
        for name, rows in (("reward_high", known & high), ("reward_low", known & ~high)):
            if rows.any():
                metrics[f"tracin/positive_share/{name}"] = float((scores[rows] > 0).mean())
    return metrics


def _by_score(scores: np.ndarray) -> np.ndarray:
    """(B,) positions by falling score, the earlier first among equals; scores that are not finite come last."""
    return np.argsort(np.where(np.isfinite(scores), -scores, np.inf), kind="stable")


def _soft_weights(positive_scores: np.ndarray, soft_scale: float) -> np.ndarray:
    """clip(s / quantile, 0, 1) of positive scores; never 0, also where a tiny score underflows."""
    if not len(positive_scores):
        return positive_scores
    scale = np.quantile(positive_scores, soft_scale)
    # Dividing by the larger of the two: a tiny scale overflows otherwise.
    weights = positive_scores / np.maximum(positive_scores, scale)
    return np.maximum(weights, np.finfo(np.float64).tiny)
