"""A controller that generates ahead: prompts in flight when a batch is complete continue under the next weights."""

import json

import pytest
from curriculum_play import add, make_samples, make_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.data_controller import DataController

BATCH = 3


def ahead(batches: float, **changes) -> DataController:
    """Every prompt is trained on; n = n_continue = 2."""
    sizes = {
        "schedule": "streaming",
        "train_on": "all",
        "n_continue": 2,
        "train_batch_size": BATCH,
        "gen_batch_size": 3,
    }
    return DataController(make_settings(**sizes | {"max_staleness": None, "ahead": batches} | changes))


class Engine:
    """Answers in a given order, with the version of a prompt's dispatch: the oldest that made any token."""

    def __init__(self, controller: DataController) -> None:
        self.controller, self.entries = controller, {}
        self.version = self.next_uid = 0
        self.trained: list[str] = []
        self.ages: list[int] = []

    def dispatch(self) -> None:
        wanted = self.controller.num_prompts_wanted
        add(self.controller, *(f"u{self.next_uid + i}" for i in range(wanted)))
        self.next_uid += wanted
        for entry in self.controller.get_generation_inputs():
            self.entries[entry.prompt.uid] = entry, self.version

    def answer(self, position: int, passes: list[bool]) -> None:
        uid = list(self.entries)[position % len(self.entries)]
        entry, version = self.entries.pop(uid)
        successes = [float(passed) for passed in passes[: entry.num_samples]]
        samples = make_samples(uid, entry.first_session, successes, version)
        self.controller.update_prompts({uid: samples}, self.version, more_to_come=True)

    def train(self) -> None:
        groups = self.controller.get_training_data()
        self.trained += [group.prompt.uid for group in groups]
        self.ages += [self.version - sample.version for group in groups for sample in group.samples]
        self.version += 1
        self.controller.evict(self.version)


def assert_all_is_accounted_for(controller: DataController) -> None:
    prompts, rollouts = controller.conservation(), controller.rollout_conservation()
    assert prompts.pop("added") == sum(prompts.values())
    assert rollouts.pop("generated") == sum(rollouts.values())


STALE = st.sampled_from(["wait", "drop"])
# Hypothesis makes short lists unless told otherwise, and a few answers make no rollout old.
ANSWERS = st.lists(
    st.tuples(st.integers(0, 50), st.lists(st.booleans(), min_size=2, max_size=2)), min_size=40, max_size=150
)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.sampled_from([0.5, 1.0, 2.0]),
    staleness=st.sampled_from([0, 1, 2, None]),
    stale=STALE,
    answers=ANSWERS,
)
def test_whatever_the_order_of_answers_each_prompt_is_trained_on_once_and_in_time(batches, staleness, stale, answers):
    controller = ahead(batches, max_staleness=staleness, stale=stale)
    engine = Engine(controller)
    for position, passes in answers:
        engine.dispatch()
        live = controller.num_in_flight + controller.num_prompts_for_training
        assert live <= BATCH * (1 + batches)
        if controller.is_ready_for_training():
            engine.train()
            continue
        engine.answer(position, passes)
        assert_all_is_accounted_for(controller)
    assert len(set(engine.trained)) == len(engine.trained)
    assert max(engine.ages, default=0) <= (10_000 if staleness is None else staleness)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.sampled_from([0.0, 1.0, 5.0]),
    per_version=st.sampled_from([1, 2, 3]),
    staleness=st.sampled_from([1, 2, 3]),
    stale=STALE,
    answers=ANSWERS,
)
def test_where_generation_goes_on_while_the_actor_is_trained_nothing_grows_too_old(
    batches, per_version, staleness, stale, answers
):
    """wait: slow prompts are waited for in time, and no more are admitted than fit into the batches to come. drop:
    what would be too old is generated again, and trained on once."""
    sizes = {"batches_per_version": per_version, "gen_batch_size": 100}
    controller = ahead(batches, max_staleness=staleness, stale=stale, **sizes)
    engine, num_batches = Engine(controller), 0
    for position, passes in answers:
        engine.dispatch()
        if controller.is_ready_for_training():
            groups = controller.get_training_data()
            engine.trained += [group.prompt.uid for group in groups]
            engine.ages += [engine.version - sample.version for group in groups for sample in group.samples]
            num_batches += 1
            controller.begin_update()
            assert len(controller.live_indices()) <= BATCH * (1 + batches)
            engine.dispatch()  # with the weights from before the update
            if num_batches % per_version == 0:
                engine.version += 1
            controller.end_update()
            controller.evict(engine.version)
        elif engine.entries:
            engine.answer(position, passes)
        assert_all_is_accounted_for(controller)
    assert len(set(engine.trained)) == len(engine.trained)
    assert max(engine.ages, default=0) <= staleness
    assert stale == "drop" or controller.metrics()["curriculum/total/expired"] == 0


def test_training_waits_for_a_slow_prompt_that_would_be_too_old_after_it():
    controller = ahead(1.0, gen_batch_size=4, max_staleness=1)
    engine = Engine(controller)
    engine.dispatch()
    for _ in range(5):  # all but u0
        engine.answer(1, [True, True])
    engine.train()
    engine.dispatch()
    for _ in range(3):
        engine.answer(1, [True, True])
    assert controller.has_whole_batch
    assert not controller.is_ready_for_training()
    engine.answer(0, [True, True])
    engine.train()
    assert "u0" in engine.trained
    assert max(engine.ages) == 1
    assert controller.metrics()["curriculum/total/expired"] == 0


def test_without_waiting_a_slow_prompt_is_generated_again_by_the_weights_of_now():
    controller = ahead(1.0, gen_batch_size=4, max_staleness=1, stale="drop")
    engine = Engine(controller)
    engine.dispatch()
    for _ in range(2):  # u0 is slow
        for _ in range(BATCH):
            engine.answer(1, [True, True])
        engine.train()
        engine.dispatch()
    engine.answer(0, [True, True])
    assert controller.metrics()["curriculum/total/expired"] == 1
    assert "u0" in controller.live_uids()
    engine.dispatch()
    for _ in range(2 * BATCH):
        engine.answer(list(engine.entries).index("u0") if "u0" in engine.entries else 0, [True, True])
        if controller.is_ready_for_training():
            engine.train()
        engine.dispatch()
    assert engine.trained.count("u0") == 1
    assert max(engine.ages) <= 1
    assert controller.rollout_conservation()["expired"] == 2
    assert_all_is_accounted_for(controller)


def test_a_batch_is_ready_while_others_are_in_flight_and_these_come_with_an_older_version():
    controller = ahead(1.0, gen_batch_size=4)
    engine = Engine(controller)
    engine.dispatch()
    assert controller.num_in_flight == 2 * BATCH
    for _ in range(BATCH):
        engine.answer(0, [True, True])
    assert controller.is_ready_for_training()
    engine.train()
    assert (engine.trained, controller.num_in_flight) == (["u0", "u1", "u2"], 3)
    engine.dispatch()  # as many as left
    assert controller.num_in_flight == 2 * BATCH
    for _ in range(BATCH):
        engine.answer(0, [False, False])
    engine.train()
    assert engine.trained[3:] == ["u3", "u4", "u5"]
    assert engine.ages == [0] * 6 + [1] * 6


@pytest.mark.parametrize(("batches", "per_version"), [(0.0, 1), (0.5, 1), (1.0, 1), (2.0, 1), (1.0, 2), (3.0, 2)])
def test_an_update_admits_nothing_so_what_a_fast_engine_generates_is_as_old_as_in_verl(batches, per_version):
    """verl adds a step's prompts at its beginning, to `num_warmup_batches` that are under way."""
    controller = ahead(batches, batches_per_version=per_version, gen_batch_size=100)
    engine = Engine(controller)
    for step in range(8):
        for update in range(per_version):
            controller.end_update()
            controller.evict(step)
            engine.dispatch()
            missing = BATCH * max(1 + batches - update, 1)
            assert controller.num_in_flight + controller.num_prompts_for_training == int(missing)
            while engine.entries:
                engine.answer(0, [True, True])
            groups = controller.get_training_data()
            engine.ages += [step - sample.version for group in groups for sample in group.samples]
            controller.begin_update()
            engine.dispatch()
            assert controller.num_prompts_for_training == int(BATCH * (1 + batches)) - BATCH * (update + 1)
            assert not engine.entries
        engine.version += 1
    # Of a version's prompts, `ahead` batches less those of its own updates are left when it ends.
    assert max(engine.ages) == -(-(1 + batches - per_version) // per_version)


def test_new_weights_alone_admit_nothing_before_the_next_batch_is_collected():
    controller = ahead(1.0, gen_batch_size=100)
    engine = Engine(controller)
    engine.dispatch()
    for _ in range(BATCH):
        engine.answer(0, [True, True])
    controller.get_training_data()
    controller.begin_update()
    engine.version = 1
    engine.answer(0, [True, True])
    assert controller.num_prompts_wanted == 0
    controller.evict(1)
    assert controller.num_prompts_wanted == 0
    controller.end_update()
    assert controller.num_prompts_wanted == BATCH


def test_while_the_actor_is_trained_what_is_not_mixed_is_still_replaced():
    controller = ahead(1.0, train_on="qualified", gen_batch_size=100)
    engine = Engine(controller)
    engine.dispatch()
    for _ in range(BATCH):
        engine.answer(0, [True, False])
    engine.dispatch()
    for uid in ("u0", "u1", "u2"):
        engine.answer(list(engine.entries).index(uid), [True, False])
    controller.get_training_data()
    controller.begin_update()
    before = engine.next_uid
    engine.dispatch()
    assert engine.next_uid == before
    while engine.entries:
        engine.answer(0, [False, False])
    engine.dispatch()
    assert engine.next_uid > before


def test_the_bound_on_prompts_in_screening_is_per_batch_under_way():
    controller = ahead(1.5, train_batch_size=10, gen_batch_size=3)
    assert controller.num_prompts_wanted == 8  # 3 x 2.5, and not the 25 of two and a half batches


def test_without_anything_ahead_a_batch_is_what_is_admitted():
    engine = Engine(ahead(0.0))
    engine.dispatch()
    assert engine.controller.num_in_flight == BATCH


def test_what_is_in_flight_at_a_checkpoint_is_generated_again():
    controller = ahead(1.0, gen_batch_size=4)
    engine = Engine(controller)
    engine.dispatch()
    engine.answer(5, [True, False])  # mixed: its continuation is also in flight
    engine.dispatch()
    for _ in range(BATCH):
        engine.answer(0, [True, True])
    engine.train()
    packed = json.loads(json.dumps(controller.state_dict()))
    restored = ahead(1.0, gen_batch_size=4)
    restored.load_state_dict(packed)
    assert restored.num_in_flight == 0
    assert restored.live_uids() == {"u3", "u4", "u5"}
    again = {entry.prompt.uid: (entry.first_session, entry.num_samples) for entry in restored.get_generation_inputs()}
    assert again == {"u5": (2, 2), "u3": (0, 2), "u4": (0, 2)}


def test_rounds_of_generation_cannot_be_ahead():
    with pytest.raises(ValueError, match="so it cannot generate ahead: set schedule=streaming"):
        ahead(1.0, schedule="merged")
