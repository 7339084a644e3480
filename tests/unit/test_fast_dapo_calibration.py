"""The calibration benchmark: which tenth of the predictions is the worst, and what a row says."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from fast_dapo_calibration import Job, describe, worst
from leaderboard_protocol import Settings

ROWS = [
    {"bin": 0.1, "rollouts": 900.0, "predicted": 0.15, "observed": 0.60},  # too few rollouts to count
    {"bin": 0.4, "rollouts": 2_000.0, "predicted": 0.45, "observed": 0.48},
    {"bin": 0.5, "rollouts": 1_100.0, "predicted": 0.55, "observed": 0.51},
]


def test_the_worst_tenth_is_one_with_enough_rollouts():
    assert worst(ROWS) is ROWS[2]
    with pytest.raises(ValueError, match="at least 1,000"):
        worst(ROWS[:1])


def test_a_row_gives_the_signed_difference_and_the_mean_over_all_rollouts():
    row = describe(Job("C", 2, recalibrate=False, settings=Settings(1e-4, 64, 1, 8)), ROWS)
    assert row == "| C | 2 | no | +0.040 | 0.5 | 1,100 | -0.105 |"
