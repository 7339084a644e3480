"""Hydra creates the run's folder before the program begins: this explains a failure."""

import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from verl_ext.launch.preflight.machine import output_problem


class OutputFolder(Callback):
    """Ends the program with one sentence instead of Hydra's traceback; registered in `hydra.callbacks`."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        folder = str(config.hydra.run.dir)
        problem = output_problem(folder)
        if problem is None:
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)  # as Hydra would do next
            except OSError as error:
                problem = f"cannot be made ({error.strerror or error}): name another folder"
        if problem is not None:
            # Hydra turns an Exception of a callback into a warning.
            print(f"\nerror: run_dir={folder}: {problem}", file=sys.stderr)
            sys.exit(1)
