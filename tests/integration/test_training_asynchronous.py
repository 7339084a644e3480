"""verl's asynchronous trainers: rollouts in flight when a batch is complete continue under the next weights.

With engines on the actor's devices (`colocate_async`), they wait while the actor is trained. With engines on separate
devices (`separate_async`), they continue, two updates share a step, and the checkpoint engine transfers the weights.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import CHOOSE_SETTINGS, DATA, Lab, is_corrected, start_over

from verl_ext.core.errors import StaleEngineError
from verl_ext.serving import data_plane

ASYNCHRONOUS = [
    "curriculum.schedule=streaming",
    "tracin.enable=true",
    "tracin.parameters=down_proj",
    f"tracin.validation_files={DATA}/val.parquet",
    "tracin.validation.strategy=contrast",
    "tracin.validation.pool_size=48",
    "tracin.validation.k=16",
    "tracin.check_identity_every=1",
    # Longer answers than the model's, a few at a time: some are being generated whenever a batch is complete.
    "actor_rollout_ref.rollout.ignore_eos=true",
    "actor_rollout_ref.rollout.max_num_seqs=16",
    "data.max_response_length=32",
    f"reward.custom_reward_function.path={Path(__file__).parent}/small_rewards.py",
    # Copies of the weights wherever no rollout of the current ones is trained on.
    "engine_guard.max_unchecked_steps=1",
]
COLOCATE = ("trainer.v1.trainer_mode=colocate_async",)
SEPARATE = (
    "trainer.v1.trainer_mode=separate_async",
    "actor_rollout_ref.rollout.nnodes=1",
    "trainer.v1.separate_async.parameter_sync_step=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
)
# All of the trainer's devices for training: no engine on them, not even for validation.
ENGINES_APART = "actor_rollout_ref.hybrid_engine=false"


@dataclass(frozen=True)
class Mode:
    """One of verl's trainers, and an engine."""

    name: str
    overrides: tuple[str, ...]
    trainer: str
    engine: str = "vllm"


COLOCATED, APART = "PPOTrainerColocateAsync", "PPOTrainerSeparateAsync"
MODES = [
    Mode("colocate_async", COLOCATE, COLOCATED),
    Mode("separate_async", (*SEPARATE, ENGINES_APART), APART),
]
RELEASE = [
    Mode("separate_async_hybrid", SEPARATE, APART),
    Mode("colocate_async_with_another", COLOCATE, COLOCATED, "sglang"),
    Mode("separate_async_with_another", (*SEPARATE, ENGINES_APART), APART, "sglang"),
]


@pytest.fixture(
    scope="module",
    params=[*MODES, *(pytest.param(mode, marks=pytest.mark.release) for mode in RELEASE)],
    ids=lambda mode: mode.name,
)
def mode(request: pytest.FixtureRequest) -> Mode:
    """Module-scoped, so that the tests of one mode run together."""
    return request.param


@pytest.fixture
def lab(mode: Mode, labs: Any, monkeypatch: pytest.MonkeyPatch) -> Lab:
    if mode.engine != "vllm":
        monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "plain_engine")
    return labs.get(mode.name, *ASYNCHRONOUS, *mode.overrides, f"actor_rollout_ref.rollout.name={mode.engine}")


def _where_all_is(trainer: Any) -> dict[str, Any]:
    controller = trainer.collector.controller
    with trainer.collector.at_rest():
        return _of_a_controller(trainer, controller)


def _of_a_controller(trainer: Any, controller: Any) -> dict[str, Any]:
    from verl_ext.serving import data_plane

    return {
        "classes": [kind.__name__ for kind in type(trainer).__mro__],
        "prompts": controller.conservation(),
        "rollouts": controller.rollout_conservation(),
        # Finished sessions of a prompt in flight are stored before its report arrives.
        "lost": sorted(controller.live_names() - set(data_plane.tags("train")) - trainer.collector.prompt_rows.uids),
    }


def _check(lab: Lab, mode: Mode, metrics: list[dict[str, Any]]) -> None:
    """Nothing is lost or trained on twice, ages are as configured, the engine serves the actor's weights."""
    trained = [key for each in metrics for key in each["batch_keys"]]
    assert len(set(trained)) == len(trained)
    found = lab.call(_where_all_is)
    assert mode.trainer in found["classes"]
    for whole, kinds in (("added", found["prompts"]), ("generated", found["rollouts"])):
        assert kinds.pop(whole) == sum(kinds.values())
    assert found["lost"] == []
    for each in metrics:
        assert each["training/off_policy/trajectory_staleness/max"] <= each["curriculum/sample_age/max"]
    _check_correction(metrics)
    check_guard(metrics)


def _check_correction(metrics: list[dict[str, Any]]) -> None:
    """verl's correction has something to do wherever a rollout was finished under earlier weights.

    Not wherever one was begun: an update that finds a rollout waiting in the engine's queue makes it older for verl,
    without a token of the earlier weights.
    """
    for step, each in enumerate(metrics):
        age = each["training/off_policy/trajectory_staleness/max"]
        since = metrics[max(step - age, 0) : step]
        # Where TracIn selected nothing, the update was skipped and the weights are still the same.
        if any(before.get("tracin/update_skipped", 0) < 1 for before in since):
            assert is_corrected(each)


def check_guard(metrics: list[dict[str, Any]]) -> None:
    """The engine guard compared rollouts, of the current weights or of earlier ones, and they agree."""
    compared = [each for each in metrics if "engine_guard/probs_diff_max" in each]
    assert compared
    for each in compared:
        assert each["engine_guard/fresh_rollouts"] + each.get("engine_guard/earlier_rollouts", 0) > 0
        assert each["engine_guard/probs_diff_max"] < 1e-4


def test_two_phases_go_on_over_an_update(lab: Lab, mode: Mode):
    with lab.settings(tracin__enable=False):
        metrics = [lab.step() for _ in range(4)]
        _check(lab, mode, metrics)
    assert all(len(each["batch_keys"]) == 8 * 16 for each in metrics)
    # Counted when the batch is complete: separate engines may have finished the rest by the end of the step.
    assert max(each["curriculum/in_flight_prompts"] for each in metrics) > 0
    # One batch ahead: rollouts in flight are trained on one or two versions later.
    assert 1 <= max(each["curriculum/sample_age/max"] for each in metrics) <= 4


def test_rollouts_continue_under_the_next_weights(lab: Lab, mode: Mode):
    """Some rollouts begin under one version of the weights and end under another."""
    if mode.trainer != COLOCATED:
        pytest.skip("separate engines pause too briefly to catch one of these rollouts every time")
    # So many that the engine is busy long after a batch is complete.
    many = CHOOSE_SETTINGS | {"curriculum__n": 8, "curriculum__n_continue": 8, "actor_rollout_ref__rollout__n": 16}
    metrics: list[dict[str, Any]] = []
    with lab.settings(**many, tracin__enable=False):
        # All rollouts have one length and run sixteen at a time. A pause that falls between two such rounds catches
        # none of them halfway; about every second one does.
        while not any(each["training/off_policy/trajectory_spans/max"] >= 2 for each in metrics) and len(metrics) < 24:
            metrics.append(lab.step())
        _check(lab, mode, metrics)
    assert max(each["training/off_policy/trajectory_spans/max"] for each in metrics) >= 2


def test_choose_throws_nothing_away(lab: Lab, mode: Mode):
    metrics, under_way = [], []
    with lab.settings(**CHOOSE_SETTINGS, tracin__enable=False):
        for _ in range(7):
            metrics.append(lab.step())
            under_way.append(lab.call(lambda trainer: len(trainer.collector.controller.live_uids())))
        _check(lab, mode, metrics)
        rollouts = lab.call(_where_all_is)["rollouts"]
    assert all(each["curriculum/trained"] == 8 for each in metrics)
    assert rollouts["generated"] == rollouts["trained"] + rollouts["buffered"]
    # One batch is generated ahead: a prompt is trained on one step after it was admitted, on average. Its rollouts are
    # younger than that where the engine begins them after the update, which is a matter of time on either trainer.
    assert under_way == [8] * 7
    first, *ages = (each["curriculum/sample_age/mean"] for each in metrics)
    assert first == 0
    assert 0.2 < sum(ages) / len(ages) < 1.4


def test_training_waits_for_what_would_be_too_old(lab: Lab, mode: Mode):
    with lab.settings(**CHOOSE_SETTINGS, tracin__enable=False, curriculum__max_staleness=1):
        metrics = [lab.step() for _ in range(4)]
        _check(lab, mode, metrics)
    assert max(each["curriculum/sample_age/max"] for each in metrics) <= 1
    assert sum(each["curriculum/expired"] for each in metrics) == 0


def test_tracin_scores_rollouts_of_several_versions(lab: Lab, mode: Mode):
    with lab.settings(algorithm__adv_estimator="grpo"):
        metrics = [lab.step() for _ in range(4)]
        _check(lab, mode, metrics)
    assert max(each["curriculum/sample_age/max"] for each in metrics) >= 1
    for each in metrics:
        assert each["tracin/identity_error"] < 1e-4
        assert each["tracin/validation_gradient_norm"] > 0


def test_the_guard_fires_where_all_rollouts_are_old(lab: Lab, mode: Mode):
    """Negative control: the engines claim new weights without having them."""
    if mode.trainer != APART:
        pytest.skip("engines on the actor's devices: test_training.py has it")

    def claim(trainer: Any) -> None:
        import ray

        for _ in range(8):
            trainer.timing_raw = {}
            trainer.on_step_begin()
            batch = trainer.step({}, trainer.timing_raw)
            data_plane.clear(batch.keys, batch.partition_id)
            trainer._version_sent = trainer.global_steps
            for server in trainer.watchdog._servers:
                ray.get(server.set_global_steps.remote(trainer.global_steps))
            trainer.global_steps += 1

    def repair(trainer: Any) -> None:
        start_over(trainer)
        trainer.standalone_checkpoint_manager.update_weights(trainer.global_steps - 1)

    with lab.settings(**CHOOSE_SETTINGS, tracin__enable=False):
        with pytest.raises(StaleEngineError, match="serves other weights"):
            lab.call(claim)
        lab.call(repair)
        _check(lab, mode, [lab.step() for _ in range(4)])


# Last, since the prompts that verl has submitted ahead stay in flight.
def test_tracin_selects_from_verls_own_batches(lab: Lab, mode: Mode):
    file = lab.run_dir / "influence.jsonl"
    before = len(file.read_text().splitlines()) if file.exists() else 0
    with lab.settings(curriculum__enable=False, algorithm__adv_estimator="grpo"):
        lab.call(lambda trainer: trainer.on_train_begin())  # which generates ahead
        metrics = [lab.step() for _ in range(3)]
    records = [json.loads(line) for line in file.read_text().splitlines()[before:]]
    trained = [key for each in metrics for key in each["batch_keys"]]
    # In groups of 16; every rollout is scored once.
    assert len(set(trained)) == len(trained) == 3 * 8 * 16
    assert Counter(record["key"] for record in records) == Counter(trained)
    assert all(record["weight"] == (record["score"] > 0) for record in records)
    _check_correction(metrics)
    for each in metrics:
        assert not any(name.startswith("curriculum/") for name in each)
        assert each["tracin/identity_error"] < 1e-4
        assert each["tracin/validation_gradient_norm"] > 0
    assert max(each["training/off_policy/trajectory_staleness_worst/max"] for each in metrics) >= 1
    assert any(record["versions"][0] < record["step"] - 1 for record in records)
