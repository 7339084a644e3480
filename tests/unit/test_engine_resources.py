"""Processes and shared memory of a killed run are found by name and released; nothing else is touched."""

import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import psutil
import pytest

from verl_ext.cpu.engine_resources import SHARED_MEMORY, EngineProcess, EngineResources, release_ledger, write_ledger

# Holds a segment the way vLLM does: made by a process whose title names vLLM, never unlinked.
HOLDER = """
import multiprocessing, sys, time
from multiprocessing import resource_tracker, shared_memory
segment = shared_memory.SharedMemory(create=True, size=64)
lock = multiprocessing.get_context("spawn").Lock()
resource_tracker.unregister(segment._name, "shared_memory")
print(segment.name, lock._semlock.name.strip("/"), flush=True)
time.sleep(60)
"""


@pytest.fixture
def engine():
    process = subprocess.Popen([sys.executable, "-c", HOLDER, "VLLM::Worker"], stdout=subprocess.PIPE, text=True)
    segment, semaphore = process.stdout.readline().split()
    yield process, segment, f"sem.{semaphore}"
    process.kill()
    process.wait()
    (SHARED_MEMORY / segment).unlink(missing_ok=True)


def _resources_of(process: subprocess.Popen) -> EngineResources:
    return EngineResources.of_process_tree(psutil.Process())


@pytest.mark.parametrize("error", [ProcessLookupError, FileNotFoundError])
def test_a_process_that_ends_while_it_is_looked_at_is_passed_over(engine, monkeypatch, error):
    def gone(pid: int) -> set[str]:
        raise error(f"no process {pid}")

    monkeypatch.setattr("verl_ext.cpu.engine_resources._mapped_segments", gone)
    assert EngineResources.of_process_tree(psutil.Process()) == EngineResources()


def test_the_engines_processes_and_segments_are_found(engine):
    process, segment, semaphore = engine
    resources = _resources_of(process)
    assert process.pid in [entry.pid for entry in resources.processes]
    assert {segment, semaphore} <= set(resources.segments)


def test_a_killed_engine_is_named_and_its_memory_released(engine, tmp_path: Path):
    process, segment, _ = engine
    resources = _resources_of(process)
    write_ledger(tmp_path / "ledger.json", [resources])
    process.kill()
    process.wait()
    assert any(str(process.pid) in name for name in resources.gone_processes())
    assert (SHARED_MEMORY / segment).exists()
    released = release_ledger(tmp_path / "ledger.json")
    assert f"shared memory {segment}" in released
    assert not (SHARED_MEMORY / segment).exists()
    assert release_ledger(tmp_path / "ledger.json") == []


def test_a_process_that_outlived_its_run_is_ended(engine, tmp_path: Path):
    process, _, _ = engine
    write_ledger(tmp_path / "ledger.json", [_resources_of(process)])
    release_ledger(tmp_path / "ledger.json")
    process.wait(timeout=5)
    assert process.returncode is not None


def test_memory_of_others_is_left_alone(engine, tmp_path: Path):
    process, _, _ = engine
    write_ledger(tmp_path / "ledger.json", [_resources_of(process)])
    other = shared_memory.SharedMemory(create=True, size=64)
    try:
        release_ledger(tmp_path / "ledger.json")
        assert (SHARED_MEMORY / other.name).exists()
    finally:
        other.close()
        other.unlink()


def test_a_reused_process_id_is_not_mistaken_for_the_old_process():
    impostor = EngineProcess(psutil.Process().pid, "VLLM::Worker", time.time() - 10_000)
    assert impostor.find() is None
    assert EngineResources([impostor]).release() == []
