"""Runs command lines one after the other, each in a process forked from one that has imported the heavy libraries.

As a program, it reads one JSON object per line (`arguments` after `python -m`, environment `variables`) and answers
with one (`code`, `printed`, `seconds` of processor time). Apart from the imports, a command sees what it would see in
its own Python process: 60 commands take one minute instead of ten.
"""

import importlib
import json
import os
import resource
import runpy
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

ROOT = Path(__file__).resolve().parents[3]

# Modules that most commands import, less those that these import; none registers what only some commands would know.
IMPORTED = (
    "recipe.tracin.model_check",
    "scipy.optimize",
    "sentencepiece",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "verl.experimental.reward_loop.reward_manager",
    "verl.trainer.main_ppo",
    "verl_ext.launch.train",
    "verl_ext.trainer.trainer",
)


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, standard output and error in their order, processor seconds after the imports."""

    code: int
    printed: str
    seconds: float


class CommandServer:
    """The process that commands are forked from.

    Args:
        platform: verl's platform, which it chooses once per process: "cpu", or "" for its own choice.
    """

    def __init__(self, platform: str = "") -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "VERL_USE_EXTERNAL_MODULES": "verl_ext.plugin"}
        environment |= {"HF_HUB_OFFLINE": "1", "VERL_PLATFORM": platform}
        if not platform:
            del environment["VERL_PLATFORM"]  # the tests' own
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def run(self, arguments: list[str], **variables: str) -> Ended:
        """Run `python -m ARGUMENTS`, and return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": arguments, "variables": variables}) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)  # it frees everything that it imported, which takes long on a busy machine


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")  # libraries print while they are imported
    os.dup2(2, 1)
    for name in IMPORTED:
        importlib.import_module(name)
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        compose("fast_dapo")  # Hydra looks for its plugins once per process
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
            before = _processor_seconds()
            if (child := os.fork()) == 0:
                _run(printed.fileno(), **request)
            _, status = os.waitpid(child, 0)
            printed.seek(0)
            ended = {"code": os.waitstatus_to_exitcode(status), "printed": printed.read()}
        print(json.dumps(ended | {"seconds": _processor_seconds() - before}), file=answers, flush=True)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(output: int, arguments: list[str], variables: dict[str, str]) -> Any:
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(variables)
    code: Any = 0
    try:
        sys.argv = list(arguments)
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _serve()
