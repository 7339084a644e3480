"""verl's task runner for a trainer that lives outside verl."""

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1 import register_trainer
from verl.utils.import_utils import load_class_from_fqn

from verl_ext.cluster import nodes as cluster
from verl_ext.cluster.pools import device_pools, has_several_nodes, num_ranks
from verl_ext.cluster.worker_death import explain_death, find_death
from verl_ext.core.compat import undecorated
from verl_ext.core.errors import RolloutEngineError, SignalError
from verl_ext.launch.sigterm import exit_on_sigterm
from verl_ext.run.checkpoints import prepare_resume
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile
from verl_ext.trainer import loading


class SignalTaskRunner(undecorated(TaskRunnerV1)):
    """Registers the trainer of `trainer_class` in the process that looks it up; reports engine failures."""

    def prepare(self, config: DictConfig) -> None:
        """Import the trainer; meanwhile start processes that take many seconds to import."""
        from verl_ext.serving import data_plane
        from verl_ext.serving.agent_loop import SignalAgentLoopManager

        with ThreadPoolExecutor(1) as thread:
            store = thread.submit(data_plane.start, config.transfer_queue)
            register(config)
            store.result()
        manager = config.actor_rollout_ref.rollout.agent.agent_loop_manager_class
        if manager and issubclass(load_class_from_fqn(manager), SignalAgentLoopManager):
            SignalAgentLoopManager.start_workers(config)

    def run(self, config: DictConfig) -> None:
        StatusFile(RunFolder(Path(config.run_dir)).status).doing("loading the trainer")
        self.prepare(config)
        cluster.check_nodes(device_pools(config))
        for name in cluster.release_recorded(RunFolder(Path(config.run_dir)).engine_ledger):
            print(f"cleaned up after a killed run: {name}")
        try:
            super().run(config)
        except Exception as error:
            named = name_failure(self.trainer, error)
            raise named from (None if named is error else error)


def register(config: DictConfig) -> None:
    """Give verl the trainer that `trainer_class` and `trainer.v1.trainer_mode` name, under one name for both."""
    mode = config.trainer.v1.trainer_mode
    # verl 0.9.1 logs a line there with an argument that loggers do not take, and hybrid_engine=false ends with it.
    logging.getLogger("verl.trainer.ppo.v1.trainer_separate_async").setLevel(logging.WARNING)
    name = f"{config.trainer_class} over {mode}"
    register_trainer(name)(loading.trainer_class(config).in_mode(mode))
    config.trainer.v1.trainer_mode = name


def verify_resume(config: DictConfig) -> None:
    """Let the nodes verify the checkpoint that the run resumes from, each a share of its files.

    Raises:
        CheckpointError: see `prepare_resume`; a newer damaged one is skipped with a warning.
    """
    from verl_ext.trainer.checkpointing import changed_by_nodes

    for warning in prepare_resume(config.trainer, num_ranks(config), changed_by_nodes):
        print(f"warning: {warning}", file=sys.stderr)


def name_failure(trainer: Any, error: Exception) -> Exception:
    """The failure of an engine or the death of a worker that caused `error`, otherwise `error` itself.

    A call may fail on a dead engine in many ways, before the watchdog's next check.
    """
    watchdog = getattr(trainer, "watchdog", None)
    if watchdog is not None:
        watchdog.stop()
        failure = watchdog.diagnose()
        if failure is not None:
            return RolloutEngineError(failure)
    death = None if isinstance(error, SignalError) else find_death(error)
    return error if death is None else explain_death(death)


class VerifiedRunner:
    """For `run_ppo(config, task_runner_class=…)`, which starts Ray and then the runner: in between, `verify_resume`.

    In the command's own process, where its warnings and errors are seen.

    Args:
        config: Configuration of the run.
        runner: A Ray actor class.
    """

    def __init__(self, config: DictConfig, runner: Any) -> None:
        self._config = config
        self._runner = runner

    def options(self, **options: Any) -> "VerifiedRunner":
        """Same as Ray's method."""
        return VerifiedRunner(self._config, self._runner.options(**options))

    def remote(self) -> Any:
        """Start the runner."""
        exit_on_sigterm()
        if has_several_nodes(self._config):
            verify_resume(self._config)
        if (logs := cluster.logs_folder()) is not None:
            print(f"logs of workers and engines: {logs}", file=sys.stderr)
            StatusFile(RunFolder(Path(self._config.run_dir)).status).change(logs=str(logs))
        return self._runner.remote()


def remote_runner() -> Any:
    """The Ray actor class of the task runner.

    It runs on the head node, whose loss ends the cluster anyway, so that losing any other node makes the trainer's
    calls fail; it has a name, so that `cluster.end_run` finds it.
    """
    return ray.remote(name=cluster.runner_name(), resources={"node:__internal_head__": 0.001})(SignalTaskRunner)
