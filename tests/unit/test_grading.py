"""What a success is, by a threshold or graded; which screenings are mixed; what is refused for both."""

import numpy as np
import pytest
from curriculum_play import add, make_samples, make_settings, play_round
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.grading import Grading, shortfall
from recipe.fast_dapo.curriculum.records import Fate, GroupRule, Prompt, TrainingGroup
from recipe.fast_dapo.curriculum.screening import fixed_plan

grades = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def graded(**changes) -> DataController:
    return DataController(make_settings(success_threshold=None, **changes))


def screen(controller, **successes):
    """One round of screening with these values of the success metric, by uid."""
    add(controller, *successes)
    controller.get_generation_inputs()
    return controller.update_prompts({uid: make_samples(uid, 0, own) for uid, own in successes.items()}, 0)


@given(successes=grades)
def test_the_variance_is_that_of_passes_and_failures_less_the_shortfall(successes):
    mean, count = np.mean(successes), len(successes)
    assert np.var(successes) == pytest.approx(mean * (1 - mean) - shortfall(successes) / count, abs=1e-12)
    assert shortfall(successes) >= 0


@given(values=st.lists(st.floats(-5, 5), min_size=1, max_size=12), threshold=st.floats(-5, 5))
def test_with_a_threshold_there_is_no_shortfall_and_passes_are_whole(values, threshold):
    successes = [Grading(threshold).success(value) for value in values]
    assert shortfall(successes) == 0
    assert all(type(success) is int for success in successes)
    assert sum(successes) == sum(value > threshold for value in values)
    assert Grading(threshold).success(threshold) == 0
    assert Grading(threshold).is_mixed(successes) == (0 < sum(successes) < len(successes))


def test_a_grade_is_the_value_itself_and_a_plain_number():
    assert type(Grading(None).success(np.float32(0.25))) is float
    assert Grading(None).success(0.25) == 0.25


@pytest.mark.parametrize(
    ("successes", "band", "is_mixed"),
    [
        ([0.5, 0.5], (0.0, 1.0), False),  # nothing to learn from their differences
        ([0.0, 0.1], (0.0, 1.0), True),
        ([0.1, 0.1, 0.1], (0.0, 1.0), False),  # the sum is not exactly three times as much
        ([1, 0, 0, 0], (0.25, 0.75), False),  # the ends are outside
        ([1, 1, 1, 0], (0.25, 0.75), False),
        ([1, 1, 0, 0], (0.25, 0.75), True),
        ([0.5, 0.7], (0.7, 0.9), False),
    ],
)
def test_a_screening_is_mixed_when_successes_differ_and_their_mean_is_in_the_band(successes, band, is_mixed):
    assert Grading(None, band).is_mixed(successes) == is_mixed


@pytest.mark.parametrize(
    ("successes", "band", "fate"),
    [
        ([0.5, 0.5], (0.0, 1.0), Fate.ALL_WRONG),  # at most the middle
        ([0.6, 0.6], (0.0, 1.0), Fate.ALL_RIGHT),
        ([0.5, 0.6], (0.0, 1.0), Fate.QUALIFIED),
        ([0.5, 0.6], (0.6, 1.0), Fate.ALL_WRONG),
        ([0.5, 0.6], (0.0, 0.5), Fate.ALL_RIGHT),
    ],
)
@pytest.mark.parametrize("trains_unmixed", [False, True])
def test_what_is_not_mixed_is_too_hard_or_too_easy_by_the_middle_of_the_band(successes, band, fate, trains_unmixed):
    rule = GroupRule(5, trains_unmixed=trains_unmixed, grading=Grading(None, band))
    group = TrainingGroup(Prompt("u", 0), fixed_plan(2), rule).with_samples(tuple(make_samples("u", 0, successes)))
    is_kept = trains_unmixed and fate is not Fate.QUALIFIED
    assert group.fate is (Fate.READY if is_kept else fate)


def test_a_graded_screening_keeps_what_differs():
    controller = graded()
    result = screen(controller, half=[0.5, 0.5], wrong=[0.0, 0.0], right=[1.0, 1.0], mixed=[0.75, 1.0])
    assert result.qualified_uids == ("mixed",)
    assert result.released_uids == ("half", "wrong", "right")
    assert [(outcome.passes, outcome.samples, outcome.shortfall) for outcome in result.outcomes] == [
        (1.0, 2, 0.5), (0.0, 2, 0.0), (2.0, 2, 0.0), (1.75, 2, 0.1875),
    ]  # fmt: skip
    metrics = controller.metrics()
    assert (metrics["curriculum/all_wrong"], metrics["curriculum/all_right"]) == (2, 1)
    assert metrics["curriculum/screening_pass_rate/mean"] == 4.75 / 8
    assert [metrics[f"curriculum/screening_pass_rate/{k}_of_2"] for k in range(3)] == [1, 1, 2]
    assert metrics["curriculum/unaccounted_rollouts"] == 0


def test_a_graded_group_is_continued_and_its_successes_are_added_up():
    controller = graded(train_batch_size=1)
    screen(controller, u=[0.0, 0.25])
    controller.get_generation_inputs()
    controller.update_prompts({"u": make_samples("u", 2, [0.25] * 3)}, 0)
    (group,) = controller.get_training_data()
    assert (group.num_passes, group.num_screening, len(group.samples)) == (1.0, 2, 5)


def test_a_band_drops_what_is_nearly_always_wrong_or_right_and_says_so_where_no_batch_is_made():
    settings = {"n": 16, "band": (0.1, 0.9), "max_num_gen_batches": 1}
    controller = DataController(make_settings(**settings))
    add(controller, *(f"u{passes}" for passes in range(17)))
    result = play_round(controller, {f"u{passes}": passes for passes in range(17)})
    assert result.qualified_uids == tuple(f"u{passes}" for passes in range(2, 15))
    metrics = controller.metrics()
    assert (metrics["curriculum/all_wrong"], metrics["curriculum/all_right"]) == (2, 2)
    with pytest.raises(
        RuntimeError, match=r"use easier ones, a wider band or a larger rollout\.n, and check that right"
    ):
        controller.check_num_gen_batches()


def test_a_missing_batch_of_grades_is_not_blamed_on_a_threshold():
    controller = graded(max_num_gen_batches=1)
    screen(controller, half=[0.5, 0.5])
    with pytest.raises(RuntimeError, match="check that right answers earn more than wrong ones"):
        controller.check_num_gen_batches()


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_grade_beyond_0_and_1_is_refused_and_changes_nothing(value):
    controller = graded()
    add(controller, "u")
    controller.get_generation_inputs()
    with pytest.raises(ValueError, match=rf"graded success of 'u_1' in \[0, 1\], got {value}: scale it, or set a succ"):
        controller.update_prompts({"u": make_samples("u", 0, [0.5, value])}, 0)
    assert controller.num_in_flight == 1
    assert DataController(make_settings()).settings.grading.success(7.0) == 1  # with a threshold any number will do


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"band": (0.9, 0.1)}, r"band=\[0.9, 0.1\] must be two numbers, 0 <= low < high <= 1"),
        ({"band": (0.5, 0.5)}, "must be two numbers"),
        ({"band": (-0.1, 0.5)}, "must be two numbers"),
        ({"band": (0.0, 1.5)}, "must be two numbers"),
        ({"band": (0.5,)}, "band must be a list of 2, each a number"),
        ({"band": (0.0, 0.5, 1.0)}, "band must be a list of 2, each a number"),
        (
            {"band": (0.6, 0.9)},
            r"band=\[0.6, 0.9\] has no mixed screening of n=2 rollouts in it, of 0/2, 1/2, 2/2: widen it, or raise n",
        ),
        ({"band": (0.0, 0.25), "n": 4}, "has no mixed screening of n=4"),  # the ends are outside
        ({"band": (0.2, 0.9), "n": 1, "train_on": "all"}, "has no mixed screening of n=1"),
        ({"band": (0.2, 0.9), "n": 1, "train_on": "all", "success_threshold": None}, "has no mixed screening of n=1"),
        (
            {"band": (0.2, 0.9), "correction": "horvitz_thompson"},
            r"horvitz_thompson weighs .*, and band=\[0.2, 0.9\] set another rule: set correction=none, or a threshold",
        ),
        (
            {"success_threshold": None, "correction": "horvitz_thompson"},
            "and success_threshold=null set another rule: set correction=none",
        ),
    ],
)
def test_what_contradicts_a_band_or_grades_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        make_settings(**change)


@pytest.mark.parametrize(
    "change",
    [
        {"band": (0.0, 0.26), "n": 4},
        {"band": (0.4, 0.6)},
        {"band": (0.6, 0.9), "success_threshold": None},  # grades may be anywhere
        {"success_threshold": None, "n": 1, "train_on": "all"},
        {"success_threshold": None, "correction": "continuation_only"},
    ],
)
def test_what_can_work_is_taken(change):
    make_settings(**change)
