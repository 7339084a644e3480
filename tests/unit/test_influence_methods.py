"""The new pure functions of the TracIn benchmark: reversed rewards, AUROC, and its tables."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from influence_report import accuracy_at, final_accuracy, render_learning, summarize
from lying_rewards import auroc, describe_samples, flip, is_mixed

small_scores = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


def make_result(method: str, seed: int, accuracies: list[float], total_per_look: int = 1000) -> dict:
    history = [
        {"step": look, "rollouts": 800 * look, "total_rollouts": total_per_look * look, "accuracy": accuracy}
        for look, accuracy in enumerate(accuracies)
    ]
    samples = {"selection_ratio": 0.5, "informative_kept": 0.5, "flipped_among_kept": 0.2}
    job = {"method": method, "learning_rate": 1e-3, "seed": seed, "steps": len(accuracies) - 1}
    return {"job": job, "history": history, "seconds": 1.0, "samples": samples, "gradients": {}}


def test_thirty_percent_are_reversed_and_the_rest_is_as_it_was():
    rewards = np.random.default_rng(0).integers(0, 2, 20_000).astype(float)
    reported, flipped = flip(rewards, 0.3, seed=1, step=2)
    assert flipped.mean() == pytest.approx(0.3, abs=0.015)
    # Neither kind of reward is preferred.
    assert flipped[rewards == 1].mean() == pytest.approx(flipped[rewards == 0].mean(), abs=0.02)
    np.testing.assert_array_equal(reported[flipped], 1 - rewards[flipped])
    np.testing.assert_array_equal(reported[~flipped], rewards[~flipped])


def test_the_same_places_are_reversed_whatever_the_rewards():
    first = flip(np.zeros(256), 0.3, seed=1, step=2)[1]
    np.testing.assert_array_equal(first, flip(np.ones(256), 0.3, seed=1, step=2)[1])
    assert (first != flip(np.zeros(256), 0.3, seed=1, step=3)[1]).any()
    assert (first != flip(np.zeros(256), 0.3, seed=2, step=2)[1]).any()


def test_clean_rewards_stay_clean():
    rewards = np.array([0.0, 1.0, 1.0])
    reported, flipped = flip(rewards, 0.0, seed=0, step=1)
    np.testing.assert_array_equal(reported, rewards)
    assert not flipped.any()


@given(small_scores, small_scores)
def test_auroc_is_the_share_of_pairs_in_order(low, high):
    pairs = [(b > a) + 0.5 * (b == a) for a in low for b in high]
    assert auroc(np.array(low, dtype=float), np.array(high, dtype=float))[0] == pytest.approx(np.mean(pairs))


def test_the_p_value_is_small_only_where_high_is_higher():
    low, high = np.arange(50.0), np.arange(50.0) + 40
    assert auroc(low, high)[1] < 1e-6
    assert auroc(high, low)[1] > 0.99


def test_auroc_of_nothing_is_nan():
    assert all(math.isnan(value) for value in auroc(np.empty(0), np.ones(2)))


def test_mixed_groups():
    np.testing.assert_array_equal(is_mixed(np.array([1.0, 1, 0, 1, 0, 0]), 2), [False, False, True, True, False, False])


def test_scores_are_compared_within_a_reported_reward():
    # The score only follows the reported reward: within one it is uninformative, though reversals are uneven over both.
    flipped = np.array([True, True, False, False, False, True])
    reported = np.array([1.0, 1, 1, 0, 0, 0])
    table = {
        "flipped": flipped,
        "informative": np.ones(6, dtype=bool),
        "learnable": np.ones(6, dtype=bool),
        "reported": reported,
        "kept": reported > 0.5,
        "score": 1 - 2 * reported,
    }
    described = describe_samples(table)
    assert described["auroc_informative"] > 0.6
    assert described["auroc_reported_1"] == described["auroc_reported_0"] == 0.5
    assert described["positive_share_flipped"] == pytest.approx(1 / 3)
    assert described["flipped_among_kept"] == pytest.approx(2 / 3)


def test_accuracy_at_equal_total_rollouts_is_read_off_the_smoothed_curve():
    result = make_result("quality", 0, [0.1, 0.2, 0.3, 0.4, 0.5])
    assert accuracy_at(result, 4000) == pytest.approx(final_accuracy(result)) == pytest.approx(0.4)
    assert accuracy_at(result, 3500) == pytest.approx(0.35)


def test_gains_are_against_the_same_seed():
    results = [make_result("grpo", seed, [0.2] + [0.3 + 0.1 * seed] * 3) for seed in (0, 1)]
    results += [make_result("quality", seed, [0.2] + [0.35 + 0.1 * seed] * 3, total_per_look=1100) for seed in (0, 1)]
    rows = {row["method"]: row for row in summarize(results)}
    assert rows["quality"]["gain"] == pytest.approx(0.05)
    assert rows["quality"]["gain_se"] == pytest.approx(0.0, abs=1e-12)
    assert rows["quality"]["final_se"] == pytest.approx(0.05)
    assert rows["quality"]["total_rollouts"] == 3300
    assert rows["quality"]["equal_total_rollouts"] == 3000
    table = render_learning(list(rows.values()), {"grpo": "GRPO", "quality": "TracIn quality"})
    assert "| TracIn quality | 0.001 | 2 | .200 |" in table
    assert "+5.0 ± 0.0" in table
