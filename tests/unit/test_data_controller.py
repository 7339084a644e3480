"""DataController's rules, messages, metrics and limits one by one; the model test covers every order of calls."""

import json

import numpy as np
import pytest
from curriculum_play import add, make_samples, make_settings, play_round, snapshot, uids

from recipe.fast_dapo.curriculum.aged_queue import AgedQueue
from recipe.fast_dapo.curriculum.data_controller import DataController, TooManyGenerationBatches
from recipe.fast_dapo.curriculum.metrics import HISTOGRAM_NAME, METRICS
from recipe.fast_dapo.curriculum.records import Fate, GroupRule, Outcome, Phase, Prompt, Sample, TrainingGroup
from recipe.fast_dapo.curriculum.screening import ScreeningPlan


def test_screening_keeps_only_mixed_results_and_continues_them_first():
    controller = DataController(make_settings())
    add(controller, "wrong", "mixed", "right")
    result = play_round(controller, {"wrong": 0, "mixed": 1, "right": 2})
    assert result.qualified_uids == ("mixed",)
    assert result.released_uids == ("wrong", "right")
    assert result.released_keys == ("wrong_0", "wrong_1", "right_0", "right_1")
    add(controller, "new")
    inputs = controller.get_generation_inputs()
    assert [(entry.prompt.uid, entry.phase) for entry in inputs] == [("mixed", "continuation"), ("new", "screening")]
    assert [(entry.num_samples, entry.first_session) for entry in inputs] == [(3, 2), (2, 0)]


def test_a_sample_passes_only_above_the_threshold():
    controller = DataController(make_settings(success_threshold=0.25))
    add(controller, "u")
    controller.get_generation_inputs()
    assert controller.update_prompts({"u": make_samples("u", 0, [0.25, 0.26])}, 0).qualified_uids == ("u",)


@pytest.mark.parametrize("n_continue", [1, 2, 3, 4, 7])
def test_groups_are_complete_whatever_the_ratio_of_the_phases(n_continue):
    controller = DataController(make_settings(n_continue=n_continue, train_batch_size=1))
    add(controller, "u")
    play_round(controller)
    assert play_round(controller).ready_uids == ("u",)
    assert [sample.key for sample in controller.get_training_data()[0].samples] == [
        f"u_{i}" for i in range(2 + n_continue)
    ]


def test_an_index_may_be_live_twice_and_its_uid_may_return_after_it_left():
    controller = DataController(make_settings())
    controller.add_new_prompts_first_generation_phase([Prompt("a", 7), Prompt("b", 7)])
    play_round(controller, {"a": 0, "b": 1})
    add(controller, "a")
    with pytest.raises(ValueError, match="no live prompt has, got 'b': draw one at every fetch"):
        add(controller, "b")


def test_failed_prompts_keep_their_phase_their_order_and_their_screening():
    controller = DataController(make_settings())
    add(controller, "a", "b")
    play_round(controller)
    add(controller, "c", "d")
    controller.get_generation_inputs()
    add(controller, "late")
    result = controller.update_prompts({"a": make_samples("a", 2, [1.0]), "d": make_samples("d", 0, [1.0])}, 0)
    assert result.failed_uids == ("a", "b", "c", "d")
    assert result.released_keys == ("a_2", "d_0")
    assert result.released_uids == ()
    assert uids(controller.prompts_for_second_generation_phase) == ["a", "b"]
    assert uids(controller.prompts_for_first_generation_phase) == ["c", "d", "late"]
    assert play_round(controller).ready_uids == ("a", "b")


def test_outcomes_tell_what_a_call_saw_in_the_order_of_its_results():
    controller = DataController(make_settings())
    controller.add_new_prompts_first_generation_phase([Prompt("a", 7), Prompt("b", 8)])
    play_round(controller)
    controller.add_new_prompts_first_generation_phase([Prompt("c", 9), Prompt("d", 10), Prompt("lost", 11)])
    controller.get_generation_inputs()
    results = {"d": [], "c": make_samples("c", 0, [0, 0]), "b": make_samples("b", 2, [1, 0, 1])}
    result = controller.update_prompts(results | {"a": make_samples("a", 2, [1, 1])}, 0)
    assert result.outcomes == (
        Outcome(10, Phase.SCREENING, passes=0, samples=0),
        Outcome(9, Phase.SCREENING, passes=0, samples=2),
        Outcome(8, Phase.CONTINUATION, passes=2, samples=3),
        Outcome(7, Phase.CONTINUATION, passes=2, samples=2),  # one too few: it failed, but is still evidence
    )
    assert result.failed_uids == ("a", "d", "lost")


@pytest.mark.parametrize(
    ("num_samples", "num_passes", "num_screening", "rule", "fate"),
    [
        (0, 0, 0, GroupRule(6), Fate.WAITING),
        (2, 0, 0, GroupRule(6), Fate.PARTLY_SCREENED),
        (2, 2, 0, GroupRule(6), Fate.PARTLY_SCREENED),
        (3, 0, 0, GroupRule(6), Fate.ALL_WRONG),
        (4, 4, 0, GroupRule(6), Fate.ALL_RIGHT),
        (2, 1, 2, GroupRule(6), Fate.QUALIFIED),
        (6, 1, 2, GroupRule(6), Fate.READY),
        (2, 1, 2, GroupRule(2), Fate.READY),
        (6, 1, 2, GroupRule(5, trains_screening=False), Fate.QUALIFIED),
        (7, 1, 2, GroupRule(5, trains_screening=False), Fate.READY),
        (2, 0, 0, GroupRule(6, trains_unmixed=True), Fate.PARTLY_SCREENED),
        (3, 0, 0, GroupRule(6, trains_unmixed=True), Fate.READY),
        (4, 4, 0, GroupRule(6, trains_unmixed=True), Fate.READY),
        (2, 1, 2, GroupRule(6, trains_unmixed=True), Fate.QUALIFIED),
    ],
)
def test_the_samples_of_a_prompt_say_where_it_belongs(num_samples, num_passes, num_screening, rule, fate):
    plan = ScreeningPlan(chunk=1, max_fails=3, max_passes=4)
    samples = tuple(make_samples("u", 0, [1.0] * num_passes + [0.0] * (num_samples - num_passes)))
    group = TrainingGroup(Prompt("u", 0), plan, rule).with_samples(samples[: num_screening or None])
    group = group.with_samples(samples[num_screening:]) if num_screening else group
    assert (group.fate, group.num_screening) == (fate, num_screening)
    assert len(group.stages) == num_samples


def test_leftovers_grow_stale_without_a_round_and_their_prompts_are_screened_anew():
    controller = DataController(make_settings(train_batch_size=1, max_staleness=2, stale="drop"))
    add(controller, "a", "b")
    play_round(controller, version=0)
    add(controller, "c")
    play_round(controller, version=1)
    assert [group.prompt.uid for group in controller.get_training_data()] == ["a"]
    assert controller.evict(2).released_uids == ()
    assert controller.evict(3).released_keys == ("b_0", "b_1", "b_2", "b_3", "b_4")
    assert uids(controller.prompts_for_second_generation_phase) == ["c"]
    add(controller, "later")
    assert controller.evict(4).released_uids == ()
    assert uids(controller.prompts_for_first_generation_phase) == ["c", "b", "later"]
    assert controller.metrics()["curriculum/expired"] == 2
    assert controller.metrics()["curriculum/expired_rollouts"] == 7
    assert [entry.first_session for entry in controller.get_generation_inputs()] == [0, 0, 0]


def test_overflow_drops_the_stalest_first_and_never_costs_a_batch():
    controller = DataController(make_settings(train_batch_size=2, max_buffer_prompts=0))
    add(controller, "old")
    play_round(controller, version=0)
    add(controller, "a", "b")
    # The continuation of "old" fails once, so that it arrives last and is still the first to go.
    inputs = controller.get_generation_inputs()
    controller.update_prompts({e.prompt.uid: make_samples(e.prompt.uid, 0, [1, 0], 1) for e in inputs[1:]}, 1)
    controller.get_generation_inputs()
    controller.update_prompts({uid: make_samples(uid, 2, [1, 0, 1], 1) for uid in "ab"}, 1)
    assert uids(controller.prompts_for_training) == ["a", "b"]
    result = play_round(controller, version=1)
    assert (result.ready_uids, result.released_uids) == (("old",), ("old",))
    assert uids(controller.prompts_for_training) == ["a", "b"]
    assert controller.metrics()["curriculum/evicted_overflow"] == 1


def test_too_many_rounds_say_what_was_seen_and_what_to_change_and_leave_the_state_intact():
    controller = DataController(make_settings(max_num_gen_batches=2, gen_batch_size=4, train_batch_size=4))
    for batch in ("abcd", "efgh"):
        controller.check_num_gen_batches()
        add(controller, *batch)
        play_round(controller, {"a": 1, "b": 2} | dict.fromkeys("cdefgh", 0))
    before = snapshot(controller)
    with pytest.raises(TooManyGenerationBatches) as error:
        controller.get_generation_inputs()
    assert snapshot(controller) == before
    for part in (
        "after 2 rounds of generation (max_num_gen_batches=2): 1 of 4 prompts are ready and 0 wait",
        "8 prompts were screened with n=2; prompts by passes: 0/2: 6, 1/2: 1, 2/2: 1.",
        "6 prompts were all wrong: use easier ones or a larger rollout.n",
        "1 prompts were all right: use harder ones",
        "needs about 9 rounds of gen_batch_size=4",  # 3 more prompts at 1 in 8 are 24 prompts, 6 rounds, and one more
        "a resumed run needs a larger max_num_gen_batches",
    ):
        assert part in str(error.value)
    resumed = DataController(make_settings(max_num_gen_batches=3, gen_batch_size=8, train_batch_size=1))
    resumed.load_state_dict(controller.state_dict())
    resumed.check_num_gen_batches()
    assert resumed.is_ready_for_training()


def test_the_round_limit_names_failing_generation_and_staleness_as_causes():
    controller = DataController(make_settings(max_num_gen_batches=3, max_staleness=0, stale="drop"))
    add(controller, "a")
    play_round(controller)
    controller.evict(1)
    add(controller, "b")
    for _ in range(2):
        controller.get_generation_inputs()
        controller.update_prompts({}, 1)
    with pytest.raises(TooManyGenerationBatches, match=r"4 prompts came back .* 1 qualified prompts got too old"):
        controller.check_num_gen_batches()


def test_a_ready_batch_may_be_trained_at_the_round_limit():
    controller = DataController(make_settings(max_num_gen_batches=2))
    add(controller, "a", "b")
    play_round(controller)
    play_round(controller)
    controller.check_num_gen_batches()
    controller.get_training_data()
    assert controller.num_gen_batches == 0


def test_a_rollout_that_is_still_held_is_not_taken_again():
    controller = DataController(make_settings())
    add(controller, "a")
    play_round(controller)
    add(controller, "b")
    controller.get_generation_inputs()
    for uid in "ab":
        before = snapshot(controller)
        with pytest.raises(ValueError, match="expected a new sample key, got 'a_0' again: continue at first_session"):
            controller.update_prompts({uid: make_samples("a", 0, [1, 0])}, 0)
        assert snapshot(controller) == before


def test_one_call_at_a_time():
    controller = DataController(make_settings())
    assert controller.get_generation_inputs() == []
    assert controller.update_prompts({}, 0).failed_uids == ()
    assert controller.num_gen_batches == 0
    add(controller, "a")
    controller.get_generation_inputs()
    with pytest.raises(RuntimeError, match="1 prompts are still in flight: call update_prompts first"):
        controller.get_generation_inputs()


@pytest.mark.parametrize(
    "change",
    [
        {"n": 0},
        {"n": 1},
        {"n": 4.0},
        {"n_continue": -1},
        {"n_continue": 0, "correction": "continuation_only"},
        {"train_on": "all", "correction": "horvitz_thompson"},
        {"train_batch_size": 0},
        {"gen_batch_size": None},
        {"max_num_gen_batches": -1},
        {"max_buffer_prompts": -1},
        {"max_staleness": True},
        {"success_threshold": float("nan")},
    ],
)
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        make_settings(**change)


def test_a_prompt_needs_an_index_with_a_value():
    with pytest.raises(ValueError, match=r"index must be an int or a str, got None: set extra_info\.index"):
        Prompt("u", None)


@pytest.mark.parametrize(
    ("samples", "version", "message"),
    [
        ({"x": []}, 5, "only prompts in flight, got uid 'x'"),
        ({"u": make_samples("u", 0, [1, 0, 1])}, 5, "at most 2 samples of 'u', got 3"),
        ({"u": [Sample("k", 1, 5), Sample("k", 0, 5)]}, 5, "a new sample key, got 'k' again"),
        ({"u": [Sample("k", float("inf"), 5)]}, 5, "a finite success of 'k', got inf"),
        ({"u": [Sample("k", 1, 6)]}, 5, "versions <= 5, got 'k' of 6"),
        ({}, 4, "weight_version >= 5, got 4"),
    ],
)
def test_bad_results_are_refused_by_name(samples, version, message):
    controller = DataController(make_settings())
    controller.evict(5)
    add(controller, "u")
    controller.get_generation_inputs()
    with pytest.raises(ValueError, match=message):
        controller.update_prompts(samples, version)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.update(state_version=99), "expected state_version 4, got 99"),
        (lambda state: state["settings"].update(n=8), "expected n=8 as in the checkpoint, got 2: set n=8"),
        (lambda state: state["settings"].update(n_continue=9), "expected n_continue=9"),
        (lambda state: state["settings"].update(success_threshold=0.1), "expected success_threshold=0.1"),
        (lambda state: state["second"].clear(), "expected 2 prompts in the state"),
        (lambda state: state["second"][0][6].pop(), "expected samples of 'a' with all their values, got"),
        (lambda state: state["second"][0][5].append(1), "expected samples of 'a' with all their values, got"),
        (
            lambda state: state["second"][0].__setitem__(slice(5, None), [[1], ["a_0"], [1.0], [0], [10]]),
            "expected 2 rollouts in the state",
        ),
        (lambda state: state["first"].append(state["first"][0]) or state["second"].clear(), "is damaged"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(damage, message):
    controller = DataController(make_settings())
    add(controller, "a")
    play_round(controller)
    add(controller, "b")
    state, before = controller.state_dict(), snapshot(controller)
    damage(state)
    with pytest.raises(ValueError, match=message):
        controller.load_state_dict(state)
    assert snapshot(controller) == before


def test_a_state_of_numpy_values_is_plain_json():
    controller = DataController(make_settings(train_batch_size=1))
    controller.add_new_prompts_first_generation_phase([Prompt("u", np.int64(3)), Prompt("v", np.int64(4))])
    one = [Sample(f"{uid}_{i}", np.float32(1 - i % 2), np.int64(1), np.int32(7)) for uid in "uv" for i in range(5)]
    controller.get_generation_inputs()
    controller.update_prompts({"u": one[:2], "v": one[5:7]}, np.int64(1))
    controller.get_generation_inputs()
    controller.update_prompts({"u": one[2:5], "v": one[7:]}, np.int64(2))
    controller.get_training_data()
    state = json.loads(json.dumps(controller.state_dict()))
    columns = [[f"v_{i}" for i in range(5)], [1, 0, 1, 0, 1], [1] * 5, [7] * 5]
    assert state["training"] == [
        [["v", 4, None, None], [2, 2, 2], [5, True, False], [0.5, [0, 1]], [3, 2], [2, 3], *columns]
    ]


def test_a_screening_of_one_rollout_has_no_share_of_mixed_ones():
    """A 0 would read as prompts that are too easy or too hard."""
    controller = DataController(make_settings(n=1, n_continue=0, train_on="all"))
    add(controller, "a", "b")
    play_round(controller, {"a": 0})
    metrics = controller.metrics()
    assert "curriculum/qualified_share" not in metrics
    assert metrics["curriculum/screening_pass_rate/mean"] == 0.5
    assert (metrics["curriculum/all_wrong_kept"], metrics["curriculum/all_right_kept"]) == (1, 1)


def test_metrics_count_a_step_and_the_run():
    controller = DataController(make_settings(train_batch_size=1))
    add(controller, "wrong", "a", "b")
    play_round(controller, {"wrong": 0}, version=1)
    add(controller, "right", "c")
    play_round(controller, {"right": 2}, version=2)
    controller.evict(4)
    controller.get_training_data()
    add(controller, "not yet screened")
    metrics = {name.removeprefix("curriculum/"): value for name, value in controller.metrics().items()}
    expected = {
        "screened": 5, "qualified": 3, "all_wrong": 1, "all_right": 1, "failed": 0, "rounds": 2, "trained": 1,
        "all_wrong_kept": 0, "all_right_kept": 0,
        "expired": 0, "evicted_overflow": 0, "given_up": 0,
        "uninformative_rollouts": 4, "expired_rollouts": 0, "failed_rollouts": 0, "set_aside_rollouts": 0,
        "buffered_rollouts": 7, "unaccounted_rollouts": 0, "screening_rollouts/mean": 2,
        "expected_qualified_share": pytest.approx(0.6, abs=0.1),
        "qualified_share": 0.6, "screening_pass_rate/mean": 0.5,
        "screening_pass_rate/0_of_2": 1, "screening_pass_rate/1_of_2": 3, "screening_pass_rate/2_of_2": 1,
        "generated_rollouts": 16, "generated_tokens": 160, "trained_rollouts": 5, "trained_tokens": 50,
        "generated_to_trained": 3.2, "sample_age/mean": (2 * 3 + 3 * 2) / 5, "sample_age/max": 3,
        "first_phase_prompts": 1, "second_phase_prompts": 1, "ready_prompts": 1, "in_flight_prompts": 0,
        "num_gen_batches": 0, "total/added": 6,
    }  # fmt: skip
    assert {name: value for name, value in metrics.items() if name in expected} == pytest.approx(expected)
    assert {name for name in metrics if not name.startswith("total/")} | {"total/added"} == set(expected)

    controller.reset_step_metrics()
    controller.get_generation_inputs()
    later = controller.metrics()
    assert (later["curriculum/screened"], later["curriculum/total/screened"]) == (0, 5)
    assert (later["curriculum/in_flight_prompts"], later["curriculum/second_phase_prompts"]) == (2, 0)
    # Without a denominator there is no ratio; the totals still have theirs.
    assert not {"curriculum/qualified_share", "curriculum/sample_age/max", "curriculum/generated_to_trained"} & set(
        later
    )
    assert later["curriculum/total/generated_to_trained"] == 3.2


def test_the_oldest_sample_of_one_step_is_forgotten_in_the_next():
    controller = DataController(make_settings(train_batch_size=1))
    for version, age in ((0, 3), (3, 0)):
        add(controller, "u")
        play_round(controller, version=version)
        play_round(controller, version=version)
        controller.evict(3)
        controller.get_training_data()
        assert controller.metrics()["curriculum/sample_age/max"] == age
        controller.reset_step_metrics()


def test_every_metric_is_in_the_glossary_and_every_entry_is_emitted():
    controller = DataController(make_settings(train_batch_size=1))
    add(controller, "a")
    play_round(controller)
    play_round(controller)
    controller.get_training_data()
    histogram = {HISTOGRAM_NAME.format(k=k, n=2) for k in range(3)}
    assert set(controller.metrics()) == set(METRICS) - {HISTOGRAM_NAME} | histogram
    assert all(unit and text for unit, text in METRICS.values())


def test_a_repeated_item_of_the_aged_queue_is_first_among_its_age():
    queue = AgedQueue()
    queue.push("a", 1, "a")
    queue.push("newer", 2, "newer")
    queue.push("repeated", 1, "repeated", front=True)
    assert list(queue) == ["repeated", "a", "newer"]
    assert queue.pop_stalest() == "repeated"


def test_the_aged_queue_forgets_versions_that_left():
    queue = AgedQueue()
    for version in range(100):
        queue.push(f"{version}", version, version)
        queue.push(f"{version} again", version, version)
        queue.pop()
    assert len(queue) == 100
    assert len(queue._versions) == len(queue._names_by_version) == 50


def test_a_prompt_whose_generation_keeps_failing_is_given_up():
    controller = DataController(make_settings(max_attempts=2))
    add(controller, "poison", "sound")
    for attempt in range(2):
        controller.get_generation_inputs()
        samples = (
            {"sound": make_samples("sound", 0, [1.0, 0.0])}
            if attempt == 0
            else {"sound": make_samples("sound", 2, [1.0, 1.0, 1.0])}
        )
        result = controller.update_prompts(samples, 0)
        assert result.failed_uids == ("poison",)
    assert result.released_uids == ("poison",)
    assert controller.conservation() == {
        "added": 2, "all_wrong": 0, "all_right": 0, "evicted_overflow": 0, "given_up": 1,
        "trained": 0, "live": 1,
    }  # fmt: skip


def test_one_success_forgives_earlier_failures():
    controller = DataController(make_settings(max_attempts=2))
    add(controller, "u")
    for results in ({}, {"u": make_samples("u", 0, [1.0, 0.0])}, {}, {"u": make_samples("u", 2, [1.0] * 3)}):
        controller.get_generation_inputs()
        result = controller.update_prompts(results, 0)
    assert result.ready_uids == ("u",)
