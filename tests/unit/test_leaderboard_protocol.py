"""The leaderboard's tuning: the same budget for every method, and the best candidate stays."""

import itertools
import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from each import check_each
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from leaderboard_play import make_job, play, rising
from leaderboard_protocol import (
    BALANCED,
    FULL,
    METHODS,
    QUICK,
    REPORTED_LOOKS,
    TUNING_LOOKS,
    Job,
    Protocol,
    Rung,
    best,
    covers,
    cut,
    score,
    tune,
)

PROTOCOLS = pytest.mark.parametrize("protocol", [FULL, BALANCED, QUICK], ids=["full", "balanced", "quick"])
speeds = st.floats(0.0, 0.2)


def small(*rungs: Rung) -> Protocol:
    return replace(FULL, rungs=rungs, num_shapes=3, updates=(1,))


# ------------------------------ what is tried ------------------------------


def check_grid(method: str) -> None:
    candidates = FULL.grid(method)
    assert len(set(candidates)) == len(candidates) == FULL.num_candidates == 63
    for candidate in candidates:
        assert 64 <= candidate.batch * candidate.group <= 512
    groups = {candidate.group for candidate in candidates}
    singles_work = method == "spo" or method.startswith("choose")
    assert (1 in groups) == singles_work
    if method == "two_phase":
        assert min(groups) == 4
    assert set(QUICK.grid(method)) <= set(candidates)


def test_every_method_has_as_many_different_candidates_of_64_to_512_rollouts_a_batch():
    check_each(METHODS, check_grid)


def test_a_group_size_is_tried_with_several_batches_and_a_batch_with_several_group_sizes():
    shapes = {(candidate.batch, candidate.group) for candidate in FULL.grid("greso")}
    for place, sizes in enumerate(((32, 64, 128), (2, 4, 8))):
        for size in sizes:
            assert sum(shape[place] == size for shape in shapes) > 1


@PROTOCOLS
def test_tuning_seeds_are_fresh_in_each_rung_and_never_reported(protocol: Protocol):
    seeds = [seed for rung in protocol.rungs for seed in rung.seeds]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 100 > protocol.num_seeds


@PROTOCOLS
def test_rungs_get_longer_and_keep_fewer(protocol: Protocol):
    budgets = [rung.budget for rung in protocol.rungs]
    kept = [protocol.num_candidates, *(rung.keep for rung in protocol.rungs)]
    assert budgets == sorted(set(budgets))
    assert kept == sorted(set(kept), reverse=True)
    assert kept[-1] == 1


@PROTOCOLS
def test_tuning_costs_every_method_the_same_and_as_much_as_is_said(protocol: Protocol):
    asked: Counter[str] = Counter()

    def finish(jobs):
        asked.update({method: sum(job.budget for job in jobs if job.method == method) for method in METHODS})
        return [play(job, rising(0.001)) for job in jobs]

    tune(list(METHODS), "B", protocol, finish)
    assert set(asked.values()) == {protocol.tuning_cost}


def test_the_full_protocol_allows_what_its_description_says():
    import fast_dapo_leaderboard

    text = fast_dapo_leaderboard.__doc__ or ""
    assert f"at most {FULL.tuning_cost:,} rollouts" in text
    left = FULL.num_candidates
    for number, rung in enumerate(FULL.rungs, start=1):
        assert f"{number}      {left:<13}{rung.seeds[0]}" in text
        assert f"{rung.budget:,}\n" in text
        left = rung.keep


# ------------------------------ successive halving ------------------------------


@settings(max_examples=40)
@given(st.lists(speeds, min_size=9, max_size=9), st.integers(1, 5), st.integers(1, 3))
def test_without_noise_the_fastest_candidate_is_never_dropped(values: list[float], kept: int, num_seeds: int):
    protocol = small(Rung((100,), 2_000, kept + 1), Rung(tuple(range(101, 101 + num_seeds)), 9_000, 1))
    candidates = protocol.grid("greso")
    speed = dict(zip(candidates, values, strict=True))
    chosen = tune(["greso"], "B", protocol, lambda jobs: [play(job, rising(speed[job.settings])) for job in jobs])
    # Equal up to the look: speeds that reach everything at the same looks differ only in the area.
    assert speed[chosen["greso"]] == pytest.approx(max(values), abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12), st.integers(1, 12))
def test_the_best_are_those_that_a_sort_finds(scores: list[tuple[int, int]], keep: int):
    candidates = list(range(len(scores)))
    found = best(candidates, scores, keep)  # type: ignore[arg-type]
    assert found == [place for _, place in sorted(zip(scores, candidates, strict=True))][:keep]


def test_all_methods_share_a_rung_and_each_keeps_its_own_best():
    protocol = small(Rung((100,), 1_000, 2), Rung((101, 102), 4_000, 1))
    rungs = []

    def finish(jobs):
        rungs.append(jobs)
        goal = {"greso": protocol.grid("greso")[4], "two_phase": protocol.grid("two_phase")[7]}
        return [play(job, rising(0.05 if job.settings == goal[job.method] else 0.01)) for job in jobs]

    chosen = tune(["greso", "two_phase"], "E", protocol, finish)
    assert chosen == {"greso": protocol.grid("greso")[4], "two_phase": protocol.grid("two_phase")[7]}
    assert [len(jobs) for jobs in rungs] == [2 * 9, 2 * 2 * 2]
    assert {job.looks for jobs in rungs for job in jobs} == {TUNING_LOOKS}
    # Candidates that no pool would choose are dropped on the first one.
    assert [{job.pool for job in jobs} for jobs in rungs] == [{"B"}, {"E"}]


# ------------------------------ scores ------------------------------


def test_a_candidate_that_reaches_the_last_target_beats_one_that_was_ahead_before():
    stalled = play(make_job(), lambda rollouts: 0.2 + min(0.24, rollouts / 4_000))
    steady = play(make_job(), rising(0.03))
    assert score([steady], 10_000) < score([stalled], 10_000)
    # Before the last target can be reached, the one that is ahead leads.
    assert score([stalled], 4_000) < score([steady], 4_000)


def test_a_seed_that_never_gets_there_counts_as_the_budget():
    reached, never = play(make_job(), rising(0.1)), play(make_job(seed=1), rising(0.0))
    first, *_ = score([reached, never], 10_000)
    assert first == (3_000 + 10_000) / 2


def test_with_a_price_what_trains_less_wins():
    """Of two candidates that reach the target with the same rollouts."""
    job = make_job(price=1.0, budget=30_000)
    thrifty, lavish = play(job, rising(0.05)), play(job, rising(0.05))
    for look in lavish["history"]:
        look["trained"] = 4 * look["rollouts"]
    lavish = cut(lavish, job)
    assert score([thrifty], 30_000)[0] == 1.5 * 5_500
    assert score([lavish], 30_000)[0] == 5 * 5_500
    free = [cut(result, make_job(budget=30_000)) for result in (thrifty, lavish)]
    assert {score([result], 30_000)[0] for result in free} == {5_500}


def test_what_reaches_nothing_is_told_apart_by_the_area():
    slow, slower = play(make_job(budget=2_000), rising(0.02)), play(make_job(budget=2_000), rising(0.01))
    assert score([slow], 2_000)[:-1] == score([slower], 2_000)[:-1]
    assert score([slow], 2_000) < score([slower], 2_000)


# ------------------------------ how long a run is ------------------------------


@given(speeds, st.integers(1, 30), st.integers(1, 30), st.sampled_from([0, 1_000, 5_000]), st.booleans())
def test_a_short_run_read_off_a_longer_one_is_the_short_run(
    speed: float, short: int, longer: int, after: int, goes_on: bool
):
    job = make_job(budget=500 * short, after=after * (not goes_on))
    long_job = replace(job, budget=500 * (short + longer), after=after)
    whole = play(long_job, rising(speed))
    assert covers(whole, job)
    assert cut(whole, job) == play(job, rising(speed))


@given(speeds, st.integers(1, 20), st.integers(1, 20), st.sampled_from([0, 1_000]))
def test_a_run_covers_a_longer_job_only_if_that_would_have_ended_there(speed: float, short: int, longer: int, after):
    job = make_job(budget=500 * short)
    long_job = replace(job, budget=500 * (short + longer), after=after)
    done = play(job, rising(speed))
    assert covers(done, long_job) == (play(long_job, rising(speed))["history"] == done["history"] and _reached(done))


@given(speeds, st.integers(1, 30), st.integers(1, 30), st.sampled_from([0.0, 1.0, 3.0]))
def test_a_run_at_another_price_serves_as_far_as_it_went(speed: float, size: int, other_size: int, price: float):
    """Half of the rollouts are trained on: 500 cost 500 + 250 x price."""
    done = play(make_job(budget=500 * size), rising(speed))
    job = make_job(budget=500 * other_size, price=price)
    wanted = play(job, rising(speed))
    # If the job is covered, all its looks are there, at its own cost; if it is not, the run was too short.
    if covers(done, job):
        assert cut(done, job) == wanted
    else:
        assert len(done["history"]) <= len(wanted["history"])


def test_six_thousand_rollouts_tell_what_a_cost_of_three_thousand_does():
    done = play(make_job(budget=6_000), rising(0.01))
    assert covers(done, make_job(budget=3_000, price=1.0))
    assert covers(done, make_job(budget=9_000, price=1.0))
    assert not covers(done, make_job(budget=9_500, price=1.0))


def _reached(result: dict) -> bool:
    return score([result], 10**9)[0] < 10**9 and not result["job"]["after"]


def test_a_run_that_reached_the_target_goes_on_for_what_is_asked():
    ends = [play(make_job(after=after), rising(0.1))["history"][-1]["rollouts"] for after in (0, 2_000)]
    assert ends == [3_000, 5_000]
    assert play(make_job(budget=2_000, after=2_000), rising(0.1))["history"][-1]["rollouts"] == 2_000


@pytest.mark.parametrize("looks", [TUNING_LOOKS, REPORTED_LOOKS])
def test_looks_grow_rare_with_the_rollouts(looks):
    places = [0]
    while places[-1] < 40_000:
        places.append(int(looks.next_look(places[-1])))
    gaps = [(before, after - before) for before, after in itertools.pairwise(places)]
    assert gaps[0] == (0, looks.rollouts)
    for before, gap in gaps:
        assert gap == pytest.approx(max(looks.rollouts, looks.share * before), abs=1)
    assert gaps[-1][1] > looks.rollouts


def test_a_job_survives_json():
    job = make_job(after=10_000, looks=REPORTED_LOOKS)
    assert Job.from_json(json.loads(json.dumps(asdict(job)))) == job
