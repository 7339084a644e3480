"""The leaderboard's rows, intervals and table, on runs made by hand."""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from leaderboard_play import make_job, play, rising
from leaderboard_protocol import Settings
from leaderboard_report import Needed, best_uniform, largest_fall, lines, needed, ratio, render, row, write_report

ROLLOUTS = {"rollouts": 1.0}


def runs(method: str, *speeds: float, **changes) -> list[dict]:
    """A run for each seed; `speeds` are the gains per thousand rollouts."""
    return [play(make_job(method, seed, **changes), rising(speed)) for seed, speed in enumerate(speeds)]


# ------------------------------ rows ------------------------------


def test_a_row_has_exactly_the_stated_shape():
    result = play(make_job("dps", 3), rising(0.102))
    assert row(result) == {
        "method": "dps",
        "pool": "B",
        "seed": 3,
        "settings": {"learning_rate": 3e-4, "batch": 64, "group": 2, "updates": 1},
        # Means of three looks, 500 rollouts apart: one look behind.
        "rollouts_generated": {"+15": 2_000, "+20": 2_500, "+25": 3_000},
        "rollouts_trained": {"+15": 1_000, "+20": 1_250, "+25": 1_500},
        "tokens_generated": {"+15": 10_000, "+20": 12_500, "+25": 15_000},
        "tokens_trained": {"+15": 5_000, "+20": 6_250, "+25": 7_500},
        "final_accuracy": pytest.approx(0.506),
        "accuracy_by_domain": {"sums": pytest.approx(0.506)},
    }


def test_a_target_that_was_not_reached_is_null():
    text = json.dumps(row(play(make_job(), rising(0.1, highest=0.38))))
    assert json.loads(text)["rollouts_generated"] == {"+15": 2_500, "+20": None, "+25": None}


# ------------------------------ what seeds needed ------------------------------


def test_where_cost_is_the_budget_a_seed_counts_with_its_rollouts():
    result = play(make_job(price=1.0, budget=9_000), rising(0.01))
    assert needed([result], 0.25, ROLLOUTS) == Needed((6_000,), 0)


def test_a_seed_that_never_reached_the_target_counts_with_what_it_used():
    own = runs("greso", 0.1, 0.01)
    assert needed(own, 0.25, ROLLOUTS) == Needed((3_000, 10_000), 1)
    assert needed(own, 0.25, {"tokens": 1.0, "trained_tokens": 3.0}) == Needed((37_500, 125_000), 1)
    assert needed(own, 0.25, ROLLOUTS).is_bound
    assert not needed(own[:1], 0.25, ROLLOUTS).is_bound


@settings(max_examples=15)
@given(st.lists(st.integers(1, 1_000), min_size=2, max_size=5))
def test_the_interval_is_that_of_all_resamples_of_the_seeds(values: list[int]):
    means = [np.mean(sample) for sample in itertools.product(values, repeat=len(values))]
    interval = Needed(tuple(map(float, values)), len(values)).interval()
    assert interval is not None
    # 9,999 draws: their quantile of 2.5 % is within those of 1.8 and 3.2 %.
    for found, lowest, highest in ((interval[0], 0.018, 0.032), (interval[1], 0.968, 0.982)):
        assert np.quantile(means, lowest, method="lower") - 1e-9 <= found
        assert found <= np.quantile(means, highest, method="higher") + 1e-9


def test_the_interval_of_a_ratio_resamples_both_sides():
    over, under = (40.0, 60.0), (10.0, 10.0, 40.0)
    ratios = [
        np.mean(first) / np.mean(second)
        for first in itertools.product(over, repeat=2)
        for second in itertools.product(under, repeat=3)
    ]
    found = ratio(Needed(over, 2), Needed(under, 3))
    assert found.value == pytest.approx(2.5)
    assert found.interval == pytest.approx(np.quantile(ratios, [0.025, 0.975]), rel=0.05)


def test_a_single_seed_has_no_interval():
    assert Needed((3.0,), 1).interval() is None
    assert ratio(Needed((3.0,), 1), Needed((3.0, 4.0), 2)).interval is None


@pytest.mark.parametrize(("over", "under", "sign"), [(2, 2, ""), (1, 2, ">"), (2, 1, "<"), (1, 1, "?")])
def test_a_ratio_of_bounds_is_a_bound(over: int, under: int, sign: str):
    assert ratio(Needed((1.0, 2.0), over), Needed((3.0, 4.0), under)).sign == sign


# ------------------------------ collapses ------------------------------


def test_a_fall_is_counted_after_the_last_target_only():
    def peak(rollouts: int) -> float:
        return rising(0.1)(rollouts) if rollouts <= 4_000 else 0.6 - 0.05 * (rollouts - 4_000) / 1_000

    went_on = play(make_job(after=4_000), peak)
    # Means of three at +25 (.45, at 3,000 rollouts) and 4,000 rollouts later (.475).
    assert largest_fall(went_on) == 0.0
    assert largest_fall(play(make_job(after=6_000), peak)) == pytest.approx(0.45 - 0.375)
    assert largest_fall(play(make_job(), peak)) is None
    assert largest_fall(play(make_job(after=4_000), rising(0.01))) is None


# ------------------------------ the table ------------------------------


def test_the_table_is_best_first_and_relative_to_the_better_uniform_method():
    results = [
        *runs("greso", 0.05, 0.05),
        *runs("uniform_grpo", 0.0278, 0.0278),
        *runs("uniform_rloo", 0.0, 0.0278),
        *runs("dps", 0.01, 0.01),
    ]
    assert best_uniform(results) == "uniform_grpo"
    found = {line.job.method: line for line in lines(results)}
    assert list(found) == ["greso", "uniform_grpo", "uniform_rloo", "dps"]
    assert found["greso"].gain is not None
    assert found["greso"].gain.value == pytest.approx(9_500 / 5_500)
    assert found["uniform_rloo"].gain is not None
    assert found["uniform_rloo"].gain.sign == "<"
    assert found["dps"].rollouts["+25"].mean == 10_000
    # Every run trains on half of its rollouts: all prices give the same.
    assert [cost and cost.value for cost in found["greso"].costs] == pytest.approx([5_500 / 9_500] * 3)


def test_prices_weigh_what_is_generated_against_what_is_trained_on():
    cheap = runs("greso", 0.05)
    for look in cheap[0]["history"]:
        look["trained_tokens"] = look["tokens"] // 10
    (line, _) = lines([*cheap, *runs("uniform_rloo", 0.05)])
    assert [cost and cost.value for cost in line.costs] == pytest.approx([1.1 / 1.5, 1.3 / 2.5, 3.1 / 3.5])


def test_a_bound_is_marked_and_how_many_reached_it_is_said():
    results = [*runs("uniform_rloo", 0.05, 0.05), *runs("greso", 0.1, 0.01)]
    last = render(results).splitlines()[-1]
    assert "| 1 of 2 |" in last
    assert "| >6.5k [3.0, 10.0] |" in last
    assert "| <0.85 [0.55, 1.83] |" in last


def test_collapses_are_counted_among_the_seeds_that_went_on():
    falling = [play(make_job("greso", seed, after=3_000), _falls(drop)) for seed, drop in enumerate((0.0, 0.02, 0.2))]
    assert "| 1 of 3 (at most 20.0 points) |" in render(falling)
    assert render(runs("greso", 0.1)).splitlines()[-1].endswith("| - |")


def _falls(drop: float):
    return lambda rollouts: rising(0.1, highest=0.45)(rollouts) - drop * (rollouts > 3_500)


def test_without_a_uniform_method_there_is_nothing_to_compare_with():
    assert best_uniform(runs("greso", 0.1)) is None
    assert render(runs("greso", 0.1)).splitlines()[-1].count("| - ") == 5


def test_everything_is_written(tmp_path: Path):
    results = [*runs("uniform_rloo", 0.05, 0.06), *runs("spo", 0.1, 0.2, settings=Settings(6e-4, 128, 1, 2), pool="E")]
    text = write_report(tmp_path, results, "What was done.")
    written = {path.name for path in tmp_path.iterdir()}
    pictures = {"curves.svg", "curves_B.svg", "curves_E.svg"}
    assert written == {"results.json", "summary.json", "leaderboard.md"} | pictures
    assert (tmp_path / "leaderboard.md").read_text() == text
    assert text.index("## Pool B") < text.index("uniform RLOO") < text.index("## Pool E") < text.index("SPO | 128 x 1")
    assert json.loads((tmp_path / "results.json").read_text()) == [row(result) for result in results]
    assert "(generating 67 %, updating 33 %)" in text
    assert "<svg" in (tmp_path / "curves.svg").read_text()[:500]
