"""verl, vLLM, TransferQueue, Ray and tensordict are what our code was written against.

When a new version changes something, the failing line says what it was, what it is, and where we use it.
"""

import inspect
import json
import shutil
from pathlib import Path

from contract import (
    ROOT,
    SNAPSHOT,
    against,
    config_differences,
    described,
    differences,
    read_defaults,
    verl_config,
)
from contract_library import Libraries, folder_of
from contract_uses import collect

REGENERATE = "run `make contract`, read what it changed in tests/compat/contract.json, and commit it"
CONTRACT = json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_the_libraries_are_what_our_code_was_written_against():
    problems = [
        *differences(CONTRACT["names"], collect(ROOT), Libraries()),
        *config_differences(CONTRACT["configuration"], verl_config()),
    ]
    assert not problems, "\n".join([f"{len(problems)} differ from {CONTRACT['versions']}:", *problems])


def test_the_contract_covers_everything_that_our_code_uses():
    used = {
        "names": set(described(collect(ROOT), Libraries())),
        "configuration": set(read_defaults(verl_config())[0]),
    }
    for section, names in used.items():
        assert not names - set(CONTRACT[section]), f"{section} of the libraries that are new to us: {REGENERATE}"
        assert not set(CONTRACT[section]) - names, f"{section} of the libraries that we no longer use: {REGENERATE}"
    assert len(used["names"]) > 200


def _library(folder: Path, source: str) -> Libraries:
    (folder / "ray").mkdir(parents=True)
    (folder / "ray/__init__.py").write_text("from .core import *\n")
    (folder / "ray/core.py").write_text(source)
    return Libraries({"ray": folder / "ray"})


def test_another_release_is_compared_without_installing_it(tmp_path: Path):
    """A copy of the installed release, and one with a renamed method."""
    for name in ("same", "other"):
        shutil.copytree(folder_of("verl"), tmp_path / name / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    trainer = tmp_path / "other/verl/trainer/ppo/v1/trainer_base.py"
    trainer.write_text(trainer.read_text().replace("def prepare_step", "def begin_step"))
    assert against(tmp_path / "same") == []
    (line,) = (line for line in against(tmp_path / "other") if "PPOTrainer.prepare_step" in line)
    assert "used in verl_ext/trainer/trainer.py" in line


OLD = """
def get(ref, timeout: float = 1.0): ...
class Trainer:
    def __init__(self, config):
        self.queue = config
    def step(self, metrics): ...
    def fit(self): ...
"""
USER = """
import ray
RELIES_ON = {"self.queue": "ray.Trainer"}
class Mine(ray.Trainer):
    def step(self, metrics):
        super().step(metrics)
        ray.get(self.queue, timeout=2)
        self.queue.fit()
    def own(self): ...
"""


def test_a_library_that_changes_is_named_with_what_it_was_and_where_we_use_it(tmp_path: Path):
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe/mine.py").write_text(USER)
    uses = collect(tmp_path)
    snapshot = described(uses, _library(tmp_path / "old", OLD))
    assert snapshot == {
        "ray": "module",
        "ray.Trainer": "class(self, config)",
        "ray.Trainer.fit": "def(self)",
        "ray.Trainer.queue": "attribute",
        "ray.Trainer.step": "def(self, metrics)",
        "ray.get": "def(ref, timeout=1.0)",
    }
    new = OLD.replace("timeout:", "seconds:").replace("def fit", "def run").replace("self, metrics", "self, timing")
    assert list(differences(snapshot, uses, _library(tmp_path / "new", new))) == [
        "ray.get: it takes no timeout but (ref, seconds: float=1.0); used in recipe/mine.py:7",
        "ray.Trainer.fit: expected def(self), got nothing; used in recipe/mine.py:8",
        "ray.Trainer.step: expected def(self, metrics), got def(self, timing); "
        "used in recipe/mine.py:5, recipe/mine.py:6",
        "ray.get: expected def(ref, timeout=1.0), got def(ref, seconds=1.0); used in recipe/mine.py:7",
    ]


def test_a_default_of_the_configuration_that_changes_is_named():
    config = verl_config()
    config["trainer"]["nnodes"] = 2
    (line,) = config_differences(CONTRACT["configuration"], config)
    assert line.startswith("verl's configuration, trainer.nnodes: expected 1, got 2; used in ")
    assert ".py:" in line


def test_ray_actor_classes_still_give_up_their_plain_class():
    from verl.trainer.main_ppo import TaskRunnerV1
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from verl_ext.core.compat import undecorated

    assert hasattr(undecorated(TaskRunnerV1), "init_agent_loop_manager")
    for name in ("_run_prompt", "_run_agent_loop", "_agent_loop_postprocess", "generate_sequences"):
        assert hasattr(undecorated(AgentLoopWorkerTQ), name)


def test_agent_loop_reads_the_number_of_rollouts_from_the_batch_and_passes_unknown_fields_on():
    """`__rollout_n__` and the pass-through of `__first_session__` are conventions, not signatures."""
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from verl_ext.core.compat import undecorated

    source = inspect.getsource(undecorated(AgentLoopWorkerTQ)._run_prompt)
    assert 'prompt.pop("__rollout_n__"' in source
    assert "session_id=i, **prompt" in source


def test_the_timers_that_ours_are_within_are_still_verls():
    """`SignalTrainer` renames verl's `gen`, and subtracts its own seconds from the other two."""
    import re

    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer._step_once)
    within = dict(re.findall(r'marked_timer\("(\w+)".*?\n(.*?)(?=\n\s*\n|\Z)', source, re.DOTALL))
    assert "self.replay_buffer.sample(" in within["gen"]
    assert "self._compute_old_log_prob(" in within["old_log_prob"]
    assert "self._update_actor(" in within["update_actor"]


def test_the_data_is_there_before_a_checkpoint_is_loaded():
    """Parts are set up with the data, and must exist when their state is loaded."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer._setup)
    assert source.index("self._init_dataloader()") < source.index("self._load_checkpoint()")
