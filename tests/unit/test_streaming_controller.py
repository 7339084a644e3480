"""Streaming and sequential screening: every order of answers that hypothesis finds, and the rules one by one."""

import json
import math

import pytest
from curriculum_play import add, make_samples, make_settings, snapshot, uids
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.admission import ScreeningRecord, num_to_admit
from recipe.fast_dapo.curriculum.data_controller import DataController, TooManyGenerationBatches
from recipe.fast_dapo.curriculum.records import Phase, Prompt
from recipe.fast_dapo.curriculum.screening import ScreeningPlan, plan_screening


def streaming(plan: ScreeningPlan | None = None, **changes) -> DataController:
    controller = DataController(make_settings(schedule="streaming", **changes))
    if plan is not None:
        controller.screening_plan = lambda prompt: plan
    return controller


def answer(controller: DataController, entry, successes, version: int = 0):
    """One prompt's results, while the others are still being generated."""
    samples = make_samples(entry.prompt.uid, entry.first_session, successes, version)
    return controller.update_prompts({entry.prompt.uid: samples}, version, more_to_come=True)


class World:
    """Plays the trainer: an engine that answers in any order, and a record of every rollout."""

    def __init__(self, controller: DataController) -> None:
        self.controller = controller
        self.in_flight: dict = {}
        self.held: dict[str, int] = {}  # what the data plane holds: key -> version
        self.asked: dict[str, list[int]] = {}  # sessions of each prompt since its screening last restarted
        self.generated = self.trained = self.version = self.next_uid = 0

    def free(self, result) -> None:
        for key in result.released_keys:
            self.held.pop(key)  # raises if it was released twice or never held

    def dispatch(self) -> None:
        wanted = self.controller.num_prompts_wanted
        add(self.controller, *(f"u{self.next_uid + i}" for i in range(wanted)))
        self.next_uid += wanted
        for entry in self.controller.get_generation_inputs():
            uid = entry.prompt.uid
            assert uid not in self.in_flight
            if entry.first_session == 0:
                self.asked[uid] = []
            # Sessions number the rollouts of a prompt without gaps.
            assert entry.first_session == len(self.asked[uid])
            self.in_flight[uid] = entry

    def answer(self, uid: str, passes: list[bool]) -> None:
        entry = self.in_flight.pop(uid)
        complete = len(passes) == entry.num_samples
        samples = make_samples(uid, entry.first_session, [float(passed) for passed in passes], self.version)
        self.generated += len(samples)
        self.held |= {sample.key: self.version for sample in samples}
        result = self.controller.update_prompts({uid: samples}, self.version, more_to_come=True)
        if complete:
            self.asked[uid] += range(entry.first_session, entry.first_session + entry.num_samples)
        self.free(result)

    def train(self) -> None:
        for group in self.controller.get_training_data():
            rewards = {sample.success for sample in group.samples}
            keys = [sample.key for sample in group.samples]
            assert keys == [f"{group.prompt.uid}_{i}" for i in range(len(keys))]
            # Informative, and no older than allowed.
            assert len(rewards) == 2
            staleness = self.controller.settings.max_staleness if self.controller.settings.stale == "drop" else None
            assert staleness is None or self.version - group.version <= staleness
            trained = self.controller.trained_samples(group)
            assert len(trained) == self.controller.settings.group_size
            self.trained += len(trained)
            for key in keys:
                self.held.pop(key)

    def agrees(self) -> None:
        controller = self.controller
        rollouts = controller.rollout_conservation()
        assert rollouts["generated"] == self.generated == sum(rollouts.values()) - rollouts["generated"]
        assert rollouts["trained"] == self.trained
        assert rollouts["buffered"] == len(self.held)
        fates = controller.conservation()
        assert fates["added"] == self.next_uid == sum(fates.values()) - fates["added"]
        assert set(self.held) <= controller.live_names()
        assert controller.num_in_flight == len(self.in_flight)


@settings(max_examples=120, deadline=None)
@given(
    data=st.data(),
    plan=st.none() | st.builds(ScreeningPlan, st.integers(1, 3), st.integers(2, 4), st.integers(2, 4)),
    correction=st.sampled_from(["none", "continuation_only"]),
    batch=st.integers(1, 4),
    max_staleness=st.none() | st.integers(0, 2),
    stale=st.sampled_from(["wait", "drop"]),
    max_buffer=st.none() | st.integers(0, 2),
)
def test_whatever_the_order_of_answers_nothing_is_lost(data, plan, correction, batch, max_staleness, stale, max_buffer):
    world = World(
        streaming(
            plan, n=4, n_continue=4, train_batch_size=batch, gen_batch_size=6, correction=correction,
            max_staleness=max_staleness, stale=stale, max_buffer_prompts=max_buffer,
        )
    )  # fmt: skip
    for _ in range(3):
        world.free(world.controller.evict(world.version))
        for _ in range(400):
            world.dispatch()
            world.agrees()
            if not world.in_flight:
                break
            uid = data.draw(st.sampled_from(sorted(world.in_flight)))
            asked = world.in_flight[uid].num_samples
            outcome = data.draw(st.sampled_from(["mixed"] * 6 + ["wrong", "right", "short"]))
            # A continuation that completes a mixed prompt may itself be anything.
            passes = [outcome == "right" or (outcome == "mixed" and i % 2 == 0) for i in range(asked)]
            if outcome == "mixed" and asked == 1:
                passes = [data.draw(st.booleans())]
            world.answer(uid, passes[: asked - (outcome == "short")])
            world.agrees()
        assert world.controller.is_ready_for_training()
        world.train()
        world.agrees()
        saved = json.loads(json.dumps(world.controller.state_dict()))
        world.controller.load_state_dict(saved)
        assert world.controller.state_dict() == saved
        world.version += 1


def test_a_prompt_is_continued_while_others_are_still_screened():
    controller = streaming(train_batch_size=2)
    add(controller, "a", "b", "c")
    first, second, third = controller.get_generation_inputs()
    assert answer(controller, first, [1.0, 0.0]).qualified_uids == ("a",)
    (entry,) = controller.get_generation_inputs()
    assert (entry.prompt.uid, entry.phase, entry.num_samples, entry.first_session) == ("a", Phase.CONTINUATION, 3, 2)
    answer(controller, second, [0.0, 0.0])
    assert answer(controller, entry, [1.0, 1.0, 1.0]).ready_uids == ("a",)
    assert controller.num_in_flight == 1
    answer(controller, third, [1.0, 1.0])
    assert uids(controller.prompts_for_training) == ["a"]


def test_prompts_missing_from_a_partial_answer_are_still_in_flight():
    controller = streaming()
    add(controller, "a", "b")
    entry, _ = controller.get_generation_inputs()
    assert answer(controller, entry, [1.0, 0.0]).failed_uids == ()
    assert controller.num_in_flight == 1


def test_admission_stops_when_the_expected_number_covers_the_batch():
    controller = streaming(train_batch_size=4, gen_batch_size=100)
    # As far as is known, one of two qualifies: eight prompts are expected to give four.
    assert controller.num_prompts_wanted == 8
    add(controller, *(f"u{i}" for i in range(20)))
    entries = controller.get_generation_inputs()
    assert len(entries) == 8
    for entry in entries[:4]:
        answer(controller, entry, [1.0, 0.0])
    continuations = controller.get_generation_inputs()
    assert {entry.phase for entry in continuations} == {Phase.CONTINUATION}
    for entry in entries[4:]:
        answer(controller, entry, [0.0, 0.0])
    # All four are certain now.
    assert controller.get_generation_inputs() == []
    assert controller.num_prompts_wanted == 0


def test_a_surplus_is_kept_and_lowers_the_next_admission():
    controller = streaming(train_batch_size=1, gen_batch_size=100)
    add(controller, "a", "b")
    for entry in controller.get_generation_inputs():
        answer(controller, entry, [1.0, 0.0])
    for entry in controller.get_generation_inputs():
        answer(controller, entry, [1.0, 1.0, 0.0])
    assert [group.prompt.uid for group in controller.get_training_data()] == ["a"]
    controller.evict(1)
    assert controller.num_prompts_wanted == 0
    assert [group.prompt.uid for group in controller.get_training_data()] == ["b"]
    assert controller.metrics()["curriculum/sample_age/max"] == 1


@pytest.mark.parametrize("stale", ["wait", "drop"])
def test_a_slow_prompt_is_waited_for_and_trained_on_first_or_screened_anew(stale):
    controller = streaming(train_batch_size=1, max_staleness=1, stale=stale)
    add(controller, "slow")
    controller.get_generation_inputs()
    controller.evict(1)  # after the next update its rollouts will be two versions old
    add(controller, "fast")
    for _ in range(2):
        (entry,) = controller.get_generation_inputs()
        answer(controller, entry, [1.0, 0.0, 0.0][: entry.num_samples], version=1)
    assert controller.has_whole_batch
    assert controller.is_ready_for_training() == (stale == "drop")
    if stale == "drop":
        controller.get_training_data()
        controller.evict(2)
    version = controller.weight_version
    controller.update_prompts({"slow": make_samples("slow", 0, [1.0, 0.0], 0)}, version, more_to_come=True)
    (entry,) = controller.get_generation_inputs()
    assert (entry.prompt.uid, entry.first_session) == ("slow", 2 if stale == "wait" else 0)
    answer(controller, entry, [0.0] * entry.num_samples, version)
    assert controller.is_ready_for_training() == (stale == "wait")
    if stale == "wait":
        assert [group.prompt.uid for group in controller.get_training_data()] == ["slow"]
    assert controller.metrics()["curriculum/total/expired"] == (stale == "drop")


def test_sequential_screening_asks_in_stages_and_stops_at_the_first_mixed_outcome():
    controller = streaming(ScreeningPlan(1, 3, 4), n=4, n_continue=4, train_batch_size=3)
    add(controller, "mixed", "wrong", "right")
    stages: dict[str, list[tuple[int, int]]] = {"mixed": [], "wrong": [], "right": []}
    outcomes = {"mixed": [0.0, 0.0, 1.0], "wrong": [0.0] * 9, "right": [1.0] * 9}
    while entries := [e for e in controller.get_generation_inputs() if e.phase is Phase.SCREENING]:
        for entry in entries:
            stages[entry.prompt.uid].append((entry.first_session, entry.num_samples))
            results = outcomes[entry.prompt.uid][entry.first_session : entry.first_session + entry.num_samples]
            answer(controller, entry, results)
    assert stages == {"mixed": [(0, 2), (2, 1)], "wrong": [(0, 2), (2, 1)], "right": [(0, 2), (2, 1), (3, 1)]}
    metrics = controller.metrics()
    assert metrics["curriculum/screening_rollouts/mean"] == pytest.approx(10 / 3)
    assert metrics["curriculum/uninformative_rollouts"] == 7
    # A group has N rollouts, however early its screening was mixed.
    (entry,) = controller._state.in_flight.values()
    assert entry.num_samples == 5


def test_sequential_screening_is_planned_by_each_prompts_posterior_and_the_price_in_force():
    controller = DataController(make_settings(schedule="streaming", n=6, train_batch_size=4), screening_chunk=1)
    beliefs = {"hopeless": (0.2, 8.2), "unknown": (0.2, 0.2), "solved": (8.2, 0.2), "even": (4.0, 4.0)}
    record = ScreeningRecord()
    for _ in range(2):
        add(controller, *beliefs)
        controller.set_posteriors([beliefs[prompt.uid] for prompt in controller.prompts_to_screen()])
        entries = controller.get_generation_inputs()
        plans = {entry.prompt.uid: entry.group.plan for entry in entries}
        assert plans == {
            uid: plan_screening(*belief, n=6, chunk=1, price=record.price) for uid, belief in beliefs.items()
        }
        # All are given up, after as many failures as their plans allow: the next qualified prompt costs more.
        while entries:
            for entry in entries:
                answer(controller, entry, [0.0] * entry.num_samples)
            entries = controller.get_generation_inputs()
        for plan in sorted(plans.values(), key=lambda plan: plan.max_fails):
            record.observe(False, plan.max_fails)


def test_a_prompt_that_is_screened_anew_is_planned_by_its_newest_posterior():
    controller = DataController(make_settings(schedule="streaming", n=6, train_batch_size=1), screening_chunk=1)
    add(controller, "u")
    controller.set_posteriors([(0.2, 0.2)])
    (entry,) = controller.get_generation_inputs()
    early = entry.group.plan
    answer(controller, entry, [0.0])  # one too few: the call failed
    controller.set_posteriors([(0.2, 9.2)])
    (entry,) = controller.get_generation_inputs()
    assert entry.prompt == Prompt("u", "u", 0.2, 9.2)
    newest = plan_screening(0.2, 9.2, n=6, chunk=1, price=ScreeningRecord().price)
    assert entry.group.plan == newest != early


def test_sequential_screening_without_a_posterior_is_refused_and_changes_nothing():
    controller = DataController(make_settings(schedule="streaming"), screening_chunk=1)
    add(controller, "a", "b")
    before = snapshot(controller)
    with pytest.raises(ValueError, match="expected a posterior of 'a', got none: call set_posteriors first"):
        controller.get_generation_inputs()
    with pytest.raises(ValueError, match="shorter"):
        controller.set_posteriors([(1.0, 1.0)])
    assert snapshot(controller) == before
    assert controller.prompts_to_screen() == [Prompt("a", "a"), Prompt("b", "b")]


def test_a_partly_screened_prompt_survives_a_checkpoint_with_its_samples():
    controller = streaming(ScreeningPlan(1, 4, 4), n=4, n_continue=4)
    add(controller, "a")
    (entry,) = controller.get_generation_inputs()
    answer(controller, entry, [0.0, 0.0])
    resumed = streaming(ScreeningPlan(1, 4, 4), n=4, n_continue=4)
    resumed.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    (entry,) = resumed.get_generation_inputs()
    assert (entry.first_session, entry.num_samples) == (2, 1)
    assert resumed.live_names() == {"a", "a_0", "a_1"}


def test_continuation_only_sets_the_screening_aside_and_still_continues_with_all_of_m():
    controller = streaming(n=2, n_continue=3, train_batch_size=1, correction="continuation_only")
    add(controller, "a")
    (entry,) = controller.get_generation_inputs()
    answer(controller, entry, [1.0, 0.0])
    (entry,) = controller.get_generation_inputs()
    assert (entry.num_samples, entry.first_session) == (3, 2)
    answer(controller, entry, [1.0, 0.0, 0.0])
    (group,) = controller.get_training_data()
    assert [sample.key for sample in controller.trained_samples(group)] == ["a_2", "a_3", "a_4"]
    fates = controller.rollout_conservation()
    assert (fates["trained"], fates["set_aside"], fates["buffered"]) == (3, 2, 0)


def test_streaming_rounds_are_gen_batches_of_screened_prompts():
    controller = streaming(train_batch_size=2, gen_batch_size=4, max_num_gen_batches=2)
    for number in range(8):
        add(controller, f"u{number}")
    while entries := (controller.get_generation_inputs() if controller.num_gen_batches < 2 else []):
        for entry in entries:
            answer(controller, entry, [0.0, 0.0])
    assert controller.num_gen_batches == 2
    with pytest.raises(TooManyGenerationBatches, match="8 prompts were screened with n=2"):
        controller.get_generation_inputs()


def test_past_the_limit_nothing_new_is_admitted():
    # With one answer at a time, something would always be in flight.
    controller = streaming(train_batch_size=2, gen_batch_size=4, max_num_gen_batches=2)
    entries, added = [], 0
    while added < 100:
        wanted = controller.num_prompts_wanted
        add(controller, *(f"u{added + number}" for number in range(wanted)))
        added += wanted
        entries += controller.get_generation_inputs()
        answer(controller, entries.pop(0), [0.0, 0.0])
        if not entries and not controller.num_prompts_wanted:
            break
    assert added == 8 + 3  # three were under way when the eighth ended
    with pytest.raises(TooManyGenerationBatches):
        controller.get_generation_inputs()


def test_the_price_of_a_qualified_prompt_is_what_others_wasted():
    record = ScreeningRecord(screened=0.0, qualified=0.0, wasted=0.0)
    for qualified in (True, False, False, True):
        record.observe(qualified, 4)
    assert record.price == pytest.approx(4, rel=0.02)
    assert record.qualified_share == pytest.approx(0.5, rel=0.02)


@given(
    wanted=st.integers(1, 50), certain=st.integers(0, 60), in_screening=st.integers(0, 50),
    share=st.floats(1e-9, 1), bound=st.integers(1, 200),
)  # fmt: skip
def test_admission_is_the_least_that_covers_the_batch(wanted, certain, in_screening, share, bound):
    number = num_to_admit(
        wanted=wanted, certain=certain, in_screening=in_screening, qualified_share=share, max_in_screening=bound
    )
    room = max(0, bound - in_screening)
    missing = wanted - certain - share * in_screening
    assert 0 <= number <= room
    if missing <= 0:
        assert number == 0
    elif number < room:
        assert number == math.ceil(missing / share)


def test_indices_of_live_prompts_are_known():
    controller = streaming()
    controller.add_new_prompts_first_generation_phase([Prompt("x", 7), Prompt("y", "seven")])
    assert controller.live_indices() == {7, "seven"}
