"""Fast DAPO and TracIn with an engine other than vLLM: they need only verl's interface."""

import time
from typing import Any

import pytest
from lab import CHOOSE_SETTINGS, DATA, Lab

from verl_ext.core.errors import RolloutEngineError

# Only before a release: a separate trainer takes a minute, and few changes affect what is tested here.
pytestmark = pytest.mark.release

TWO_PHASE = {"tracin__enable": False}
CHOOSE = TWO_PHASE | CHOOSE_SETTINGS | {"curriculum__schedule": "streaming"}


@pytest.fixture
def lab(labs: Any, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """`plain_engine.py` in every process, in place of SGLang."""
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "plain_engine")
    return labs.get(
        "another_engine",
        "actor_rollout_ref.rollout.name=sglang",
        "tracin.enable=true",
        "tracin.parameters=down_proj",
        f"tracin.validation_files={DATA}/val.parquet",
        "tracin.validation.strategy=contrast",
        "tracin.validation.pool_size=48",
        "tracin.validation.k=16",
        "tracin.check_identity_every=1",
        "watchdog.interval_s=1",
        "watchdog.hang_timeout_s=20",
    )


def steps(lab: Lab, count: int) -> list[dict[str, Any]]:
    """Metrics of some steps; in each, the engine serves the actor's weights, although each step changes them."""
    made = [lab.step() for _ in range(count)]
    for metrics in made:
        assert metrics["actor/grad_norm"] > 0
        assert metrics["engine_guard/fresh_rollouts"] > 0
        assert metrics["engine_guard/probs_diff_max"] < 1e-4
    return made


def test_it_is_not_vllm(lab: Lab):
    kinds = lab.call(lambda trainer: [type(replica).__name__ for replica in trainer.llm_server_manager.get_replicas()])
    assert kinds == ["PlainReplica"]


def test_two_phases_collect_whole_groups(lab: Lab):
    with lab.settings(**TWO_PHASE):
        for metrics in steps(lab, 2):
            assert len(metrics["batch_keys"]) == metrics["curriculum/trained_rollouts"] == 8 * 16
            assert metrics["curriculum/generated_rollouts"] > 8 * 16


def test_choose_trains_on_everything_that_it_generated(lab: Lab):
    with lab.settings(**CHOOSE):
        for metrics in steps(lab, 3):
            assert metrics["curriculum/screened"] == 8
            assert 8 * 2 <= metrics["curriculum/generated_rollouts"] == metrics["curriculum/trained_rollouts"] <= 8 * 4


def test_tracin_scores_every_rollout(lab: Lab):
    with lab.settings(algorithm__adv_estimator="grpo"):
        (metrics,) = steps(lab, 1)
    assert metrics["tracin/identity_error"] < 1e-4
    assert metrics["tracin/validation_gradient_norm"] > 0
    assert 0 < metrics["tracin/num_selected"] < 8 * 16


def test_the_death_of_its_server_ends_the_run_with_a_name(lab: Lab):
    """Runs last: the engine does not come back."""

    def kill_and_step(trainer: Any) -> None:
        import ray

        from verl_ext.launch.runner import name_failure

        (replica,) = trainer.llm_server_manager.get_replicas()
        ray.kill(replica.servers[0])
        trainer.timing_raw = {}
        try:
            trainer.step({}, trainer.timing_raw)
        except Exception as error:
            raise name_failure(trainer, error) from None

    began = time.monotonic()
    with pytest.raises(RolloutEngineError, match="rollout replica 0 cannot serve: its server process died"):
        lab.call(kill_and_step)
    assert time.monotonic() - began < 60
