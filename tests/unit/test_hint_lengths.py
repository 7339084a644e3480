"""Hint lengths of tests/benchmarks/hint_lengths.py follow the pass rates of hinted prompts."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from hint_lengths import HintLengths, HintSettings

P, LENGTH, GROUP = 24, 20, 4
HOPELESS = np.zeros(P)


def make(lengths=LENGTH, seed: int = 0, **settings) -> HintLengths:
    return HintLengths(np.full(P, lengths), HintSettings(**settings), seed)


def play(hints: HintLengths, needed: np.ndarray, choices: int, count: int = 8) -> list[list[int]]:
    """The lengths that were given; a prompt passes if its hint has as many tokens as it needs."""
    given_lengths = []
    for _ in range(choices):
        chosen = hints.choose(HOPELESS, count)
        given_lengths.append([hint.length for hint in chosen])
        for hint in chosen:
            passes = GROUP if hint.length >= needed[hint.position] else 0
            hints.observe(hint, passes, GROUP - passes)
    return given_lengths


@pytest.mark.parametrize("needed", [0, 1, 7, 18])
def test_hints_become_as_long_as_half_of_the_groups_need(needed: int):
    lengths = play(make(level_step=0.01, offset_step=0.0), np.full(P, needed), 200)
    # Rounded at random, half of them are long enough.
    assert np.mean(lengths[-60:]) == pytest.approx(max(needed - 0.5, 0), abs=0.3)


def test_prompts_that_need_more_than_others_get_more():
    needed = np.where(np.arange(P) < P // 2, 4, 14)
    hints = make(level_step=0.01, offset_step=0.5)
    play(hints, needed, 600)
    last = {hint.position: hint.length for hint in hints.choose(HOPELESS, P)}
    assert np.mean([last[position] for position in range(P // 2)]) < 7
    assert np.mean([last[position] for position in range(P // 2, P)]) > 11


@given(st.lists(st.integers(1, 30), min_size=P, max_size=P), st.floats(0, 1), st.integers(0, 99))
def test_at_least_one_token_is_left_to_write(lengths: list[int], start: float, seed: int):
    hints = HintLengths(lengths, HintSettings(start=start), seed)
    for hint in hints.choose(HOPELESS, P):
        assert 0 <= hint.length < lengths[hint.position]
        assert hint.alpha > 0
        assert hint.beta > 0


def test_only_hopeless_prompts_get_hints_and_each_once_before_any_twice():
    hints = make()
    means = np.where(np.arange(P) % 3 == 0, 0.5, 0.0)
    rounds = [[hint.position for hint in hints.choose(means, 8)] for _ in range(4)]
    assert sorted(rounds[0] + rounds[1]) == [position for position in range(P) if position % 3]
    assert sorted(rounds[2] + rounds[3]) == sorted(rounds[0] + rounds[1])


def test_the_posterior_is_that_of_rollouts_with_as_many_tokens_left():
    hints = make(start=0.5, level_step=0.0, offset_step=0.0)
    for hint in hints.choose(HOPELESS, P):
        assert hint.length == LENGTH // 2
        assert hint.alpha == hint.beta  # nothing is known
        hints.observe(hint, 1, 3)
    after = hints.choose(HOPELESS, 1)[0]
    assert after.alpha / (after.alpha + after.beta) == pytest.approx(1 / 4, abs=0.01)
    hints.level = 0.4
    shorter = hints.choose(HOPELESS, 1)[0]
    assert shorter.alpha == shorter.beta


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="start from 0 to 1"):
        HintSettings(start=1.5)
    with pytest.raises(ValueError, match="steps of at least 0"):
        HintSettings(level_step=-1.0)
    with pytest.raises(ValueError, match="at least 1 token"):
        HintLengths([3, 0], HintSettings(), 0)
    hints = make()
    with pytest.raises(ValueError, match="at least one rollout"):
        hints.observe(hints.choose(HOPELESS, 1)[0], 0, 0)
