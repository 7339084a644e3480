"""Sessions with tools or with several outputs in verl's asynchronous trainers: some continue over an update."""

from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from test_training_asynchronous import COLOCATE, ENGINES_APART, SEPARATE
from test_training_with_tools import CHOOSE, TWO_PHASE, _check, _step_with_sessions, tool_overrides

__all__ = ["tool_overrides"]  # a fixture

# Needs its own clusters, for several minutes.
pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

# One update per step, whose rows `_step_with_sessions` sees.
ONE_UPDATE = (
    *(option for option in SEPARATE if "parameter_sync_step" not in option and "ppo_mini_batch_size" not in option),
    "trainer.v1.separate_async.parameter_sync_step=1",
    ENGINES_APART,
)
MODES = {"colocate_async": COLOCATE, "separate_async": ONE_UPDATE}
STREAMING = {"curriculum__schedule": "streaming"}


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def lab(mode: str, labs: Any, tool_overrides: list[str]) -> Lab:
    return labs.get(f"tools_{mode}", *tool_overrides, "curriculum.schedule=streaming", *MODES[mode])


@pytest.fixture
def drafts_lab(mode: str, labs: Any, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    loops: Path = tmp_path_factory.mktemp("loops") / "loops.yaml"
    loops.write_text("- name: drafts\n  _target_: small_loops.Drafts\n")
    return labs.get(
        f"drafts_{mode}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
        "actor_rollout_ref.rollout.agent.default_agent_loop=drafts",
        "curriculum.schedule=streaming",
        *MODES[mode],
    )


def _continued(step: tuple[dict[str, Any], Any]) -> bool:
    """Whether some rollouts began under one version of the weights and ended under another."""
    return step[0]["training/off_policy/trajectory_spans/max"] >= 2


@pytest.mark.parametrize("settings", [TWO_PHASE | STREAMING, CHOOSE], ids=["two_phase", "choose"])
def test_sessions_with_tools_are_trained_on_once_and_as_they_were(lab: Lab, mode: str, settings: dict[str, Any]):
    with lab.settings(**settings):
        steps = [_step_with_sessions(lab) for _ in range(4)]
        # Separate engines pause too briefly to catch one of these short rollouts.
        while mode == "colocate_async" and not any(map(_continued, steps)):
            assert len(steps) < 24
            steps.append(_step_with_sessions(lab))
    trained = [key for metrics, _ in steps for key in metrics["batch_keys"]]
    assert len(set(trained)) == len(trained)
    for metrics, sessions in steps:
        assert len(sessions) == metrics["curriculum/trained_rollouts"]
        for session in sessions:
            _check(session)
    assert max(metrics["curriculum/sample_age/max"] for metrics, _ in steps) >= 1
    assert {session.reward for _, sessions in steps for session in sessions} == {0.0, 1.0}


@pytest.mark.parametrize("settings", [TWO_PHASE | STREAMING, CHOOSE], ids=["two_phase", "choose"])
def test_both_outputs_of_a_session_are_trained_on(drafts_lab: Lab, settings: dict[str, Any]):
    def stored(trainer: Any) -> tuple[set[str], set[str]]:
        """Rows in the data plane, and the names of rollouts that are still needed."""
        from verl_ext.serving import data_plane

        with trainer.collector.at_rest():
            controller = trainer.collector.controller
            rows = {key for key, tag in data_plane.tags("train").items() if not tag.get("is_prompt", False)}
            return rows - trainer.collector.prompt_rows.uids, controller.live_names() - controller.live_uids()

    with drafts_lab.settings(**settings):
        metrics = [drafts_lab.step() for _ in range(4)]
        rows, needed = drafts_lab.call(stored)
    for each in metrics:
        keys = {key for key in each["batch_keys"] if not key.startswith("pad")}
        sessions = {key.rpartition("_")[0] for key in keys}
        assert keys == {f"{session}_{number}" for session in sessions for number in (0, 1)}
        assert len(sessions) == each["curriculum/trained_rollouts"]
    assert {f"{name.rpartition('_')[0]}_{number}" for name in needed for number in (0, 1)} <= rows
    assert max(each["curriculum/sample_age/max"] for each in metrics) >= 1
