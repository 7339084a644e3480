"""The curriculum as a collector: what it requests, returns, frees and stores, on an engine that answers at once."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from stored_rows import Engine, QuietTrainer, StoredRows

from recipe.fast_dapo import posterior_advantage
from recipe.fast_dapo.collector import Curriculum, CurriculumExhaustedError
from recipe.fast_dapo.curriculum.baseline import RewardScale
from recipe.fast_dapo.posterior_advantage import KnownPrompt
from recipe.fast_dapo.settings import resolve_group_size
from recipe.fast_dapo.weighting import HorvitzThompson
from verl_ext.core.errors import SignalError
from verl_ext.run.run_totals import RunTotals
from verl_ext.serving.agent_loop import FIRST_SESSION
from verl_ext.serving.rollout_key import session_of, uid_of

ROOT = Path(__file__).resolve().parents[3]
SIZES = [
    "+signal=two_phase",
    "data.train_batch_size=3",
    "data.gen_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=3",
]


def mixed_now_and_then(index: int, session: int) -> bool:
    """Of every four prompts, two are mixed, one is always solved and one never."""
    return [False, True, session % 2 == 0, session % 4 == 1][index % 4]


def one_output(session: int) -> int:
    return 1


def one_to_three(session: int) -> int:
    return 1 + session % 3


def _make(
    tmp_path: Path, *overrides: str, passes: Any = mixed_now_and_then, outputs: Any = one_output
) -> tuple[Curriculum, QuietTrainer]:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        config = compose("fast_dapo", overrides=[*SIZES, *overrides])
    resolve_group_size(config)
    trainer = QuietTrainer(config, tmp_path, Engine(passes, outputs))
    return Curriculum(trainer), trainer


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StoredRows:
    return StoredRows(monkeypatch)


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
def test_a_batch_is_complete_groups_of_mixed_prompts_and_the_rest_is_freed(
    store: StoredRows, tmp_path: Path, schedule: str
):
    curriculum, trainer = _make(tmp_path, f"curriculum.schedule={schedule}")
    for step in (1, 2, 3):
        trainer.global_steps, trainer.agent_loop_manager.version = step, step - 1
        batch = curriculum.collect(3)
        groups = [batch.keys[place : place + 16] for place in range(0, len(batch.keys), 16)]
        assert len(batch.keys) == len(batch.tags) == 3 * 16
        for group in groups:
            uid = group[0].rsplit("_", 2)[0]
            assert group == [f"{uid}_{session}_0" for session in range(16)]
            assert int(uid.removeprefix("uid")) % 4 in (2, 3)
        assert all(tag["response_len"] == 2 for tag in batch.tags)
        store.clear(batch.keys, "train")  # as verl does after the step
        assert set(store.tags("train")) | curriculum.prompt_rows.uids == curriculum.controller.live_names()
    metrics, totals = curriculum.metrics(), RunTotals()
    curriculum.count(batch, {}, totals)
    assert metrics["curriculum/unaccounted_rollouts"] == 0
    assert totals.rollouts_generated == trainer.agent_loop_manager.num_rollouts
    assert totals.rollouts_trained == 3 * 3 * 16
    assert curriculum.summary()["rollouts_avoided"] > 0
    events = [json.loads(line)["event"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert events.count("trained") == 9
    assert events.count("screening") >= 18


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
@pytest.mark.parametrize("correction", ["none", "continuation_only"])
def test_all_outputs_of_a_session_are_trained_on_and_freed_and_count_as_one_rollout(
    store: StoredRows, tmp_path: Path, schedule: str, correction: str
):
    options = [f"curriculum.schedule={schedule}", f"curriculum.correction={correction}", "trainer.n_gpus_per_node=4"]
    first, group = (4, 12) if correction == "continuation_only" else (0, 16)
    curriculum, trainer = _make(tmp_path, *options, outputs=one_to_three)
    for step in (1, 2):
        trainer.global_steps, trainer.agent_loop_manager.version = step, step - 1
        batch = curriculum.collect(3)
        uids = list(dict.fromkeys(key.rsplit("_", 2)[0] for key in batch.keys))
        assert batch.keys == [
            f"{uid}_{session}_{number}"
            for uid in uids
            for session in range(first, 16)
            for number in range(one_to_three(session))
        ]
        assert len(uids) == 3
        store.clear(batch.keys, "train")  # as verl does after the step
        left = set(store.tags("train"))
        live = curriculum.controller.live_names() - curriculum.controller.live_uids()
        assert {key.rsplit("_", 1)[0] for key in left} == {key.rsplit("_", 1)[0] for key in live}
        assert live <= left
        assert len(left) == sum(one_to_three(int(key.rsplit("_", 2)[1])) for key in live)
    totals = RunTotals()
    curriculum.count(batch, {}, totals)
    assert totals.rollouts_trained == 2 * 3 * group
    assert totals.rollouts_generated == trainer.agent_loop_manager.num_rollouts


def test_all_outputs_of_a_session_travel_with_a_checkpoint(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "data.gen_batch_size=12", outputs=one_to_three)
    store.clear(curriculum.collect(3).keys, "train")
    waiting = set(store.tags("train"))
    curriculum.before_checkpoint()
    state = json.loads(json.dumps(curriculum.state_dict()))
    restored, _ = _make(tmp_path, "data.gen_batch_size=12")
    restored.load_state_dict(state)
    assert set(store.tags("train")) == waiting | curriculum.controller.live_uids()
    last = max(waiting, key=lambda key: int(key.rsplit("_", 1)[1]))
    assert last.endswith("_2")
    store.clear([last.removesuffix("2") + "0"], "train")  # the first of its outputs
    with pytest.raises(SignalError, match="lacks 1 of"):
        restored.load_state_dict(state)


def test_what_waits_travels_with_a_checkpoint(store: StoredRows, tmp_path: Path):
    curriculum, trainer = _make(tmp_path, "data.gen_batch_size=12")
    batch = curriculum.collect(3)
    curriculum.before_checkpoint()
    state = json.loads(json.dumps(curriculum.state_dict()))
    waiting = curriculum.controller.live_names()
    assert waiting
    # The step's own batch is still in the data plane.
    assert set(store.tags("train")) == waiting | set(batch.keys)
    restored, _ = _make(tmp_path, "data.gen_batch_size=12")
    restored.load_state_dict(state)
    assert restored.controller.live_names() == waiting == set(store.tags("train"))
    assert restored.state_dict() == state
    trainer.global_steps = 2
    restored._trainer.num_fetched = trainer.num_fetched
    assert len(restored.collect(3).keys) == 3 * 16
    store.clear([min(restored.controller.live_names() & set(store.tags("train")))], "train")
    with pytest.raises(SignalError, match="lacks"):
        _make(tmp_path)[0].load_state_dict(json.loads(json.dumps(restored.state_dict())))


def test_too_many_rounds_end_with_an_error_after_a_checkpoint(store: StoredRows, tmp_path: Path):
    curriculum, trainer = _make(tmp_path, "curriculum.max_num_gen_batches=2", passes=lambda index, session: False)
    with pytest.raises(CurriculumExhaustedError, match="A checkpoint was written"):
        curriculum.collect(3)
    assert trainer.saved == [0]


def test_a_metric_that_the_reward_does_not_return_is_named(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "curriculum.success_metric=solved")
    with pytest.raises(SignalError, match=r"success_metric='solved'.*\['acc'\]"):
        curriculum.collect(3)


def test_horvitz_thompson_weights_whole_groups_and_says_so(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "curriculum.correction=horvitz_thompson")
    batch = curriculum.collect(3)
    weighting = HorvitzThompson(curriculum)
    before = store.read(batch.keys, "train", ["advantages"])["advantages"].unbind()
    assert weighting.select(batch) is batch
    after = store.read(batch.keys, "train", ["advantages"])["advantages"].unbind()
    factors = [float(new[0] / old[0]) for old, new in zip(before, after, strict=True)]
    metrics = weighting.metrics()
    for place in range(3):
        group = factors[16 * place : 16 * place + 16]
        assert group == pytest.approx([group[0]] * 16)
    assert 1 < max(factors) <= 4
    assert max(factors) == pytest.approx(metrics["curriculum/correction_weight/max"])
    assert metrics["curriculum/correction_weight/clipped_share"] == 0


# ------------------------------ every rollout trained on, with the posterior as baseline ------------------------------

POSTERIOR = ["curriculum.baseline=posterior", "algorithm.adv_estimator=posterior"]
ALL = ["curriculum.train_on=all", *POSTERIOR, "trainer.n_gpus_per_node=1"]
# With these, a posterior is the prior plus the outcomes of the prompt.
ONLY_EVIDENCE = [
    f"curriculum.posterior.{option}" for option in ("discount=1.0", "prior_weight=null", "recalibrate=false")
]
SIZES_OF_GROUPS = [(2, 2), (1, 0)]


def sizes_of_a_group(n: int, n_continue: int) -> list[str]:
    return [f"actor_rollout_ref.rollout.n={n}", f"actor_rollout_ref.rollout.n_continue={n_continue}"]


def _make_with_data(
    tmp_path: Path, *overrides: str, num_prompts: int = 400, passes: Any = mixed_now_and_then
) -> tuple[Curriculum, QuietTrainer]:
    """With a data set to choose prompts from; position and index are the same."""
    curriculum, trainer = _make(tmp_path, *overrides, passes=passes)
    trainer.train_dataset = [{"index": index, "raw_prompt": f"prompt {index}"} for index in range(num_prompts)]
    curriculum.set_up_data()
    return curriculum, trainer


def test_a_batch_that_the_posterior_could_never_fill_is_refused(tmp_path: Path):
    """A data set with as many prompts as one batch is enough."""
    options = ["data.gen_batch_size=3", "curriculum.predictor=posterior"]
    with pytest.raises(SignalError, match=r"2 prompts are left .* fewer than data\.train_batch_size=3\. Lower"):
        _make_with_data(tmp_path, *options, num_prompts=2)
    _make_with_data(tmp_path, *options, num_prompts=3)


class Prepared:
    """Records what an estimator would be told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(posterior_advantage, "prepare", self._take)
        self.keys: list[str] = []
        self.prompts: dict[str, KnownPrompt] = {}
        self.scale = RewardScale()

    def _take(self, keys: list[str], prompts: dict[str, KnownPrompt], scale: RewardScale) -> None:
        self.keys, self.prompts, self.scale = keys, prompts, scale


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Prepared:
    return Prepared(monkeypatch)


def test_prompts_that_harm_a_validation_set_are_chosen_last(store: StoredRows, tmp_path: Path):
    options = ["curriculum.predictor=posterior", "tracin.enable=true", "curriculum.posterior.use_influence=true"]
    curriculum, _ = _make_with_data(tmp_path, *options, num_prompts=24)
    batch = curriculum.collect(3)
    harmful, *others = [group.prompt for group in curriculum.groups]
    for _ in range(30):
        curriculum.observe_influence({harmful.uid: -1.0} | {prompt.uid: 1.0 for prompt in others})
    store.clear(batch.keys, "train")
    assert curriculum.predictor is not None
    left = [row["index"] for row in curriculum.predictor.choose(24, curriculum.controller.live_indices())]
    assert left[-1] == harmful.index
    assert 1 / 24 <= curriculum.metrics()["predictor/harmful_share"] <= 1 / 20


def test_without_the_setting_scores_are_ignored(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make_with_data(tmp_path, "curriculum.predictor=posterior")
    curriculum.collect(3)
    curriculum.observe_influence({group.prompt.uid: -1.0 for group in curriculum.groups})
    assert curriculum.predictor is not None
    assert not curriculum.predictor.posterior.influence.has_evidence


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
@pytest.mark.parametrize("predictor", ["none", "posterior"])
@pytest.mark.parametrize(("n", "n_continue"), SIZES_OF_GROUPS)
def test_every_rollout_is_trained_on_and_nothing_is_freed_before(
    store: StoredRows, tmp_path: Path, schedule: str, predictor: str, n: int, n_continue: int
):
    options = [*ALL, f"curriculum.schedule={schedule}", f"curriculum.predictor={predictor}"]
    curriculum, trainer = _make_with_data(tmp_path, *options, *sizes_of_a_group(n, n_continue))
    kinds = set()
    for step in range(1, 9):
        trainer.global_steps, trainer.agent_loop_manager.version = step, step - 1
        batch = curriculum.collect(3)
        assert len(curriculum.groups) == 3
        for group in curriculum.groups:
            index, own = group.prompt.index, [key for key in batch.keys if uid_of(key) == group.prompt.uid]
            is_mixed = len({mixed_now_and_then(index, session) for session in range(n)}) > 1
            size = n + n_continue if is_mixed else n
            assert own == [f"{group.prompt.uid}_{session}_0" for session in range(size)]
            assert group.stages == (0,) * n + (1,) * (size - n)
            kinds.add(index % 4)
        # No more is generated than the batch needs, and all of it is trained on.
        assert set(batch.keys) == set(store.tags("train"))
        store.clear(batch.keys, "train")
    metrics = curriculum.metrics()
    assert metrics["curriculum/total/trained_rollouts"] == trainer.agent_loop_manager.num_rollouts
    assert metrics["curriculum/buffered_rollouts"] == 0
    assert metrics["curriculum/total/trained"] == 3 * 8
    assert metrics["curriculum/unaccounted_rollouts"] == 0
    assert metrics["curriculum/total/all_wrong"] == metrics["curriculum/total/all_right"] == 0
    kept = metrics["curriculum/total/all_wrong_kept"] + metrics["curriculum/total/all_right_kept"]
    assert kept + metrics["curriculum/total/qualified"] == metrics["curriculum/total/screened"]
    assert kept > 0
    assert kinds == {0, 1, 2, 3}


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
@pytest.mark.parametrize("predictor", ["none", "posterior"])
@pytest.mark.parametrize(("n", "n_continue"), SIZES_OF_GROUPS)
def test_the_estimator_hears_what_was_believed_before_a_groups_first_rollout(
    store: StoredRows,
    prepared: Prepared,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    schedule: str,
    predictor: str,
    n: int,
    n_continue: int,
):
    """The prior and the outcomes until then; those of its own rollouts would make its baselines depend on them."""
    options = [*ALL, *ONLY_EVIDENCE, f"curriculum.schedule={schedule}", f"curriculum.predictor={predictor}"]
    curriculum, trainer = _make_with_data(tmp_path, *options, *sizes_of_a_group(n, n_continue), num_prompts=12)
    assert curriculum.predictor is not None
    engine, observe = trainer.agent_loop_manager, curriculum.predictor.posterior.observe
    believed: dict[int, list[float]] = defaultdict(lambda: [0.2, 0.2])
    begun: dict[str, tuple[float, float]] = {}

    def recording_observe(position: int, passes: float, fails: float, shortfall: float) -> None:
        believed[position][0] += passes
        believed[position][1] += fails
        observe(position, passes, fails, shortfall)

    generate = engine.generate_and_report

    def recording_generate(batch: Any) -> Any:
        for uid, index, first in zip(batch["uid"], batch["index"], batch[FIRST_SESSION], strict=True):
            if int(first) == 0:
                begun[uid] = (believed[int(index)][0], believed[int(index)][1])
        return generate(batch)

    monkeypatch.setattr(curriculum.predictor.posterior, "observe", recording_observe)
    monkeypatch.setattr(engine, "generate_and_report", recording_generate)
    seen_before = 0
    for step in range(1, 7 if predictor == "posterior" else 4):  # the loader continues beyond the data set
        trainer.global_steps, engine.version = step, step - 1
        batch = curriculum.collect(3)
        curriculum.before_advantages(batch)
        assert prepared.keys == batch.keys
        assert prepared.scale is curriculum.reward_scale
        assert list(prepared.prompts) == [group.prompt.uid for group in curriculum.groups]
        for group in curriculum.groups:
            known = prepared.prompts[group.prompt.uid]
            assert (known.alpha, known.beta) == pytest.approx(begun[group.prompt.uid])
            sessions = [session_of(sample.key) for sample in group.samples]
            assert list(known.successes) == [mixed_now_and_then(group.prompt.index, session) for session in sessions]
            assert list(known.stages) == [int(session >= n) for session in sessions]
            seen_before += known.alpha + known.beta > 1
        store.clear(batch.keys, "train")
    assert (seen_before > 0) == (predictor == "posterior")


def test_nobody_is_told_anything_where_the_baseline_is_the_estimators(
    store: StoredRows, prepared: Prepared, tmp_path: Path
):
    curriculum, _ = _make(tmp_path)
    curriculum.before_advantages(curriculum.collect(3))
    assert not prepared.prompts


@pytest.mark.parametrize("predictor", ["none", "posterior"])
def test_what_was_believed_of_a_group_that_waits_travels_with_a_checkpoint(
    store: StoredRows, prepared: Prepared, tmp_path: Path, predictor: str
):
    options = [*ALL, *ONLY_EVIDENCE, f"curriculum.predictor={predictor}", *sizes_of_a_group(2, 2)]
    # All prompts are mixed, so one round ends without a batch and with three prompts waiting.
    curriculum, _ = _make_with_data(
        tmp_path, *options, "curriculum.max_num_gen_batches=1", passes=lambda index, session: session % 2 == 0
    )
    assert curriculum.predictor is not None
    for position in range(400):
        curriculum.predictor.posterior.observe(position, 3, 1)
    curriculum.reward_scale.add(RewardScale.sums_of(np.array([0, 1]), np.array([-1.0, 1.0])))
    with pytest.raises(CurriculumExhaustedError):
        curriculum.collect(3)
    curriculum.before_checkpoint()
    state = json.loads(json.dumps(curriculum.state_dict()))
    waiting = {group.prompt.uid for group in curriculum.controller.prompts_for_second_generation_phase}
    assert len(waiting) == 3
    restored, trainer = _make_with_data(tmp_path, *options, passes=lambda index, session: session % 2 == 0)
    restored.load_state_dict(state)
    assert restored.state_dict() == state
    assert restored.reward_scale.line(np.zeros(5)) == pytest.approx((-1, 2))
    trainer.global_steps, trainer.num_fetched = 2, 4
    batch = restored.collect(3)
    restored.before_advantages(batch)
    assert set(prepared.prompts) == waiting
    for known in prepared.prompts.values():
        # The outcomes of their screening are not included.
        assert (known.alpha, known.beta) == pytest.approx((3.2, 1.2))
        assert list(known.stages) == [0, 0, 1, 1]
    assert restored.predictor is not None
    # The outcomes of all four rollouts are included from now on.
    assert sum(alpha + beta > 4 + 4 for alpha, beta in restored.predictor.posterior.posteriors(range(400))) == 3


def test_a_run_without_posteriors_can_be_resumed_with_them(store: StoredRows, prepared: Prepared, tmp_path: Path):
    """Groups that had already begun have no recorded belief: the prior is used instead."""
    curriculum, _ = _make(tmp_path, "data.gen_batch_size=12")
    store.clear(curriculum.collect(3).keys, "train")
    curriculum.before_checkpoint()
    state = json.loads(json.dumps(curriculum.state_dict()))
    assert state["controller"]["training"]
    restored, trainer = _make_with_data(tmp_path, "data.gen_batch_size=12", *POSTERIOR)
    restored.load_state_dict(state)
    trainer.global_steps, trainer.num_fetched = 2, 12
    batch = restored.collect(3)
    restored.before_advantages(batch)
    assert len(prepared.prompts) == 3
    for known in prepared.prompts.values():
        assert 0 < known.alpha + known.beta < 2


# ------------------------------ graded successes ------------------------------

GRADED = ["curriculum.success_threshold=null", "curriculum.predictor=posterior"]


def graded_now_and_then(index: int, session: int) -> float:
    """Of every four prompts, one gets differing grades, one passes half of the time, two always get the same grade."""
    return [0.0, 0.5, 0.25 + session % 2 / 2, float(session % 2 == 0)][index % 4]


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
def test_graded_prompts_are_trained_on_where_their_successes_differ(
    store: StoredRows, prepared: Prepared, tmp_path: Path, schedule: str
):
    options = [*GRADED, f"curriculum.schedule={schedule}", *POSTERIOR, "trainer.n_gpus_per_node=1"]
    curriculum, trainer = _make_with_data(tmp_path, *options, num_prompts=40, passes=graded_now_and_then)
    for step in range(1, 4):
        trainer.global_steps, trainer.agent_loop_manager.version = step, step - 1
        batch = curriculum.collect(3)
        curriculum.before_advantages(batch)
        for group in curriculum.groups:
            index = group.prompt.index
            assert index % 4 in (2, 3)
            assert group.num_passes == sum(graded_now_and_then(index, session) for session in range(16))
            assert list(prepared.prompts[group.prompt.uid].successes) == [
                graded_now_and_then(index, session_of(sample.key)) for sample in group.samples
            ]
        store.clear(batch.keys, "train")
    metrics = curriculum.metrics()
    assert metrics["curriculum/total/all_wrong"] > 0
    assert metrics["curriculum/unaccounted_rollouts"] == 0
    assert 0 < metrics["predictor/shortfall_share"] < 1
    assert curriculum.predictor is not None
    posterior = curriculum.predictor.posterior
    shortfalls = {
        event["index"]: posterior.shortfall(np.array([event["index"]]))[0]
        for event in map(json.loads, (tmp_path / "prompts.jsonl").read_text().splitlines())
        if event["event"] == "screening"
    }
    half, passes = ([value for index, value in shortfalls.items() if index % 4 == kind] for kind in (1, 3))
    assert min(half) > max(passes)
    restored, _ = _make_with_data(tmp_path, *options, num_prompts=40, passes=graded_now_and_then)
    curriculum.before_checkpoint()
    restored.load_state_dict(json.loads(json.dumps(curriculum.state_dict())))
    assert restored.predictor is not None
    assert (restored.predictor.posterior.shortfall(np.arange(40)) == posterior.shortfall(np.arange(40))).all()


def test_the_history_of_prompts_has_the_sum_of_their_grades(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "curriculum.success_threshold=null", passes=lambda index, session: session % 4 / 10)
    curriculum.collect(3)
    events = list(map(json.loads, (tmp_path / "prompts.jsonl").read_text().splitlines()))
    assert {event["passes"] for event in events if event["event"] == "screening"} == {0.6}
    assert {event["passes"] for event in events if event["event"] == "continuation"} == {1.8}


@pytest.mark.parametrize("reward", [-1.0, 1.5, float("nan")])
def test_a_reward_that_is_no_grade_is_refused_at_the_first_one(store: StoredRows, tmp_path: Path, reward: float):
    curriculum, _ = _make(tmp_path, "curriculum.success_threshold=null", passes=lambda index, session: reward)
    expected = rf"curriculum\.success_metric=acc is {reward:g} .*success_threshold=null expects a grade from 0 to 1"
    with pytest.raises(SignalError, match=expected):
        curriculum.collect(3)


@pytest.mark.parametrize(("grade", "num_silent"), [(0.0, 1), (0.01, 0)])
def test_a_source_of_grades_is_silent_where_none_is_above_0(
    store: StoredRows, tmp_path: Path, grade: float, num_silent: int
):
    options = ["curriculum.success_threshold=null", "curriculum.max_num_gen_batches=100"]
    curriculum, _ = _make(tmp_path, *options, passes=lambda index, session: grade)
    with pytest.raises(CurriculumExhaustedError):
        curriculum.collect(3)
    assert curriculum.metrics()["curriculum/silent_sources"] == num_silent


def test_what_a_prompt_says_is_written_once(store: StoredRows, tmp_path: Path):
    curriculum, trainer = _make(tmp_path)
    curriculum.collect(3)
    texts = [json.loads(line) for line in (tmp_path / "prompt_texts.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert [text["index"] for text in texts] == list(range(trainer.num_fetched))
    assert {event["index"] for event in events} <= {text["index"] for text in texts}
    assert texts[2] == {"index": 2, "prompt": "prompt 2", "ground_truth": None, "data_source": None}
    state = curriculum.prompt_records.state_dict()
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"text": "1+1?"}, {}]}]
    more = {"index": [0, 77], "raw_prompt": ["again", messages], "reward_model": [{}, {"ground_truth": 2}]}
    for _ in range(2):
        curriculum.prompt_records.add_prompts(more | {"data_source": ["a", "b"]})
    assert json.loads((tmp_path / "prompt_texts.jsonl").read_text().splitlines()[-1]) == {
        "index": 77, "prompt": "Be brief.\n\n1+1? […]", "ground_truth": "2", "data_source": "b",
    }  # fmt: skip
    # A resumed run does not write existing records again, and forgets those that came after its checkpoint.
    again, _ = _make(tmp_path)
    again.prompt_records.load_state_dict(state)
    again.prompt_records.add_prompts(more)
    indices = [json.loads(line)["index"] for line in (tmp_path / "prompt_texts.jsonl").read_text().splitlines()]
    assert indices == [*range(trainer.num_fetched), 77]


def test_records_of_a_release_that_kept_no_texts_are_taken(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path)
    store.clear(curriculum.collect(3).keys, "train")
    curriculum.before_checkpoint()
    state = json.loads(json.dumps(curriculum.state_dict()))
    events = (tmp_path / "prompts.jsonl").read_text()
    state["prompt_records_bytes"] = state.pop("prompt_records")["events"]
    restored, _ = _make(tmp_path)
    restored.load_state_dict(state)
    assert (tmp_path / "prompts.jsonl").read_text() == events
    assert (tmp_path / "prompt_texts.jsonl").read_text() == ""


def test_without_records_nothing_is_written(store: StoredRows, tmp_path: Path):
    curriculum, _ = _make(tmp_path, "curriculum.record_prompts=false")
    curriculum.collect(3)
    assert list(tmp_path.iterdir()) == []
