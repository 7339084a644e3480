"""The benchmark's arithmetic, on histories made by hand."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from efficiency_report import area_under_curve, at_target, ratio_after_first_epoch, render, summarize, write_report


def make_result(method: str, seed: int, accuracies: list[float], rollouts_per_look: int = 1000) -> dict:
    history = [
        {
            "step": look,
            "rollouts": look * rollouts_per_look,
            "tokens": look * 5 * rollouts_per_look,
            "trained": look * 500,
            "screened": look * 100,
            "seconds": 2.0 * look,
            "accuracy": accuracy,
        }
        for look, accuracy in enumerate(accuracies)
    ]
    return {
        "job": {"method": method, "learning_rate": 3e-4, "seed": seed, "pool": "B"},
        "history": history,
        "generated": history[-1]["rollouts"],
        "trained": history[-1]["trained"],
        "informative_share": 0.5,
        "generation_share_of_seconds": 0.6,
        "predict_share_of_seconds": 0.001,
        "reliability": [{"bin": 0.5, "rollouts": 10, "predicted": 0.55, "observed": 0.5}],
    }


RISING = [0.2, 0.3, 0.4, 0.5, 0.5, 0.5]


def test_a_target_is_reached_when_the_mean_of_three_looks_is():
    result = make_result("merged", 0, RISING)
    # Means of three from the third look on: .4, .4667, .5.
    assert at_target(result, 0.15, "rollouts") == 3000
    assert at_target(result, 0.25, "tokens") == 20_000
    assert at_target(result, 0.29, "seconds") == 10
    assert math.isnan(at_target(result, 0.31, "rollouts"))


def test_the_area_is_the_mean_gain_in_points():
    result = make_result("merged", 0, [0.2, 0.4])
    assert area_under_curve(result, 1000) == pytest.approx(10)
    assert area_under_curve(result, 500) == pytest.approx(5)


def test_the_ratio_counts_only_what_came_after_the_first_epoch():
    result = make_result("merged", 0, RISING)
    result["history"][-1]["rollouts"] += 1000
    # From the third look (300 screened) to the last: 3,000 rollouts for 1,000 trained on.
    assert ratio_after_first_epoch(result, num_prompts=300) == pytest.approx(3.0)
    assert math.isnan(ratio_after_first_epoch(result, num_prompts=500))


def test_rows_are_means_over_seeds_and_ratios_are_to_the_baselines(tmp_path: Path):
    slow = [make_result("uniform_rloo", seed, RISING, 2000) for seed in range(2)]
    fast = [make_result("merged", 0, RISING), make_result("merged", 1, [0.2, *RISING])]
    rows = summarize([*slow, *fast])
    assert [row["rollouts_to_25"] for row in rows] == [8000, 4500]
    assert rows[1]["rollouts_to_25_by_seed"] == [4000, 5000]
    names = {"uniform_rloo": "uniform", "merged": "merged"}
    table = render(rows, names)
    assert "| 1.78 |" in table.splitlines()[-1]
    text = write_report(tmp_path, {"tuned": [*slow, *fast], "equal": [], "ratio": fast}, names, 300)
    assert "Generated per trained rollout" in text
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.md", "curves.png"}


def test_a_method_that_never_gets_there_says_so():
    rows = summarize([make_result("uniform_rloo", 0, RISING), make_result("merged", 0, [0.2] * 6)])
    assert "never" in render(rows, {"uniform_rloo": "uniform", "merged": "merged"}).splitlines()[-1]
