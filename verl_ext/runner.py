"""verl's task runner for a trainer that lives outside verl."""

import importlib
from typing import Any

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1

from verl_ext.compat import undecorated
from verl_ext.errors import RolloutEngineError


class SignalTaskRunner(undecorated(TaskRunnerV1)):
    """Imports `trainer_module`, which registers the trainer, in the process that looks it up; names engine failures."""

    def run(self, config: DictConfig) -> None:
        importlib.import_module(config.trainer_module)
        try:
            super().run(config)
        except Exception as error:
            named = name_engine_failure(self.trainer, error)
            raise named from (None if named is error else error)


def name_engine_failure(trainer: Any, error: Exception) -> Exception:
    """The engine's failure if there is one behind `error`, else `error` itself.

    A call may fail on a dead engine in many ways, and before the watchdog's next look.
    """
    watchdog = getattr(trainer, "watchdog", None)
    if watchdog is None:
        return error
    watchdog.stop()
    failure = watchdog.diagnose()
    return error if failure is None else RolloutEngineError(failure)


def remote_runner() -> Any:
    """The Ray actor class for `run_ppo(config, task_runner_class=…)`."""
    return ray.remote(SignalTaskRunner)
