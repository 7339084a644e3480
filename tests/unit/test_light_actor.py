"""A class that stands in for another: the same methods, without its module."""

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from verl_ext.cpu.light_actor import light_actor

HEAVY = """
class Heavy:
    def __init__(self, start, *, step):
        self.value, self._step = start, step

    def add(self, times=1):
        self.value += times * self._step
        return self.value

    async def add_later(self, times=1):
        return self.add(times)

    def _private(self):
        return None
"""

# Another process: takes the class, and prints whether the module is imported before and after it made an instance.
USE = """
import asyncio, pickle, sys
light = pickle.loads(sys.stdin.buffer.read())
print("heavy_module" in sys.modules)
instance = light(10, step=2)
print("heavy_module" in sys.modules, instance.add(3), asyncio.run(instance.add_later(times=2)))
"""


def test_the_module_is_imported_where_an_instance_is_made(tmp_path: Path, monkeypatch):
    (tmp_path / "heavy_module.py").write_text(HEAVY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import heavy_module  # type: ignore[import-not-found]

    light = light_actor(heavy_module.Heavy)
    sent = cloudpickle.dumps(light)
    result = subprocess.run(
        [sys.executable, "-c", USE],
        input=sent,
        capture_output=True,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).resolve().parents[2]}"},
        check=True,
    )
    assert result.stdout.decode().split() == ["False", "True", "16", "20"]
    # What distinguishes an actor with coroutines from one without, and its title.
    assert light.__name__ == "Heavy"
    assert inspect.iscoroutinefunction(light.add_later)
    assert not inspect.iscoroutinefunction(light.add)
    assert not hasattr(light, "_private")


def test_an_error_of_the_instance_is_the_callers():
    instance = light_actor(_Failing)()
    with pytest.raises(LookupError, match="of the instance"):
        instance.fail()
    with pytest.raises(LookupError, match="of the instance"):
        asyncio.run(instance.fail_later())


class _Failing:
    def fail(self) -> None:
        raise LookupError("of the instance")

    async def fail_later(self) -> None:
        self.fail()
