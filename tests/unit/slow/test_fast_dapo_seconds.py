"""Settings and overrides of the methods and modes that `fast_dapo_seconds.py` measures."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from fast_dapo_seconds import overrides, settings_of
from leaderboard_protocol import Settings

WIDE = Settings(learning_rate=1e-4, batch=32, group=4, updates=2)
NARROW = Settings(learning_rate=1e-4, batch=16, group=4, updates=2)


def test_a_mode_has_its_own_settings_or_those_of_its_method():
    names = ("choose", "choose_colocate_async", "choose_separate_async", "choose_separate_async_two_ahead")
    tuned = {"choose": WIDE, "choose_separate_async": NARROW}
    assert list(settings_of(names, tuned).values()) == [WIDE, WIDE, NARROW, WIDE]


def test_settings_that_are_missing_are_named():
    with pytest.raises(ValueError, match="no settings of two_phase_colocate_async"):
        settings_of(["choose", "two_phase_colocate_async"], {"choose": WIDE})


def test_a_mode_is_its_method_with_the_trainer_of_the_mode():
    plain, separate = overrides("choose", WIDE, "E"), overrides("choose_separate_async_two_ahead", WIDE, "E")
    assert set(plain) < set(separate)
    assert "trainer.v1.separate_async.num_warmup_batches=2" in separate
