"""Simulated engines: closed forms, queueing theory, and simulations that make every step or recompute everything."""

import random
from heapq import heappop, heappush
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.simulation.engine_model import EngineFleet, EngineSettings


def finish_times(settings, jobs, seed=0):
    """End times of jobs (time, tokens), by job number."""
    fleet = EngineFleet(settings, seed)
    for number, (at, tokens) in enumerate(jobs):
        fleet.submit(number, tokens, at)
    ends = {}
    while (ended := fleet.next_finished()) is not None:
        assert ended[1] not in ends
        ends[ended[1]] = ended[0]
    assert fleet.num_in_flight == 0
    return [ends[number] for number in range(len(jobs))]


def every_step(settings, lengths):
    """One engine, everything sent at 0: makes every decoding step."""
    waiting, running, ends, now = list(enumerate(lengths)), {}, {}, 0.0
    while waiting or running:
        while waiting and len(running) < settings.slots:
            number, tokens = waiting.pop(0)
            running[number] = tokens
            now += settings.prefill_seconds
        now += settings.step_time(len(running))
        for number in list(running):
            running[number] -= 1
            if not running[number]:
                del running[number]
                ends[number] = now
    return [ends[number] for number in range(len(lengths))]


def every_job(settings, jobs):
    """One engine, jobs sent at any time: between events, recomputes what each job has left."""
    coming, waiting, left, ends, now, stall = list(enumerate(jobs)), [], {}, {}, 0.0, 0.0
    while coming or waiting or left:
        while waiting and len(left) < settings.slots:
            number, tokens = waiting.pop(0)
            left[number] = float(tokens)
            stall += settings.prefill_seconds
        speed = 1 / settings.step_time(len(left)) if left else 0.0
        to_end = stall + min(left.values()) / speed if left else float("inf")
        to_next = coming[0][1][0] - now if coming else float("inf")
        step = min(to_end, to_next)
        stalled = min(stall, step) if left else 0.0
        stall -= stalled
        left = {number: rest - speed * (step - stalled) for number, rest in left.items()}
        now += step
        for number in [number for number, rest in left.items() if rest < 1e-6]:
            del left[number]
            ends[number] = now
        while coming and coming[0][1][0] <= now:
            number, (_, tokens) = coming.pop(0)
            waiting.append((number, tokens))
    return [ends[number] for number in range(len(jobs))]


settings_of_one = st.builds(
    EngineSettings,
    slots=st.integers(1, 6),
    step_seconds=st.sampled_from([0.0, 0.01, 0.5]),
    sequence_seconds=st.sampled_from([0.001, 0.2]),
    prefill_seconds=st.sampled_from([0.0, 0.3]),
)
lengths = st.lists(st.integers(1, 30), min_size=1, max_size=20)
# Off the grid of step times: rounding would decide which of two simultaneous events comes first.
times = st.floats(0, 20).map(lambda time: time + 3.14159e-4)
jobs = st.lists(st.tuples(times, st.integers(1, 30)), min_size=1, max_size=20).map(
    lambda jobs: sorted(jobs, key=lambda job: job[0])
)


def test_equal_lengths_take_waves_of_full_batches():
    settings = EngineSettings(slots=4, step_seconds=0.02, sequence_seconds=0.005)
    ends = finish_times(settings, [(0.0, 50)] * 12)
    assert ends == pytest.approx([50 * 0.04] * 4 + [100 * 0.04] * 4 + [150 * 0.04] * 4)


def test_the_batch_speeds_up_as_sequences_end():
    settings = EngineSettings(slots=8, step_seconds=0.01, sequence_seconds=0.002)
    # 10 steps of three, 20 of two, 70 of one.
    first, second = 10 * 0.016, 10 * 0.016 + 20 * 0.014
    assert finish_times(settings, [(0.0, 10), (0.0, 30), (0.0, 100)]) == pytest.approx(
        [first, second, second + 70 * 0.012]
    )


@given(settings_of_one, lengths)
def test_agrees_with_making_every_step(settings, lengths):
    assert finish_times(settings, [(0.0, tokens) for tokens in lengths]) == pytest.approx(every_step(settings, lengths))


@given(settings_of_one, jobs)
def test_agrees_with_recomputing_every_job(settings, jobs):
    assert finish_times(settings, jobs) == pytest.approx(every_job(settings, jobs), abs=1e-4)


@given(settings_of_one, jobs, st.integers(1, 4))
def test_several_engines_lose_nothing_and_report_in_order(settings, jobs, num_engines):
    settings = EngineSettings(
        num_engines, settings.slots, settings.step_seconds, settings.sequence_seconds, settings.prefill_seconds
    )
    fleet = EngineFleet(settings)
    for number, (at, tokens) in enumerate(jobs):
        fleet.submit(number, tokens, at)
    ended = []
    while (one := fleet.next_finished()) is not None:
        ended.append(one)
    assert sorted(number for _, number in ended) == list(range(len(jobs)))
    assert all(a[0] <= b[0] for a, b in pairwise(ended))
    fastest = settings.step_time(1)
    assert all(time >= jobs[number][0] + fastest * jobs[number][1] - 1e-6 for time, number in ended)
    assert fleet.busy_seconds <= num_engines * fleet.now + 1e-6
    assert fleet.running_seconds <= settings.slots * fleet.busy_seconds + 1e-6


def test_rollouts_are_spread_evenly_over_engines():
    settings = EngineSettings(num_engines=5, slots=100, step_seconds=0.01, sequence_seconds=0.01)
    assert finish_times(settings, [(0.0, 10)] * 35) == pytest.approx([10 * 0.08] * 35)


def test_a_rollout_goes_to_the_engine_with_the_fewest():
    settings = EngineSettings(num_engines=2, slots=10, step_seconds=0.0, sequence_seconds=1.0)
    # Two long ones side by side; the short one ends alone on its engine, and the fourth joins there.
    ends = finish_times(settings, [(0.0, 100), (0.0, 3), (5.0, 10)])
    assert ends == pytest.approx([100.0, 3.0, 15.0])


def test_the_agent_loop_is_one_queue_for_all_engines():
    settings = EngineSettings(num_engines=3, slots=9, step_seconds=0.001, sequence_seconds=0.0, host_seconds=0.5)
    ends = finish_times(settings, [(0.0, 1), (0.0, 1), (0.2, 1), (10.0, 1)])
    assert ends == pytest.approx([0.501, 1.001, 1.501, 10.501])


def poisson_jobs(rng, rate, num, length):
    now, jobs = 0.0, []
    for _ in range(num):
        now += rng.expovariate(rate)
        jobs.append((now, length(rng)))
    return jobs


def test_one_slot_is_the_queue_of_pollaczek_and_khinchine():
    # M/G/1: mean wait = rate E[S^2] / (2 (1 - load)), S = 1 or 9 s with equal chance, load .5.
    jobs = poisson_jobs(random.Random(1), 0.1, 60_000, lambda rng: rng.choice([1, 9]))
    ends = finish_times(EngineSettings(slots=1, step_seconds=1.0, sequence_seconds=0.0), jobs)
    waits = [end - at - tokens for end, (at, tokens) in zip(ends, jobs, strict=True)]
    assert sum(waits) / len(waits) == pytest.approx(0.1 * 41 / (2 * 0.5), rel=0.05)


def test_without_a_fixed_cost_the_slots_share_one_processor():
    # M/G/1 processor sharing: mean time in the system = E[S] / (1 - load), whatever the distribution.
    jobs = poisson_jobs(random.Random(2), 0.1, 60_000, lambda rng: rng.choice([1, 9]))
    ends = finish_times(EngineSettings(slots=10**6, step_seconds=0.0, sequence_seconds=1.0), jobs)
    times = [end - at for end, (at, _) in zip(ends, jobs, strict=True)]
    assert sum(times) / len(times) == pytest.approx(5 / 0.5, rel=0.05)


def test_two_slots_of_fixed_speed_are_two_servers():
    """M/G/2 by hand: each job takes the server that is free first."""
    jobs = poisson_jobs(random.Random(3), 0.3, 2000, lambda rng: rng.randint(1, 9))
    free, expected = [0.0, 0.0], []
    for at, tokens in jobs:
        end = max(at, heappop(free)) + tokens
        heappush(free, end)
        expected.append(end)
    ends = finish_times(EngineSettings(slots=2, step_seconds=1.0, sequence_seconds=0.0), jobs)
    assert ends == pytest.approx(expected)


def test_waits_until_a_time_and_no_longer():
    fleet = EngineFleet(EngineSettings(step_seconds=1.0, sequence_seconds=0.0))
    fleet.submit("a", 5, at=1.0)
    assert fleet.next_finished(until=5.9) is None
    assert fleet.next_finished(until=6.0) == (6.0, "a")
    assert fleet.next_finished() is None


def test_refuses_the_past_and_empty_rollouts():
    fleet = EngineFleet(EngineSettings(step_seconds=1.0))
    fleet.submit("a", 5, at=1.0)
    fleet.next_finished()
    with pytest.raises(ValueError, match="the fleet is already past it"):
        fleet.submit("b", 5, at=1.0)
    with pytest.raises(ValueError, match="at least one token"):
        fleet.submit("b", 0, at=10.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_engines": 0}, "num_engines must be an int of at least 1, got 0"),
        ({"slots": 1.5}, "slots must be an int"),
        ({"step_seconds": -1.0}, "step_seconds must be at least 0"),
        ({"host_seconds": float("nan")}, "host_seconds must be at least 0 and finite"),
        ({"step_seconds": 0.0, "sequence_seconds": 0.0}, "tokens must take time"),
    ],
)
def test_bad_settings_are_explained(changes, message):
    with pytest.raises(ValueError, match=message):
        EngineSettings(**changes)
