"""golden_baselines.py on runs that nobody made: budgets, tuning, tables, and what is run again."""

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import golden_baselines
from golden_baselines import main
from golden_baselines_protocol import (
    ARMS,
    CANDIDATES,
    SFT_FIRST,
    TUNING_SEED,
    UNTUNED,
    Cost,
    Job,
    Store,
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
from test_leaderboard_store import AtOnce

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


# ------------------------------ the command ------------------------------


class Lab:
    """Makes a run at once; dies after so many."""

    def __init__(self) -> None:
        self.made: list[Job] = []
        self.lives = 10**6

    def run(self, job: Job, model: Path, data: Path) -> dict:
        if len(self.made) == self.lives:
            raise RuntimeError("killed")
        self.made.append(job)
        result = make_result(job, 0.3 + 0.1 * list(ARMS).index(job.arm) + 0.01 * (job.seed % 3))
        del result["job"]
        return result


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    lab = Lab()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(b"weights")
    (tmp_path / "data.parquet").write_bytes(b"tasks")
    monkeypatch.setattr(golden_baselines, "run_in_worker", lab.run)
    monkeypatch.setattr(golden_baselines, "start_workers", lambda count: AtOnce())
    return lab


def call(folder: Path, *more: str) -> None:
    base = folder.parent
    main(["--output", str(folder), "--model", str(base / "model"), "--data", str(base / "data.parquet"), *more])


def test_all_arms_are_tuned_and_run_on_every_seed(lab: Lab, tmp_path: Path):
    call(tmp_path / "out")
    tuning = [job for job in lab.made if job.for_tuning]
    assert Counter(job.arm for job in tuning) == {method: len(own) for method, own in CANDIDATES.items()}
    reported = Counter((job.arm, job.solutions) for job in lab.made if not job.for_tuning)
    assert reported == {(arm, solutions): 3 for arm in ARMS for solutions in (4, 2)}
    tuned = json.loads((tmp_path / "out/tuned.json").read_text())
    assert {job.setting("redaction", "rate") for job in lab.made if job.arm == "sft_then_redaction"} == {
        tuned["redaction"]["rate"]
    }
    content = json.loads((tmp_path / "out/results.json").read_text())
    assert len(content["runs"]) == 42
    text = (tmp_path / "out/golden_baselines.md").read_text()
    assert text.index("## 4 golden solutions") < text.index("## 2 golden solutions")
    assert "| arm less sft |" in text


def test_a_second_call_makes_no_run_and_one_after_a_kill_only_those_that_lack(lab: Lab, tmp_path: Path):
    folder = tmp_path / "out"
    lab.lives = 20
    with pytest.raises(RuntimeError, match="killed") as error:
        call(folder)
    assert error.value.__notes__[0].startswith("in the run ")
    runs = folder / "runs.jsonl"
    runs.write_text(runs.read_text()[:-40])  # killed while it wrote its last line
    kept = [Job.from_json(json.loads(line)["job"]) for line in runs.read_text().splitlines()[:-1]]
    assert len(kept) >= 17
    lab.lives, first = 10**6, set(lab.made)
    lab.made.clear()
    call(folder)
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(written) == {"runs.jsonl", "base.json", "tuned.json", "results.json", "golden_baselines.md"}
    assert not set(lab.made) & set(kept)
    assert len(set(lab.made) | first) == sum(map(len, CANDIDATES.values())) + 42 == len(lab.made) + len(kept)
    lab.made.clear()
    call(folder)
    assert lab.made == []
    assert {path.name: path.read_text() for path in folder.iterdir()} == written
    call(folder, "--seeds", "4", "--arms", "none", "sft", "--solutions", "4")
    assert [(job.arm, job.seed) for job in lab.made] == [("sft", 3), ("none", 3)]


def test_the_quick_form_tunes_nothing(lab: Lab, tmp_path: Path):
    call(tmp_path / "out", "--quick")
    assert Counter(job.arm for job in lab.made) == dict.fromkeys(ARMS, 1)
    assert {(job.solutions, job.samples, job.for_tuning) for job in lab.made} == {(2, 8, False)}
    assert "untuned" in (tmp_path / "out/golden_baselines.md").read_text()


def test_given_settings_replace_tuning(lab: Lab, tmp_path: Path):
    (tmp_path / "tuned.json").write_text(json.dumps(UNTUNED | {"redaction": {"rate": 0.5}}))
    call(tmp_path / "out", "--settings", str(tmp_path / "tuned.json"), "--seeds", "1", "--arms", "redaction")
    assert {job.settings for job in lab.made} == {(("redaction.rate", 0.5),)}
    assert "of tuned.json" in (tmp_path / "out/golden_baselines.md").read_text()


def test_a_run_of_another_budget_is_another_run(lab: Lab, tmp_path: Path):
    store, job = Store(tmp_path / "runs.jsonl"), job_of("sft")
    [result] = store.finish([job], lambda job: lab.run(job, tmp_path, tmp_path), AtOnce(), lambda text: None)
    again = Store(tmp_path / "runs.jsonl")
    assert again.missing([job, job]) == []
    assert again.finish([job], lab.run, AtOnce(), lambda text: None) == [result]
    assert len(again.missing([Job(**{**asdict(job), "budget": 2_000})])) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "luck"], "invalid choice: 'luck'"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--solutions", "0"], "--solutions must be at least 1, got 0"),
        (["--model", "nowhere"], "missing: run `make demo-arc-data`, or give --model and --data"),
        (["--settings", "nowhere.json"], "no settings at nowhere.json"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(lab: Lab, tmp_path: Path, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        call(tmp_path / "out", *arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert lab.made == []


def test_settings_that_lack_a_method_are_refused_before_any_run(lab: Lab, tmp_path: Path, capsys):
    (tmp_path / "tuned.json").write_text(json.dumps({"sft": UNTUNED["sft"]}))
    with pytest.raises(SystemExit):
        call(tmp_path / "out", "--settings", str(tmp_path / "tuned.json"))
    assert "has no settings of grpo, prefix_grpo, redaction" in capsys.readouterr().err
    assert lab.made == []


def test_runs_of_another_base_model_are_refused(lab: Lab, tmp_path: Path, capsys):
    call(tmp_path / "out", "--quick")
    (tmp_path / "model/model.safetensors").write_bytes(b"other weights")
    with pytest.raises(SystemExit):
        call(tmp_path / "out", "--quick")
    assert "has runs of another model or other data" in capsys.readouterr().err
