"""Sleep mode, an engine that is killed, and a run that is killed and resumed, on the real stack.

The engine wakes and sleeps only on an accelerator; the faults are those of docs/faults.md, which are tested on a CPU.
"""

import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil
from command_steps import dry_run, keep_metrics, python, saved_step, steps_of
from sessions import Setting, Table
from training_commands import training_command

STEPS = 4
SHORT = (
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=1",
    "trainer.max_actor_ckpt_to_keep=2",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
)
# In the name of the process of vLLM's engine.
ENGINE = "VLLM::"


class Faults(Table):
    """The steps, in order: each killed run is then resumed."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        if setting.is_toy:
            super().__init__(setting.state, {"dry run": lambda: dry_run(setting, "dry", SHORT)})
            return
        steps = {
            "sleep mode": self._sleep,
            "engine killed": lambda: self._kill("engine", kill_engine),
            "engine killed: resumed": lambda: self._resume("engine"),
            "run killed": lambda: self._kill("driver", kill_driver),
            "run killed: resumed": lambda: self._resume("driver"),
        }
        super().__init__(setting.state, steps)

    def _sleep(self) -> Any:
        """Used device memory over a run: with a sleeping engine it rises and falls with every step."""
        import torch  # which this job's other steps and its dry run do without

        used: list[int] = []

        def watch(_: Popen) -> None:
            free, total = torch.cuda.mem_get_info()
            used.append(total - free)

        run_dir = self._run_dir("sleep")
        ended = self._start("sleep", (*SHORT, "trainer.save_freq=-1"), watch)
        if ended is None or not ended.in_time:
            return None
        return {
            "code": ended.code,
            "steps": steps_of(run_dir),
            "used_bytes_every_half_second": used,
            "printed": ended.tail if ended.code else "",
        }

    def _kill(self, name: str, fault: Callable[[Popen], bool]) -> Any:
        """Cause the fault once after the first checkpoint, and record how the command ends."""
        run_dir, was_done = self._run_dir(name), False

        def watch(process: Popen) -> None:
            nonlocal was_done
            if not was_done and saved_step(run_dir) >= 1:
                was_done = fault(process)

        ended = self._start(name, SHORT, watch)
        if ended is None or not ended.in_time:
            return None
        return {"code": ended.code, "was_done": was_done, "saved_step": saved_step(run_dir), "printed": ended.tail}

    def _resume(self, name: str) -> Any:
        """Run the same command again: every step must be there once."""
        ended = self._start(name, SHORT)
        if ended is None or not ended.in_time:
            return None
        steps = steps_of(self._run_dir(name))
        return {
            "code": ended.code,
            "steps": steps,
            "is_whole": ended.code == 0 and steps == list(range(1, STEPS + 1)),
            "printed": ended.tail if ended.code else "",
        }

    def _start(self, name: str, overrides: Sequence[str], watch: Callable[[Popen], None] | None = None) -> Any:
        words = training_command(self._setting.device, self._setting.root, self._run_dir(name), overrides)
        ended = python(self._setting, words, name, watch)
        keep_metrics(self._setting, self._run_dir(name), name)
        return ended

    def _run_dir(self, name: str) -> Path:
        return self._setting.state / "runs" / name


def kill_engine(process: Popen) -> bool:
    """Kill the engine among the run's own processes; returns whether there was one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if ENGINE in " ".join(child.cmdline()):
                    child.send_signal(signal.SIGKILL)
                    return True
    return False


def kill_driver(process: Popen) -> bool:
    """Kill the command itself."""
    process.kill()
    return True


def make(setting: Setting) -> Faults:
    """At full size; as a toy only a dry run."""
    return Faults(setting)
