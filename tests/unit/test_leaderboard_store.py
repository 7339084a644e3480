"""Finished runs are kept: a second call makes only what is missing, and results are those of an uninterrupted run."""

import json
import sys
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from leaderboard_play import make_job, play, rising
from leaderboard_protocol import QUICK, Job, Settings, tune
from leaderboard_store import RunStore


class AtOnce(Executor):
    """Runs a call when it is submitted."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Lab:
    """Makes runs, each rising at a rate that its seed and settings determine; dies after `lives` runs."""

    def __init__(self, lives: int = 10**6) -> None:
        self.lives = lives
        self.made: list[Job] = []

    def run(self, job: Job) -> dict:
        if len(self.made) == self.lives:
            raise RuntimeError("killed")
        self.made.append(job)
        return play(job, rising(0.02 + 0.01 * (job.seed % 3) + 10 * job.settings.learning_rate))


def finish(path: Path, jobs: list[Job], lab: Lab) -> list[dict]:
    return RunStore(path).finish(jobs, lab.run, AtOnce(), "test")


JOBS = [make_job(method, seed) for method in ("greso", "dps") for seed in range(3)]


def test_results_come_in_the_order_of_the_jobs(tmp_path: Path):
    results = finish(tmp_path / "runs.jsonl", JOBS, Lab())
    assert [Job.from_json(result["job"]) for result in results] == JOBS


def test_a_second_call_makes_only_what_is_missing(tmp_path: Path):
    path, lab = tmp_path / "runs.jsonl", Lab()
    first = finish(path, JOBS[:4], Lab())
    assert finish(path, JOBS, lab) == first + [Lab().run(job) for job in JOBS[4:]]
    assert sorted(map(str, lab.made)) == sorted(map(str, JOBS[4:]))
    assert len(path.read_text().splitlines()) == len(JOBS)


def test_a_job_that_is_asked_for_twice_is_made_once(tmp_path: Path):
    lab = Lab()
    first, second = finish(tmp_path / "runs.jsonl", [JOBS[0], JOBS[0]], lab)
    assert first == second
    assert len(lab.made) == 1


def test_a_shorter_job_is_read_off_a_longer_run_and_a_longer_one_is_made(tmp_path: Path):
    path, job = tmp_path / "runs.jsonl", make_job(seed=0, budget=1_000)
    finish(path, [job], Lab())
    lab = Lab()
    assert finish(path, [replace(job, budget=3_000)], lab) == [Lab().run(replace(job, budget=3_000))]
    assert len(lab.made) == 1
    shorter = replace(job, budget=500)
    assert finish(path, [shorter], lab) == [Lab().run(shorter)]
    assert len(lab.made) == 1


@pytest.mark.parametrize(
    "other",
    [
        make_job("dps"),
        make_job(seed=1),
        make_job(pool="C"),
        make_job(settings=Settings(3e-4, 64, 2, 2)),
        make_job(looks=replace(make_job().looks, share=0.5)),
    ],
)
def test_another_run_does_not_stand_in(tmp_path: Path, other: Job):
    finish(tmp_path / "runs.jsonl", [make_job()], Lab())
    assert RunStore(tmp_path / "runs.jsonl").find(other) is None


@settings(max_examples=40)
@given(kept=st.floats(0, 1))
def test_killed_at_any_byte_and_resumed_is_as_if_nothing_had_been(
    tmp_path_factory: pytest.TempPathFactory, kept: float
):
    path = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    results = finish(path, JOBS, Lab())
    content = path.read_bytes()
    path.write_bytes(content[: round(kept * len(content))])
    lab = Lab()
    assert finish(path, JOBS, lab) == results
    assert len(lab.made) == len(JOBS) - content[: round(kept * len(content))].count(b"\n")
    assert sorted(path.read_bytes().splitlines()) == sorted(content.splitlines())


@settings(max_examples=15)
@given(lives=st.integers(0, 60))
def test_a_tuning_that_was_killed_chooses_what_an_uninterrupted_one_chooses(
    tmp_path_factory: pytest.TempPathFactory, lives: int
):
    path = tmp_path_factory.mktemp("tuning") / "tuning.jsonl"
    methods = ["greso", "spo"]

    def tuned(lab: Lab) -> dict[str, Settings]:
        return tune(methods, "B", QUICK, lambda jobs: finish(path, list(jobs), lab))

    needed = Lab()
    uninterrupted = tune(methods, "B", QUICK, lambda jobs: [needed.run(job) for job in jobs])
    if lives < len(needed.made):
        with pytest.raises(RuntimeError, match="killed"):
            tuned(Lab(lives))
    assert tuned(Lab()) == uninterrupted
    assert tuned(Lab(0)) == uninterrupted  # everything is there


def test_a_failure_says_in_which_run(tmp_path: Path):
    with pytest.raises(RuntimeError, match="killed") as failure:
        finish(tmp_path / "runs.jsonl", JOBS[:1], Lab(0))
    assert failure.value.__notes__ == ["in the run greso, pool B, seed 0: 64 x 2, rate 0.0003, updates 1"]


def test_a_line_that_somebody_broke_is_named(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    finish(path, JOBS[:2], Lab())
    first, second = path.read_text().splitlines()
    path.write_text(f"{first[:-1]}\n{second}\n")
    with pytest.raises(ValueError, match=r"line 1 of .*runs\.jsonl is not JSON"):
        RunStore(path)
    json.loads(second)
