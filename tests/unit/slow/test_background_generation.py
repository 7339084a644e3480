"""Generation that continues while the trainer trains: a second thread on the same controller and data plane."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from stored_rows import Engine, QuietTrainer, StoredRows
from tensordict import TensorDict

from recipe.fast_dapo.background import BackgroundGeneration
from recipe.fast_dapo.collector import Curriculum, CurriculumExhaustedError
from recipe.fast_dapo.settings import resolve_group_size
from verl_ext.core.errors import GenerationFailedError
from verl_ext.run.run_totals import RunTotals
from verl_ext.serving.agent_loop import PromptReport

ROOT = Path(__file__).resolve().parents[3]
SEPARATE = [
    "+signal=two_phase",
    "curriculum.schedule=streaming",
    "trainer.v1.trainer_mode=separate_async",
    "trainer.v1.separate_async.parameter_sync_step=2",
    "data.train_batch_size=6",
    "data.gen_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=3",
    "trainer.n_gpus_per_node=1",
]
PATIENCE_S = 20.0


class SlowEngine(Engine):
    """Answers after a while, one prompt at a time."""

    def __init__(self, passes: Any) -> None:
        super().__init__(passes)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def dispatch(self, batch: TensorDict) -> None:
        assert threading.current_thread().name in ("MainThread", "background-generation")
        super().dispatch(batch)

    def finished_reports(self, timeout_s: float = 0.0) -> dict[str, PromptReport]:
        assert threading.current_thread().name == "background-generation"
        time.sleep(0.001)
        return super().finished_reports() if self.may_answer.wait(timeout_s) else {}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Makes curricula on a slow engine, and ends them after the test."""
    store, curricula = StoredRows(monkeypatch), []

    def make(*overrides: str, passes: Any = lambda index, session: session % 2 == index % 2) -> Any:
        with initialize_config_dir(str(ROOT / "configs"), version_base=None):
            config = compose("fast_dapo", overrides=[*SEPARATE, *overrides])
        resolve_group_size(config)
        trainer = QuietTrainer(config, tmp_path, SlowEngine(passes))
        curricula.append(Curriculum(trainer))
        return curricula[-1], trainer, store

    yield make
    for curriculum in curricula:
        curriculum.end()


def _make_step(curriculum: Curriculum, trainer: QuietTrainer, store: StoredRows) -> list[str]:
    """Make two updates and serve the new weights; returns the keys that were trained on."""
    keys: list[str] = []
    for trainer.local_trigger_step in (0, 1):
        batch = curriculum.collect(3)
        keys += batch.keys
    curriculum.count(batch, {}, RunTotals())
    store.clear(keys, "train")
    trainer.global_steps += 1  # first: once the engine has the new weights, their rollouts arrive at once
    trainer.agent_loop_manager.version = trainer.global_steps - 1
    return keys


def test_every_update_gets_its_own_prompts_and_nothing_is_lost_or_doubled(made: Any):
    curriculum, trainer, store = made()
    trained: list[str] = []
    for _ in range(6):
        trained += _make_step(curriculum, trainer, store)
    assert len(trained) == len(set(trained)) == 6 * 2 * 3 * 16
    with curriculum.at_rest():
        controller = curriculum.controller
        prompts, rollouts = controller.conservation(), controller.rollout_conservation()
        assert prompts.pop("added") == sum(prompts.values())
        assert rollouts.pop("generated") == sum(rollouts.values())
        assert controller.live_names() <= set(store.tags("train")) | curriculum.prompt_rows.uids
        # The 3 prompts of an update, the other half of the step's batch (3), and one batch beyond (6).
        assert controller.settings.train_batch_size == 3
        assert controller.settings.num_under_way == 12


def test_reports_are_taken_and_prompts_continued_while_the_actor_is_trained(made: Any):
    curriculum, trainer, _ = made()
    engine = trainer.agent_loop_manager
    curriculum.collect(3)
    deadline = time.monotonic() + PATIENCE_S
    while curriculum.controller.num_in_flight:  # without being asked for a batch
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.may_answer.clear()
    before = engine.num_rollouts
    trainer.local_trigger_step = 1
    assert len(curriculum.collect(3).keys) == 3 * 16  # at once
    assert engine.num_rollouts == before  # with these weights enough is under way
    trainer.local_trigger_step, trainer.global_steps = 0, trainer.global_steps + 1
    assert len(curriculum.collect(3).keys) == 3 * 16
    assert engine.num_rollouts > before


def test_nothing_changes_while_a_checkpoint_is_written(made: Any):
    curriculum, _, store = made()
    curriculum.collect(3)
    with curriculum.at_rest():
        curriculum.before_checkpoint()
        saved = curriculum.state_dict()
        time.sleep(0.1)
        assert curriculum.state_dict() == saved
        assert curriculum.controller.live_uids() <= set(store.tags("train"))


def test_what_ends_the_thread_is_raised_where_rollouts_are_waited_for(made: Any):
    curriculum, trainer, _ = made()

    def fail(timeout_s: float) -> dict[str, PromptReport]:
        reports = SlowEngine.finished_reports(trainer.agent_loop_manager, timeout_s)
        return {uid: PromptReport(errors=["RuntimeError: no engine"]) for uid in reports}

    trainer.agent_loop_manager.finished_reports = fail
    with pytest.raises(GenerationFailedError, match="no engine"):
        curriculum.collect(3)
    with pytest.raises(GenerationFailedError, match="no engine"):
        curriculum.collect(3)


def test_where_nothing_qualifies_the_run_ends_with_a_checkpoint(made: Any):
    curriculum, trainer, _ = made("curriculum.max_num_gen_batches=2", passes=lambda index, session: False)
    with pytest.raises(CurriculumExhaustedError, match=r"A checkpoint was written to resume from\."):
        curriculum.collect(3)
    assert trainer.saved == [0]


def test_the_end_waits_for_no_report(made: Any):
    curriculum, trainer, _ = made()
    curriculum.collect(3)
    trainer.agent_loop_manager.may_answer.clear()
    began = time.monotonic()
    curriculum.end()
    assert time.monotonic() - began < PATIENCE_S


def test_nothing_is_waited_for_where_nothing_is_in_flight():
    changed = threading.Condition()
    background = BackgroundGeneration(
        changed, lambda: 0, lambda timeout_s: pytest.fail("nothing is in flight"), lambda _: None
    )
    with changed:
        background.wait_until(lambda: False)  # nothing is in flight, so nothing will arrive
    background.end()
    assert background._thread is not None
    assert not background._thread.is_alive()
