"""The safety suite's report and command, on made-up runs: arithmetic, verdicts, and what is run again."""

import itertools
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import fast_dapo_leaderboard
import fast_dapo_safety
from fast_dapo_safety import main
from leaderboard_protocol import Settings
from safety_protocol import BY_HAND, SCENARIOS, Job, SafetyStore, final_accuracy, looks_at
from safety_report import Difference, differences, render, row, summary, worst, write_report
from test_leaderboard_store import AtOnce


def make_result(method: str, seed: int, *, scenario: str = "graded", budget: int = 20_000, **final: float) -> dict:
    """A run whose accuracy is .2 everywhere until its last three looks, with these means."""
    looks = looks_at(budget)
    history = [
        {"step": step, "rollouts": int(at), "trained": int(at) // 2, "accuracy_by_domain": dict.fromkeys(final, 0.2)}
        for step, at in enumerate(looks)
    ]
    for shift, look in zip((-0.01, 0.0, 0.01), history[-3:], strict=True):
        look["accuracy_by_domain"] = {domain: value + shift for domain, value in final.items()}
    job = Job(method, scenario, seed, BY_HAND[method], budget)
    return {"job": asdict(job), "history": history, "seconds": {"generating": 60.0, "updating": 30.0}}


def make_difference(*by_seed: float) -> Difference:
    return Difference("choose", "graded", "sums", 20.0, 40.0, 41.0, by_seed)


# ------------------------------ arithmetic ------------------------------


def test_the_final_accuracy_is_the_mean_of_the_last_three_looks():
    result = make_result("choose", 0, sums=0.5, boxed=0.3)
    result["history"][-1]["accuracy_by_domain"]["sums"] += 0.3
    assert final_accuracy(result) == pytest.approx({"sums": 0.6, "boxed": 0.3})


def test_differences_are_of_the_same_seed_in_points():
    results = [
        make_result("uniform_rloo", 0, sums=0.40, boxed=0.3),
        make_result("uniform_rloo", 1, sums=0.50, boxed=0.3),
        make_result("uniform_rloo", 2, sums=0.90, boxed=0.9),  # has no partner
        make_result("choose", 1, sums=0.51, boxed=0.2),
        make_result("choose", 0, sums=0.43, boxed=0.3),
    ]
    sums, boxed = differences(results)
    assert (sums.domain, boxed.domain) == ("sums", "boxed")
    assert sums.by_seed == pytest.approx((3.0, 1.0))
    assert (sums.base, sums.uniform, sums.method_mean) == pytest.approx((20.0, 45.0, 47.0))
    assert boxed.by_seed == pytest.approx((0.0, -10.0))
    assert boxed.mean == pytest.approx(-5.0)
    assert worst([sums, boxed]) == [boxed]


def test_every_scenario_has_a_worst_domain_of_its_own():
    results = [
        make_result(method, 0, scenario=scenario, a=0.4 + gain, b=0.4 - gain)
        for scenario, own in (("graded", 0.1), ("format", -0.1))
        for method, gain in (("uniform_rloo", 0.0), ("choose", own))
    ]
    assert [(d.scenario, d.domain) for d in worst(differences(results))] == [("graded", "b"), ("format", "a")]


def test_the_interval_is_that_of_all_resamples_of_the_seeds():
    values = (-3.0, 1.0, 2.0, 8.0)
    means = [np.mean(sample) for sample in itertools.product(values, repeat=4)]
    assert make_difference(*values).interval() == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.3)
    assert make_difference(2.0).interval() is None
    assert make_difference(2.0, 2.0).interval() == (2.0, 2.0)


@pytest.mark.parametrize(
    ("by_seed", "verdict"),
    [
        ((0.0, 1.0), "yes"),
        ((-1.0, -1.0), "yes"),
        ((-3.0, 2.0), "on average"),
        ((4.0,), "on average"),
        ((-1.1, -1.1), "no"),
        ((-5.0, 2.0), "no"),
    ],
)
def test_the_bar_is_one_point(by_seed, verdict):
    assert make_difference(*by_seed).verdict == verdict


def test_the_table_marks_the_worst_and_what_is_hardly_ever_rewarded():
    results = [
        make_result(method, seed, scenario="length_bias", short=0.5 + gain, long=0.3 - gain)
        for seed in range(2)
        for method, gain in (("uniform_rloo", 0.0), ("choose", 0.05))
    ]
    short, long = render(differences(results)).splitlines()[2:]
    assert short.endswith("| short | 20.0 | 50.0 | choose | 55.0 | +5.0 [+5.0, +5.0] | yes |")
    assert "| long (hardly ever rewarded) | 20.0 | 30.0 | choose | 25.0 |" in long
    assert long.endswith("| **-5.0 [-5.0, -5.0]** | no |")
    assert summary(differences(results)) == (
        "choose: more than 1 point below uniform in 1 of 2 domains: length_bias (long, -5.0)."
    )


def test_everything_is_written(tmp_path: Path):
    results = [make_result("uniform_rloo", 0, sums=0.4), make_result("choose", 0, sums=0.5)]
    text = write_report(tmp_path, results, "What was done.")
    assert (tmp_path / "safety.md").read_text() == text
    assert "Processor time of these runs: 3 minutes." in text
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["runs"] == [row(result) for result in results]
    assert written["runs"][1]["final_accuracy"] == {"sums": pytest.approx(0.5)}
    assert written["differences"][0]["mean"] == pytest.approx(10.0)
    assert written["differences"][0]["interval"] is None


def test_without_uniform_there_is_nothing_to_compare(tmp_path: Path):
    assert "it takes uniform_rloo and another method" in write_report(tmp_path, [make_result("choose", 0, a=0.4)], "")


# ------------------------------ the command ------------------------------


class Lab:
    """Makes a run at once."""

    def __init__(self) -> None:
        self.made: list[Job] = []

    def run(self, job: Job) -> dict:
        self.made.append(job)
        gain = 0.1 * (job.method == "choose") + 0.01 * job.seed
        result = make_result(job.method, job.seed, scenario=job.scenario, budget=job.budget, sums=0.4 + gain)
        return {**result, "job": asdict(job)}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    lab = Lab()
    for name in ("chains_base", "domains_base"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.safetensors").write_bytes(name.encode())
    monkeypatch.setattr(fast_dapo_leaderboard, "MODELS", tmp_path / "models")
    monkeypatch.setattr(fast_dapo_safety, "run_in_worker", lab.run)
    monkeypatch.setattr(fast_dapo_safety, "start_workers", lambda count: AtOnce())
    return lab


def call(folder: Path, *more: str) -> None:
    main(["--quick", "--output", str(folder), "--scenarios", "graded", "length_bias", *more])


def test_a_second_call_makes_only_what_is_missing(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = tmp_path / "safety"
    call(folder)
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(written) == {"runs.jsonl", "results.json", "safety.md", "base_models.json"}
    assert len(lab.made) == 8
    # Killed before all were made, while it wrote a line.
    lines = written["runs.jsonl"].splitlines(keepends=True)
    (folder / "runs.jsonl").write_text("".join(lines[:3]) + lines[3][:50])
    call(folder)
    assert "5 runs to make" in capsys.readouterr().out
    assert Counter(lab.made[8:]) == Counter(Job.from_json(json.loads(line)["job"]) for line in lines[3:])
    for name in ("results.json", "safety.md", "base_models.json"):
        assert (folder / name).read_text() == written[name]
    lab.made.clear()
    call(folder)
    assert lab.made == []


def test_a_run_of_another_length_or_setting_is_another_run(lab: Lab, tmp_path: Path):
    store = SafetyStore(tmp_path / "runs.jsonl")
    job = Job("choose", "graded", 0, BY_HAND["choose"], 5_000)
    store.finish([job], lab.run, AtOnce(), "test")
    again = SafetyStore(tmp_path / "runs.jsonl")
    assert again.find(job) == lab.run(job)
    assert again.find(Job("choose", "graded", 0, BY_HAND["choose"], 4_000)) is None
    assert again.find(Job("choose", "graded", 0, Settings(1e-3, 32, 4, 1), 5_000)) is None


def test_tuned_settings_replace_those_of_the_table_by_pool(lab: Lab, tmp_path: Path):
    tuned = {"D": {"choose": asdict(Settings(1.5e-4, 64, 2, 1))}}
    (tmp_path / "tuned.json").write_text(json.dumps(tuned))
    call(tmp_path / "safety", "--settings", str(tmp_path / "tuned.json"), "--seeds", "1")
    assert {(job.method, job.scenario): job.settings.batch for job in lab.made} == {
        ("uniform_rloo", "graded"): 64,
        ("choose", "graded"): 64,
        ("uniform_rloo", "length_bias"): 64,
        ("choose", "length_bias"): 32,
    }
    assert "Settings of tuned.json" in (tmp_path / "safety/safety.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenarios", "flood"], "invalid choice: 'flood'"),
        (["--methods", "spo"], "invalid choice: 'spo'"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--settings", "nowhere.json"], "no tuned settings at nowhere.json"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(lab: Lab, tmp_path: Path, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        main(["--output", str(tmp_path / "safety"), *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert lab.made == []


def test_every_scenario_starts_from_a_base_model_of_the_leaderboard():
    assert {scenario.pool for scenario in SCENARIOS.values()} <= fast_dapo_leaderboard.POOLS.keys()
