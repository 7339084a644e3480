"""The real stack on a pretrained model and real word problems: Fast DAPO, verl's dynamic sampling, uniform sampling.

A run that is interrupted continues from its checkpoint on the same machine. Checkpoints are not copied back: on a fresh
machine it starts again, so a run is short enough for one call.
"""

from typing import Any

from command_steps import dry_run, figures_of, keep_metrics, python
from sessions import Setting, Table
from training_commands import METHODS, training_command

COMMON = (
    "trainer.save_freq=10",
    # A validation takes seconds here: all of the problems.
    "data.val_max_samples=300",
)


class Training(Table):
    """One step per method: its whole run."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        super().__init__(setting.state, {name: lambda name=name: self._run(name) for name in METHODS})

    def _run(self, name: str) -> Any:
        overrides = [*METHODS[name], *COMMON]
        if self._setting.is_toy:
            return dry_run(self._setting, name, overrides)
        run_dir = self._setting.state / "runs" / name
        ended = python(
            self._setting, training_command(self._setting.device, self._setting.root, run_dir, overrides), name
        )
        keep_metrics(self._setting, run_dir, name)
        if ended is None or not ended.in_time:
            return None
        if ended.code:
            return {"failed": ended.code, "printed": ended.tail}
        return {"seconds_of_this_call": ended.seconds, **figures_of(run_dir)}


def make(setting: Setting) -> Training:
    """At full size; as a toy only the dry runs."""
    return Training(setting)
