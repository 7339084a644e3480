"""golden_baselines.py on made-up runs: budgets, tuning, tables, and what is run again."""

import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from golden_baselines_protocol import (
    CANDIDATES,
    SFT_FIRST,
    TUNING_SEED,
    UNTUNED,
    Cost,
    Job,
    choose,
    make_job,
    split,
    tuning_jobs,
)
from golden_baselines_report import (
    at_level,
    cell,
    cost_table,
    difference_table,
    estimate,
    ladder_table,
    level_table,
    row,
)

RUNGS = ("same states", "whole solution", "fresh pairs", "unseen tasks")


def job_of(arm: str, seed: int = 0, solutions: int = 5) -> Job:
    return make_job(arm, solutions, seed, UNTUNED, 1_000, 8)


def make_look(share: float, rate: float, drift: float) -> dict:
    cost = Cost(rollouts=100 * share, without_gradient=2_000 * share, with_gradient=1_000 * share, seconds=60 * share)
    return {
        "share": share,
        "cost": asdict(cost) | {"passes": cost.passes},
        "pass": rate,
        "pass_others": 0.1,
        "golden": rate / 2,
        "golden_others": 0.05,
        "drift": drift,
        "drift_prompts": 2 * drift,
    }


def make_result(job: Job, rate: float, drift: float = 0.01) -> dict:
    """A run that has half of its gain at half of the budget."""
    looks = [make_look(0.0, 0.1, 0.0), make_look(0.5, (0.1 + rate) / 2, drift / 2), make_look(1.0, rate, drift)]
    ladder = {rung: rate - 0.1 * place for place, rung in enumerate(RUNGS)}
    return {"job": asdict(job), "looks": looks, "ladder": ladder, "trained": ["a"]}


# ------------------------------ budgets ------------------------------


def test_a_position_with_a_gradient_costs_three_passes():
    cost = Cost(rollouts=7, generated=50, without_gradient=100, with_gradient=10, updates=2, programs=3, seconds=1.5)
    assert cost.passes == 130
    assert cost - cost == Cost()
    assert cost + cost == Cost(14, 100, 200, 20, 4, 6, 3.0)


def test_the_budget_grows_with_the_solutions():
    assert job_of("grpo", solutions=5).total == 5_000
    assert job_of("grpo", solutions=2).total == 2_000


def test_sft_ends_at_its_own_share_and_early_where_something_follows():
    assert job_of("none").phases() == []
    assert job_of("sft").phases() == [("sft", UNTUNED["sft"]["share"])]
    assert job_of("redaction").phases() == [("redaction", 1.0)]
    assert job_of("sft_then_redaction").phases() == [("sft", SFT_FIRST), ("redaction", 1.0)]


def test_looks_rise_to_the_end_of_a_phase_and_begin_early_for_sft():
    job = job_of("sft_then_redaction")
    assert job.looks("sft", SFT_FIRST) == [1 / 256, 1 / 128, 1 / 64]
    assert job.looks("redaction", 1.0) == [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0]
    assert job.looks("sft", 0.2)[-2:] == [1 / 8, 0.2]


def test_a_run_is_known_by_the_settings_that_its_arm_uses():
    other = UNTUNED | {"grpo": {"rate": 1.0, "updates": 4}, "sft": {"rate": 3e-4, "share": 1.0}}
    assert make_job("redaction", 5, 0, other, 1_000, 8) == job_of("redaction")
    assert make_job("sft_then_redaction", 5, 0, other, 1_000, 8) == job_of("sft_then_redaction")
    assert make_job("grpo", 5, 0, other, 1_000, 8) != job_of("grpo")
    assert make_job("sft", 5, 0, other, 1_000, 8) != job_of("sft")


@given(st.integers(1, 8), st.integers(0, 200))
def test_every_problem_is_either_trained_on_or_another_one(solutions: int, seed: int):
    names = list("abcdefgh")
    trained, others = split(names, solutions, seed)
    assert len(trained) == solutions
    assert sorted(trained + others) == names
    assert (trained, others) == split(names, solutions, seed)


def test_seeds_train_on_different_problems_and_more_than_there_are_is_refused():
    assert len({tuple(split(list("abcdefgh"), 5, seed)[0]) for seed in range(10)}) > 5
    with pytest.raises(ValueError, match="from 1 to 2 solutions, got 3"):
        split(["a", "b"], 3, 0)


# ------------------------------ tuning ------------------------------


@pytest.mark.parametrize("method", CANDIDATES)
def test_tuning_uses_no_reported_seed_and_each_candidate_once(method: str):
    jobs = tuning_jobs(method, 5, 1_000, 8)
    assert {job.seed for job in jobs} == {TUNING_SEED}
    assert all(job.for_tuning for job in jobs)
    assert len(set(jobs)) == len(CANDIDATES[method])
    assert {job.budget for job in jobs} == {1_000 if method == "sft" else 500}
    for job, candidate in zip(jobs, CANDIDATES[method], strict=True):
        assert {name: job.setting(method, name) for name in candidate} == candidate
        assert job.phases()[0][1] <= 1.0


def test_the_best_pass_rate_wins_and_among_equals_the_least_drift():
    jobs = tuning_jobs("redaction", 5, 1_000, 8)
    results = [
        make_result(job, rate, drift) for job, rate, drift in zip(jobs, (0.5, 0.6, 0.62), (0, 2, 3), strict=True)
    ]
    assert choose(results) == {"rate": 0.06}
    results[0] = make_result(jobs[0], 0.595, 0.0)
    assert choose(results) == {"rate": 0.03}
    results[2] = make_result(jobs[2], 0.9, 9.0)
    assert choose(results) == {"rate": 0.12}


def test_without_other_tasks_the_prompts_drift_decides():
    results = [make_result(job, 0.5) for job in tuning_jobs("redaction", 5, 1_000, 8)]
    for result, drift in zip(results, (0.3, 0.1, 0.2), strict=True):
        result["looks"][-1] |= {"drift": None, "drift_prompts": drift}
    assert choose(results) == {"rate": 0.06}
    reported = make_result(job_of("sft"), 0.9)
    for look in reported["looks"]:
        look["drift"] = None
    assert ladder_table([row(reported)]).endswith("| - | 0.020 |")
    assert level_table([row(reported)]).endswith("| - | 0.010 |")


# ------------------------------ tables ------------------------------


def test_a_cell_has_the_interval_over_seeds():
    assert cell(None) == "-"
    assert cell(estimate([])) == "-"
    assert cell(estimate([0.25, None])) == "0.250"
    assert cell(estimate([0.1, 0.2, 0.3])).startswith("0.200 [0.1")


def test_the_ladder_has_every_arm_in_its_order():
    rows = [row(make_result(job_of(arm, seed), 0.5 + 0.1 * seed)) for arm in ("grpo", "none") for seed in (0, 1)]
    lines = ladder_table(rows).splitlines()
    assert lines[0] == (
        "| arm | visited states | whole solution | and every fresh pair | other tasks | drift, others' solutions | "
        "drift, prompts |"
    )
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| none", "| grpo"]
    assert "| grpo | 0.550 [0.500, 0.600] | 0.450 [0.400, 0.500] | 0.350" in lines[3]
    assert lines[3].endswith("| 0.010 [0.010, 0.010] | 0.020 [0.020, 0.020] |")


def test_differences_are_of_the_same_seed():
    rows = [row(make_result(job_of("sft", seed), 0.9 - 0.1 * seed, 0.1)) for seed in (0, 1, 2)]
    rows += [row(make_result(job_of("redaction", seed), 0.6 - 0.1 * seed, 0.02)) for seed in (1, 0)]
    table = difference_table(rows)
    assert table is not None
    assert table.splitlines()[2].startswith("| redaction | -0.300 [-0.300, -0.300] |")
    assert table.splitlines()[2].endswith("| -0.080 [-0.080, -0.080] | -0.160 [-0.160, -0.160] |")
    assert difference_table(rows[:3]) is None
    assert difference_table(rows[3:]) is None


def test_costs_are_means_over_seeds():
    rows = [row(make_result(job_of("grpo", seed), 0.5)) for seed in (0, 1)]
    assert cost_table(rows).splitlines()[2] == "| grpo | 100 | 0 | 2,000 | 1,000 | 0 | 0 | 60 | 5,000 |"


def test_arms_are_compared_where_they_first_have_the_same_pass_rate():
    fast, slow, never = (make_result(job_of("grpo", seed), rate, 0.4) for seed, rate in ((0, 0.9), (1, 0.6), (2, 0.4)))
    # .1 at the start, .5 at half of the budget, .9 at its end.
    assert at_level(fast, 0.5) == pytest.approx(
        {"pass_others": 0.1, "drift": 0.2, "drift_prompts": 0.4, "passes": 2_500, "seconds": 30}
    )
    # .35 at half of the budget, .6 at its end: three fifths of the way between.
    found = at_level(slow, 0.5)
    assert found is not None
    assert (found["drift"], found["passes"]) == pytest.approx((0.32, 4_000))
    assert at_level(never, 0.5) is None
    assert at_level(never, 0.1) == pytest.approx(
        {"pass_others": 0.1, "drift": 0.0, "drift_prompts": 0.0, "passes": 0, "seconds": 0}
    )
    line = level_table([row(result) for result in (fast, slow, never)]).splitlines()[2]
    assert line.startswith("| grpo | 2 of 3 | 0.003 [0.003, 0.004] | 39 [30, 48] | 0.100 [0.100, 0.100] | 0.260 [0.2")
    assert level_table([row(never)]).splitlines()[2].startswith("| grpo | 0 of 1 | - | - | - |")
