"""Wrong rewards and majority votes of tests/benchmarks/trust_methods.py."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from trust_methods import CORRUPTIONS, SHARE, corrupted, damaged_source, ends_even, majority_rewards

TRUE = np.array([1.0, 0.0, 1.0, 0.0])
TEXTS = ["12", "7", "30", "x"]
SOURCE = np.array([True, True, False, False])


def test_a_share_of_the_prompts_is_of_the_damaged_source():
    assert damaged_source(10_000).mean() == pytest.approx(SHARE, abs=0.02)
    assert (damaged_source(100) == damaged_source(100)).all()


def test_a_source_is_reversed_or_has_another_tasks_rewards():
    assert corrupted("source", TRUE, TEXTS, SOURCE, 0, 1).tolist() == [0, 1, 1, 0]
    assert corrupted("off_target", TRUE, TEXTS, SOURCE, 0, 1).tolist() == [1, 0, 1, 0]
    assert corrupted("off_target", 1 - TRUE, TEXTS, SOURCE, 0, 1).tolist() == [1, 0, 0, 1]


def test_flips_are_independent_of_the_source():
    true, texts = np.zeros(20_000), ["1"] * 20_000
    for in_source in (np.ones(20_000, bool), np.zeros(20_000, bool)):
        assert corrupted("flips", true, texts, in_source, 0, 1).mean() == pytest.approx(SHARE, abs=0.02)
    assert set(CORRUPTIONS) == {"flips", "source", "off_target"}


def test_only_an_even_last_digit_ends_even():
    assert [ends_even(text) for text in ("12", "21", "", "x", "4x", "10")] == [1, 0, 0, 0, 1, 1]


def test_the_most_frequent_answer_of_each_prompt_is_taken_for_right():
    responses, prompts = ["a", "b", "b", "a", "c", "a"], [1, 1, 1, 2, 2, 2]
    assert majority_rewards(responses, prompts).tolist() == [0, 1, 1, 1, 0, 1]
    assert majority_rewards(["a", "b"], [1, 1]).tolist() == [1, 0]  # the first seen
