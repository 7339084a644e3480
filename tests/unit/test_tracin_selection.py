"""Selection by influence: the rules against brute force, and what they must never do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.tracin.method.selection import (
    RULES,
    Selection,
    SelectionSettings,
    keep_all,
    make_divisible,
    recentre,
    select,
    select_samples,
    selection_metrics,
)

# Few values, so that ties and zeros are common; magnitudes from underflow to near overflow.
SCORE = st.one_of(
    st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]),
    st.floats(-1e300, 1e300),
    st.floats(-1e-300, 1e-300),
)
SCORES = st.lists(SCORE, min_size=1, max_size=40).map(np.array)
BROKEN_SCORES = st.lists(st.one_of(SCORE, st.sampled_from([np.nan, np.inf, -np.inf])), min_size=1, max_size=40).map(
    np.array
)
SETTINGS = st.builds(
    SelectionSettings,
    rule=st.sampled_from(RULES),
    top_fraction=st.floats(0.01, 1),
    soft_scale=st.floats(0.01, 1),
    min_keep=st.integers(0, 50),
    seed=st.integers(0, 3),
)


def best_positions(scores: np.ndarray, count: int) -> set[int]:
    return set(sorted(range(len(scores)), key=lambda position: (-scores[position], position))[:count])


def positions(selection: Selection) -> set[int]:
    return set(np.flatnonzero(selection.kept).tolist())


@settings(deadline=None)
@given(BROKEN_SCORES, SETTINGS, st.integers(0, 5))
def test_weights_are_in_0_1_and_the_counts_agree(scores: np.ndarray, settings: SelectionSettings, step: int):
    selection = select(scores, settings, step)
    assert selection.weights.shape == scores.shape
    assert ((selection.weights >= 0) & (selection.weights <= 1)).all()
    assert selection.num_selected == (selection.weights > 0).sum()
    assert selection.selection_ratio == selection.num_selected / len(scores)
    assert selection.is_empty == (not selection.kept.any())
    assert sorted(selection.ranking.tolist()) == list(range(len(scores)))
    assert set(selection.ranking[: selection.num_selected].tolist()) == positions(selection)


@settings(deadline=None)
@given(BROKEN_SCORES)
def test_positive_keeps_exactly_what_lowers_the_validation_loss(scores: np.ndarray):
    selection = select(scores, SelectionSettings(), step=1)
    assert selection.weights.tolist() == [1.0 if np.isfinite(s) and s > 0 else 0.0 for s in scores]


def test_nothing_positive_is_an_empty_selection():
    selection = select(np.array([-1.0, 0.0, np.nan]), SelectionSettings(), step=1)
    assert selection.is_empty
    assert selection.selection_ratio == 0


@settings(deadline=None)
@given(BROKEN_SCORES, SETTINGS, st.integers(0, 5))
def test_a_score_that_is_not_finite_is_never_selected(scores: np.ndarray, settings: SelectionSettings, step: int):
    selection = select(scores, settings, step)
    if settings.rule != "none":
        assert not selection.kept[~np.isfinite(scores)].any()


@settings(deadline=None)
@given(SCORES, st.floats(0.01, 1))
def test_top_fraction_keeps_an_exact_number_of_the_highest(scores: np.ndarray, fraction: float):
    selection = select(scores, SelectionSettings(rule="top_fraction", top_fraction=fraction), step=1)
    count = max(1, int(np.floor(fraction * len(scores) + 0.5)))
    assert positions(selection) == best_positions(scores, count)


@pytest.mark.parametrize(("fraction", "size", "count"), [(0.1, 30, 3), (0.5, 5, 3), (0.01, 10, 1), (1.0, 7, 7)])
def test_the_fraction_is_rounded(fraction: float, size: int, count: int):
    settings = SelectionSettings(rule="top_fraction", top_fraction=fraction)
    assert select(-np.ones(size), settings, step=1).kept.tolist() == [i < count for i in range(size)]


@settings(deadline=None)
@given(SCORES, st.floats(0.01, 1))
def test_soft_weights_are_scores_over_a_quantile_of_the_positive_ones(scores: np.ndarray, scale: float):
    selection = select(scores, SelectionSettings(rule="soft", soft_scale=scale), step=1)
    positive = scores > 0
    assert positions(selection) == set(np.flatnonzero(positive).tolist())
    if positive.any():
        with np.errstate(over="ignore"):
            expected = np.clip(scores[positive] / np.quantile(scores[positive], scale), 0, 1)
        np.testing.assert_allclose(selection.weights[positive], expected, rtol=1e-12, atol=1e-300)
        assert selection.weights.max() == 1


def test_half_of_the_positive_samples_keep_their_full_soft_weight_next_to_an_outlier():
    selection = select(np.array([1.0, 2.0, 3.0, 4.0, 1e9, -5.0]), SelectionSettings(rule="soft"), step=1)
    assert selection.weights.tolist() == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 0])


@settings(deadline=None)
@given(BROKEN_SCORES, SETTINGS, st.integers(0, 5))
def test_the_floor_is_kept_by_the_best_of_the_others(scores: np.ndarray, settings: SelectionSettings, step: int):
    selection = select(scores, settings, step)
    finite = np.isfinite(scores)
    assert selection.num_selected >= min(settings.min_keep, finite.sum())
    if settings.rule not in ("random", "none"):
        worst_kept = scores[selection.kept].min(initial=np.inf)
        assert worst_kept >= scores[finite & ~selection.kept].max(initial=-np.inf)


@settings(deadline=None)
@given(SCORES, st.integers(0, 40))
def test_the_floor_adds_no_more_than_it_has_to(scores: np.ndarray, min_keep: int):
    num_positive = int((scores > 0).sum())
    for rule in ("positive", "soft", "random"):
        selection = select(scores, SelectionSettings(rule=rule, min_keep=min_keep), step=1)
        assert selection.num_selected == min(len(scores), max(num_positive, min_keep))


@settings(deadline=None)
@given(BROKEN_SCORES, SETTINGS)
def test_weights_never_fall_as_scores_rise(scores: np.ndarray, settings: SelectionSettings):
    if settings.rule in ("random", "none"):
        return
    selection = select(scores, settings, step=1)
    by_score = selection.weights[np.argsort(np.where(np.isfinite(scores), scores, -np.inf), kind="stable")]
    # Equal scores may be cut by position: compare only where the score rises.
    ordered = np.sort(np.where(np.isfinite(scores), scores, -np.inf), kind="stable")
    for low in range(len(scores)):
        higher = by_score[ordered > ordered[low]]
        assert (higher >= by_score[low]).all()


@settings(deadline=None)
@given(BROKEN_SCORES, st.integers(0, 20), st.integers(0, 9), st.integers(1, 1000))
def test_random_keeps_as_many_as_positive_would(scores: np.ndarray, min_keep: int, seed: int, step: int):
    control = SelectionSettings(rule="random", min_keep=min_keep, seed=seed)
    drawn = select(scores, control, step)
    assert drawn.num_selected == select(scores, SelectionSettings(min_keep=min_keep), step).num_selected
    assert (drawn.weights == select(scores, control, step).weights).all()


def test_random_does_not_look_at_the_scores_and_differs_between_steps_and_seeds():
    scores = np.concatenate([np.ones(50), -np.ones(50)])
    settings = SelectionSettings(rule="random")
    kept = np.array([select(scores, settings, step).kept for step in range(400)])
    assert kept[:, :50].mean() == pytest.approx(0.5, abs=0.02)
    assert kept.mean(0) == pytest.approx(np.full(100, 0.5), abs=0.15)
    assert len({row.tobytes() for row in kept}) == 400
    assert (select(scores, SelectionSettings(rule="random", seed=1), 0).kept != kept[0]).any()
    assert (select(scores[::-1], settings, 0).kept == kept[0]).all()


@settings(deadline=None)
@given(BROKEN_SCORES)
def test_none_keeps_everything(scores: np.ndarray):
    assert select(scores, SelectionSettings(rule="none"), step=1).weights.tolist() == [1.0] * len(scores)
    assert keep_all(len(scores)).kept.all()


# ------------------------------ divisibility ------------------------------


@settings(deadline=None)
@given(BROKEN_SCORES, SETTINGS, st.integers(1, 12))
def test_drop_leaves_a_multiple_and_gives_up_the_worst(scores: np.ndarray, settings: SelectionSettings, multiple: int):
    before = select(scores, settings, step=1)
    after, rows = make_divisible(before, "drop", multiple)
    assert after.num_selected == before.num_selected // multiple * multiple
    assert rows.tolist() == sorted(positions(after))
    assert positions(after) <= positions(before)
    assert (after.weights[after.kept] == before.weights[after.kept]).all()
    given_up = before.kept & ~after.kept
    if settings.rule not in ("random", "none") and after.num_selected:
        assert scores[given_up].max(initial=-np.inf) <= scores[after.kept].min()


@settings(deadline=None)
@given(SCORES, SETTINGS)
def test_pad_leaves_every_row_in_its_place(scores: np.ndarray, settings: SelectionSettings):
    before = select(scores, settings, step=1)
    after, rows = make_divisible(before, "pad", 4)
    assert after is before
    assert rows.tolist() == list(range(len(scores)))


def test_fewer_than_one_multiple_leave_nothing():
    selection, rows = make_divisible(select(np.array([1.0, 1.0, -1.0]), SelectionSettings(), 1), "drop", 4)
    assert selection.is_empty
    assert len(rows) == 0


# ------------------------------ baselines ------------------------------


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-2, 2), st.booleans()), min_size=1, max_size=30))
def test_recentring_gives_the_advantages_of_the_survivors(rows: list[tuple[int, float, bool]]):
    groups = np.array([f"uid{group}" for group, _, _ in rows], dtype=object)
    rewards, kept = np.array([reward for _, reward, _ in rows]), np.array([keep for _, _, keep in rows])
    advantages = np.array([r - rewards[groups == g].mean() for g, r in zip(groups, rewards, strict=True)])
    result = recentre(advantages, groups, kept)
    for i, (group, reward) in enumerate(zip(groups, rewards, strict=True)):
        siblings = rewards[kept & (groups == group)]
        expected = reward - siblings.mean() if kept[i] and len(siblings) > 1 else 0.0
        assert result[i] == pytest.approx(expected, abs=1e-12)


def test_a_single_survivor_has_nothing_to_be_compared_with():
    assert recentre(np.array([0.7, -0.7, 0.1]), ["a", "a", "b"], np.array([True, False, True])).tolist() == [0, 0, 0]
    assert recentre(np.array([0.7, -0.7]), ["a", "a"], np.array([False, False])).tolist() == [0, 0]


@pytest.mark.parametrize("num_survivors", [1, 2, 3, 7])
def test_survivors_that_are_equal_have_no_advantage_also_in_floating_point(num_survivors: int):
    advantages = np.array([0.1] * num_survivors + [-0.7])
    kept = np.arange(num_survivors + 1) < num_survivors
    assert recentre(advantages, ["a"] * len(kept), kept).tolist() == [0] * len(kept)


def test_a_factor_of_the_group_survives_recentring():
    advantages, groups = np.array([3.0, 1.0, -4.0]), ["a"] * 3
    kept = np.array([True, True, False])
    assert recentre(2.5 * advantages, groups, kept).tolist() == [2.5, -2.5, 0]


# ------------------------------ metrics ------------------------------


def test_metrics_of_a_step():
    scores = np.array([1.0, -1.0, 3.0, 0.0, np.nan, np.inf])
    rewards = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    metrics = selection_metrics(scores, select(scores, SelectionSettings(), 1), rewards, 0.5)
    finite = scores[:4]
    assert metrics == {
        "tracin/mean_ip": 0.75,
        "tracin/num_selected": 2,
        "tracin/selection_ratio": pytest.approx(1 / 3),
        "tracin/num_non_finite": 2,
        "tracin/positive_share": 0.5,
        "tracin/positive_share/reward_high": 0.5,
        "tracin/positive_share/reward_low": 0.5,
        **{f"tracin/score/q{q:02d}": np.quantile(finite, q / 100) for q in (5, 25, 50, 75, 95)},
    }


@settings(deadline=None)
@given(BROKEN_SCORES, st.sampled_from([0.0, 1.0, np.nan]))
def test_metrics_are_finite_or_absent(scores: np.ndarray, reward: float):
    metrics = selection_metrics(scores, select(scores, SelectionSettings(), 1), np.full(len(scores), reward))
    assert np.isfinite(list(metrics.values())).all()
    assert ("tracin/mean_ip" in metrics) == np.isfinite(scores).any()
    assert ("tracin/positive_share/reward_high" in metrics) == (reward == 1 and np.isfinite(scores).any())
    assert ("tracin/positive_share/reward_low" in metrics) == (reward == 0 and np.isfinite(scores).any())


# ------------------------------ refusals ------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"rule": "best"}, {"top_fraction": 0}, {"top_fraction": 1.1}, {"top_fraction": "half"}, {"soft_scale": 0.0},
     {"soft_scale": True}, {"min_keep": -1}, {"min_keep": 1.5}, {"min_keep": True}, {"seed": -1}, {"baseline": "later"},
     {"denominator": "some"}, {"divisibility": "cut"}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} must be .*got"):
        SelectionSettings(**settings)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match=r"shape \(B,\) with B >= 1, got \(0,\)"):
        select(np.array([]), SelectionSettings(), 1)
    with pytest.raises(ValueError, match=r"got \(2, 3\)"):
        select(np.zeros((2, 3)), SelectionSettings(), 1)
    with pytest.raises(ValueError, match="multiple must be at least 1"):
        make_divisible(keep_all(3), "drop", 0)
    with pytest.raises(ValueError, match="divisibility must be one of pad, drop; got 'cut'"):
        make_divisible(keep_all(3), "cut", 1)
    with pytest.raises(ValueError, match="one scalar per sample"):
        recentre(np.zeros((3, 2)), ["a"] * 3, np.ones(3, dtype=bool))


# ------------------------------ whole prompts ------------------------------

GROUPED = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.one_of(SCORE, st.sampled_from([np.nan, np.inf]))), min_size=1, max_size=30
)


@settings(deadline=None)
@given(GROUPED, SETTINGS, st.integers(0, 5))
def test_a_prompt_is_selected_as_a_sample_with_the_sum_of_its_scores_would_be(
    rows: list[tuple[str, float]], settings: SelectionSettings, step: int
):
    names, scores = [name for name, _ in rows], np.array([score for _, score in rows])
    prompts = list(dict.fromkeys(names))
    sums = []
    for prompt in prompts:
        total = 0.0
        for name, score in rows:
            total += score if name == prompt else 0.0
        sums.append(total)
    of_prompts = select(np.array(sums), settings, step)
    selection = select_samples(scores, names, settings.model_copy(update={"unit": "prompt"}), step)
    assert selection.weights.tolist() == [of_prompts.weights[prompts.index(name)] for name in names]
    ranked = [(prompts[place], row) for place in of_prompts.ranking for row in range(len(rows))]
    assert selection.ranking.tolist() == [row for prompt, row in ranked if names[row] == prompt]


def test_the_score_of_a_prompt_is_that_of_its_summed_gradient():
    rng = np.random.default_rng(0)
    gradients, validation = rng.normal(size=(12, 5)), rng.normal(size=5)
    groups = np.repeat(np.arange(4), 3)
    kept = select_samples(gradients @ validation, groups, SelectionSettings(unit="prompt"), step=0).kept
    summed = gradients.reshape(4, 3, 5).sum(1) @ validation
    assert 0 < (summed > 0).sum() < 4
    assert kept.tolist() == np.repeat(summed > 0, 3).tolist()


@settings(deadline=None)
@given(SCORES, SETTINGS)
def test_of_single_rollouts_each_prompt_has_its_own(scores: np.ndarray, settings: SelectionSettings):
    whole = select_samples(scores, range(len(scores)), settings.model_copy(update={"unit": "prompt"}), 3)
    single = select_samples(scores, ["the same"] * len(scores), settings, 3)
    plain = select(scores, settings, 3)
    for selection in (whole, single):
        assert (selection.weights == plain.weights).all()
        assert (selection.ranking == plain.ranking).all()


def test_every_score_needs_its_prompt():
    with pytest.raises(ValueError, match=r"expected one group per score, got 1 and 2"):
        select_samples(np.ones(2), ["a"], SelectionSettings(unit="prompt"), 0)
