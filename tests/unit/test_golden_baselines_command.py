"""The command of golden_baselines.py, on made-up runs: what is tuned, what is run again, what is refused."""

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import golden_baselines
from golden_baselines import main
from golden_baselines_protocol import ARMS, CANDIDATES, UNTUNED, Job, Store
from test_golden_baselines import job_of, make_result
from test_leaderboard_store import AtOnce


class Lab:
    """Makes a run at once; dies after `lives` runs."""

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
