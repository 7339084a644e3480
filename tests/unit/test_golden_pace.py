"""The simulated pace of golden redaction: closed forms where they exist, and what must be true of any scenario."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction import golden
from recipe.golden_redaction.method.pace import PaceScenario, simulate
from verl_ext.core.errors import SignalError

# Rollouts of 100 tokens, all at once; programs take no time.
PLAIN = PaceScenario(
    states=2, actions=3, rollouts=4, median_tokens=100, sigma=0.0, num_engines=1, slots=100, step_seconds=0.01,
    sequence_seconds=0.001, prefill_seconds=0.5, call_seconds=0.25, workers=100, program_seconds=0.0, same_programs=0.0,
    ranks=1, update_state_seconds=0.4, inner_steps=2.0, other_seconds=0.3, weights_seconds=1.0, num_steps=2,
)  # fmt: skip


def change(scenario: PaceScenario = PLAIN, **changes: float) -> PaceScenario:
    return dataclasses.replace(scenario, **changes)


def test_a_step_is_the_sum_of_its_parts():
    pace = simulate(PLAIN)
    start = 2 * 0.25 + 2 * 0.5 + 0.01
    assert pace.generation_seconds == pytest.approx(start + 100 * (0.01 + 24 * 0.001))
    assert pace.visit_seconds == pace.generation_seconds
    assert pace.update_seconds == pytest.approx(2 * 0.4 * 2 + 0.3)
    assert pace.step_seconds == pytest.approx(pace.visit_seconds + pace.update_seconds + 1.0)
    assert pace.states_per_hour == pytest.approx(3600 * 2 / pace.step_seconds)
    assert pace.engines_busy == pytest.approx(100 * 0.034 / pace.step_seconds)


def test_visits_ahead_hide_the_shorter_of_visits_and_update():
    before = simulate(PLAIN)
    ahead = simulate(change(visit_ahead=True))
    assert ahead.step_seconds == pytest.approx(max(before.visit_seconds, before.update_seconds) + 1.0)
    slow = simulate(change(visit_ahead=True, inner_steps=100.0))
    assert slow.step_seconds == pytest.approx(slow.update_seconds + 1.0)


def test_programs_wait_for_a_worker_and_copies_are_judged_once():
    # 24 programs, all ready at once.
    one = simulate(change(workers=1, program_seconds=2.0))
    assert one.visit_seconds - one.generation_seconds == pytest.approx(48.0)
    five = simulate(change(workers=5, program_seconds=2.0))
    assert five.visit_seconds - five.generation_seconds == pytest.approx(10.0)
    half = simulate(change(workers=1, program_seconds=2.0, same_programs=0.5, num_steps=200))
    assert half.visit_seconds - half.generation_seconds == pytest.approx(24.0, rel=0.1)


def test_programs_of_early_rollouts_run_while_others_are_generated():
    long = change(sigma=1.0, workers=1, program_seconds=0.1, num_steps=20, max_tokens=10_000)
    pace = simulate(long)
    assert pace.visit_seconds - pace.generation_seconds < 0.7 * 24 * 0.1


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.floats(0.0, 1.5), st.integers(1, 4))
def test_more_engines_workers_and_ranks_are_never_slower(states: int, actions: int, sigma: float, seed: int):
    small = change(states=states, actions=actions, sigma=sigma, seed=seed, workers=2, program_seconds=0.2)
    large = change(small, num_engines=4 * states * actions, workers=200, ranks=8)
    assert simulate(large).step_seconds <= simulate(small).step_seconds + 1e-9


@pytest.mark.parametrize(
    "changes",
    [{"states": 0}, {"sigma": float("inf")}, {"same_programs": 1.0}, {"workers": 1.5}, {"step_seconds": -1.0}],
)
def test_values_out_of_range_are_refused(changes: dict[str, float]):
    with pytest.raises(ValueError, match=next(iter(changes))):
        change(**changes)


def test_the_command_prints_an_estimate_and_a_table(capsys: pytest.CaptureFixture):
    assert golden.main(["pace", "--states", "2", "--num_steps", "1"]) == 0
    assert "states per hour" in capsys.readouterr().out
    assert golden.main(["pace", "--states", "2", "--num_steps", "1", "--vary", "visit_ahead", "false", "true"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["visit_ahead", "---", "false", "true"]
    for words in (["--vary", "tokens", "1"], ["--states", "many"], ["--states", "0"], ["--vary", "visit_ahead", "yes"]):
        with pytest.raises(SignalError):
            golden.main(["pace", *words])
    with pytest.raises(SignalError, match="at least one value"):
        golden.main(["pace", "--vary", "states"])
