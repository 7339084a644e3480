"""Targets, weights and movement: what tokens should reach, and what they reached. The loss is in slow/."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.method.movement import KINDS, movement, movement_metrics
from recipe.golden_redaction.method.targets import TargetSettings, target_log_probs, token_weights


@st.composite
def states(draw) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs of 1 to 6 tokens of a softmax over some more tokens, and advantages."""
    size = draw(st.integers(1, 6))
    logits = np.array(draw(st.lists(st.floats(-12, 12), min_size=size + 1, max_size=size + 4)))
    log_probs = logits - np.logaddexp.reduce(logits)
    advantages = np.array(draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=size, max_size=size)))
    return log_probs[:size], advantages


SHARE = st.sampled_from([0.0, 0.3, 0.5, 1.0])


def mass_of_targets(log_probs: np.ndarray, targets: np.ndarray) -> float:
    return float(np.exp(np.where(np.isnan(targets), log_probs, targets)).sum())


@settings(deadline=None)
@given(states(), SHARE)
def test_targets_fit_into_one_distribution(state, mass_from_others):
    log_probs, advantages = state
    targets = target_log_probs(log_probs, advantages, TargetSettings(mass_from_others=mass_from_others)).log_probs
    tried = np.exp(log_probs).sum()
    bound = tried + mass_from_others * max(0, 1 - tried)
    assert mass_of_targets(log_probs, targets) <= bound * (1 + 1e-9)
    assert bound <= 1 + 1e-9


@settings(deadline=None)
@given(states(), SHARE)
def test_targets_go_the_way_of_the_advantage_and_no_further_than_asked(state, mass_from_others):
    log_probs, advantages = state
    result = target_log_probs(log_probs, advantages, TargetSettings(mass_from_others=mass_from_others))
    targets = result.log_probs
    assert (np.isnan(targets) == (advantages == 0)).all()
    assert targets[advantages < 0] == pytest.approx((1 + result.fall) * log_probs[advantages < 0])
    assert 0 <= result.fall <= 1
    preferred = log_probs[advantages > 0]
    assert (targets[advantages > 0] >= preferred).all()
    assert (targets[advantages > 0] <= preferred / 2 + 1e-12).all()
    # All go the same share of their way, so their order stays.
    assert targets[advantages > 0] == pytest.approx(preferred * (1 - result.share / 2))


@settings(deadline=None)
@given(states(), SHARE)
def test_the_share_is_the_largest_that_fits(state, mass_from_others):
    log_probs, advantages = state
    result = target_log_probs(log_probs, advantages, TargetSettings(mass_from_others=mass_from_others))
    preferred = log_probs[advantages > 0]
    if result.share < 1:
        tried = np.exp(log_probs).sum()
        more = np.where(advantages > 0, log_probs * (1 - (result.share + 1e-3) / 2), result.log_probs)
        excess = mass_of_targets(log_probs, more) - (tried + mass_from_others * max(0, 1 - tried))
        # Where p is nearly 0 or 1, a larger share changes nothing that float64 can resolve.
        assert excess > -1e-12
        assert len(preferred)


def carried(log_probs: np.ndarray, advantages: np.ndarray, fall: float) -> np.ndarray:
    """Log-probs of preferred tokens after a softmax has lowered only the logits of dispreferred ones, by `fall`."""
    probs, falling = np.exp(log_probs), advantages < 0
    left = float((probs[falling] ** (1 + fall)).sum())
    others = 1 - float(probs[falling].sum())
    return np.log(probs[advantages > 0] / others * (1 - left))


@settings(deadline=None)
@given(states())
def test_dispreferred_tokens_fall_as_far_as_preferred_ones_may_rise(state):
    log_probs, advantages = state
    falling, preferred = advantages < 0, log_probs[advantages > 0]
    fall = target_log_probs(log_probs, advantages, TargetSettings()).fall
    assert target_log_probs(log_probs, advantages, TargetSettings(balanced=False)).fall == 1
    if not falling.any() or not len(preferred):
        assert fall == 1
    elif np.exp(log_probs[falling]).sum() < 1 - 1e-9:
        assert (carried(log_probs, advantages, fall) <= preferred / 2 + 1e-9).all()
        if fall < 1:
            further = carried(log_probs, advantages, fall + 1e-3) - preferred / 2
            assert further.max() > -1e-9  # where p is nearly 0 or 1, nothing that float64 can resolve


def test_three_preferred_tokens_at_a_quarter_share_what_there_is():
    log_probs = np.log([0.25, 0.25, 0.25])
    for mass_from_others, total in ((0.0, 0.75), (0.5, 0.875), (1.0, 1.0)):
        targets = target_log_probs(log_probs, [1, 1, 1], TargetSettings(mass_from_others=mass_from_others)).log_probs
        assert np.exp(targets) == pytest.approx([total / 3] * 3)


def test_what_fits_is_not_cut():
    result = target_log_probs(np.log([0.04, 0.2, 0.1]), [1, -1, 0], TargetSettings())
    assert result.share == 1
    assert np.exp(result.log_probs[:2]) == pytest.approx([0.2, 0.04])


def test_a_preferred_token_is_never_asked_to_fall_for_another():
    log_probs = np.log([0.9, 0.09])
    targets = target_log_probs(log_probs, [1, 1], TargetSettings()).log_probs
    assert (targets >= log_probs).all()
    by_division = np.exp(log_probs / 2) / np.exp(log_probs / 2).sum()
    assert by_division[0] < 0.77
    assert np.exp(targets).sum() == pytest.approx(0.995)


def test_preferred_tokens_get_what_dispreferred_ones_give_up():
    original = TargetSettings(balanced=False)
    targets = target_log_probs(np.log([0.4, 0.6]), [1, -1], original).log_probs
    assert np.exp(targets) == pytest.approx([math.sqrt(0.4), 0.36])
    targets = target_log_probs(np.log([0.9, 0.1]), [1, -1], original).log_probs
    assert np.exp(targets) == pytest.approx([math.sqrt(0.9), 0.01])
    # When balanced, the two meet: nothing has to go to tokens that were not tried.
    targets = target_log_probs(np.log([0.9, 0.1]), [1, -1], TargetSettings()).log_probs
    assert np.exp(targets) == pytest.approx([math.sqrt(0.9), 1 - math.sqrt(0.9)])
    targets = target_log_probs(np.log([0.4, 0.4, 0.2]), [1, 1, -1], TargetSettings()).log_probs
    assert np.exp(targets) == pytest.approx([0.48, 0.48, 0.04])


@pytest.mark.parametrize(
    ("log_probs", "advantages", "words"),
    [([-1.0, -1.0], [1], "one advantage per token"), ([-1.0], [2], r"must be \+1, 0 or -1"),
     ([0.5], [1], "sum to at most 1"), ([-0.1, -0.1], [1, 0], "is a token duplicated"),
     ([-math.inf], [1], "finite log-probs"), ([math.nan], [0], "finite log-probs")],
)  # fmt: skip
def test_misuse_is_refused(log_probs, advantages, words):
    with pytest.raises(ValueError, match=words):
        target_log_probs(log_probs, advantages, TargetSettings())


@pytest.mark.parametrize("setting", [{"mass_from_others": 1.1}, {"mass_from_others": True}, {"reduction": "mean"}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must be .*got"):
        TargetSettings(**setting)


# ------------------------------ weights ------------------------------

TOKENS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([-1, 0, 1])), max_size=20)


@given(TOKENS)
def test_weights_by_brute_force(tokens):
    numbers, advantages = [s for s, _ in tokens], [a for _, a in tokens]
    labelled = [s for s, a in tokens if a]
    for reduction, expected in (
        ("sum", lambda s: 1.0),
        ("token_mean", lambda s: 1 / len(labelled)),
        ("state_mean", lambda s: 1 / (len(set(labelled)) * labelled.count(s))),
    ):
        weights = token_weights(numbers, advantages, reduction)
        assert weights.tolist() == pytest.approx([expected(s) if a else 0.0 for s, a in tokens])
        if labelled and reduction != "sum":
            assert weights.sum() == pytest.approx(1)


def test_weights_refuse_misuse():
    with pytest.raises(ValueError, match="one state and one advantage per token"):
        token_weights([0], [1, 1], "sum")
    with pytest.raises(ValueError, match=r"reduction must be one of state_mean, .*'mean'"):
        token_weights([0], [1], "mean")


# ------------------------------ movement ------------------------------


@pytest.mark.parametrize(
    ("advantage", "after", "kind"),
    [(1, -1.5, "intended"), (1, -1.0, "intended"), (1, -0.9, "overshot"), (1, -2.1, "wrong_way"), (1, -2.0, "still"),
     (-1, -2.5, "intended"), (-1, -3.0, "intended"), (-1, -3.2, "overshot"), (-1, -1.9, "wrong_way"), (0, -9.0, "")],
)  # fmt: skip
def test_kinds_of_movement(advantage, after, kind):
    report = movement([-2.0], [after], [-2.0 + advantage], [advantage], tolerance=1e-3)
    assert report.kinds == (kind,)


NATS = st.floats(-20, -0.01)


@settings(deadline=None)
@given(st.lists(st.tuples(NATS, NATS, NATS, st.sampled_from([-1, 0, 1])), min_size=1, max_size=8), st.floats(0, 1))
def test_every_labelled_token_is_of_one_kind_and_shares_add_up(tokens, tolerance):
    before, after, targets, advantages = (np.array(column) for column in zip(*tokens, strict=True))
    report = movement(before, after, targets, advantages, tolerance)
    assert [kind != "" for kind in report.kinds] == [a != 0 for a in advantages]
    mirrored = movement(after, before, targets, -advantages, tolerance)
    assert np.allclose(report.moved, mirrored.moved, equal_nan=True)
    metrics = movement_metrics([report, report], "trainer")
    prefix = "golden/movement/trainer"
    labelled = int((advantages != 0).sum())
    assert metrics[f"{prefix}/num_tokens"] == 2 * labelled
    if labelled:
        assert sum(metrics[f"{prefix}/{kind}"] for kind in KINDS) == pytest.approx(1)
        right = (advantages * (after - before) > tolerance).sum() / labelled
        assert metrics[f"{prefix}/intended_way"] == pytest.approx(right)
    if labelled < len(tokens):
        assert metrics[f"{prefix}/drift_max"] == pytest.approx(np.abs(after - before)[advantages == 0].max())
    assert all(np.isfinite(value) for value in metrics.values())


def test_what_all_other_tokens_gained_is_reported():
    report = movement(np.log([0.5, 0.2]), np.log([0.4, 0.1]), [-9.0, np.nan], [-1, 0])
    assert report.others == pytest.approx(0.2)
    assert movement_metrics([report], "engine")["golden/movement/engine/others"] == pytest.approx(0.2)
    assert movement_metrics([], "engine") == {"golden/movement/engine/num_tokens": 0}


def test_movement_refuses_misuse():
    with pytest.raises(ValueError, match="of one shape"):
        movement([-1.0], [-1.0, -1.0], [-1.0], [1])
    with pytest.raises(ValueError, match="targets must be finite"):
        movement([-1.0], [-1.0], [math.nan], [1])
    with pytest.raises(ValueError, match="tolerance must be at least 0"):
        movement([-1.0], [-1.0], [-1.0], [1], tolerance=-1)
