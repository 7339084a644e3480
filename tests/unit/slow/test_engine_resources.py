"""Processes and shared memory of a killed run are found by name and released; nothing else is touched."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import shared_memory
from pathlib import Path

import psutil
import pytest

from verl_ext.cluster import nodes as cluster
from verl_ext.cluster.engine_resources import (
    RUN_VARIABLE,
    SHARED_MEMORY,
    EngineProcess,
    EngineResources,
    read_ledger,
    release_ledger,
    release_run,
    write_ledger,
)
from verl_ext.launch import launch
from verl_ext.run.run_folder import RunFolder

# Holds a segment as vLLM does: created by a process whose title names vLLM, and never unlinked; and a semaphore with a
# name of joblib's, as vLLM does where scikit-learn is installed.
HOLDER = """
import multiprocessing, os, sys, time
from _multiprocessing import SemLock
from multiprocessing import resource_tracker, shared_memory
segment = shared_memory.SharedMemory(create=True, size=64)
lock = multiprocessing.get_context("spawn").Lock()
resource_tracker.unregister(segment._name, "shared_memory")
of_joblib = SemLock(0, 1, 1, f"/loky-{os.getpid()}-test", False)
print(segment.name, lock._semlock.name.strip("/"), of_joblib.name.strip("/"), flush=True)
time.sleep(60)
"""


# The mark of the run that the engine belongs to.
RUN = "0123"


@pytest.fixture
def engine():
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "VLLM::Worker"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {RUN_VARIABLE: RUN},
    )
    segment, of_python, of_joblib = process.stdout.readline().split()
    yield process, segment, {f"sem.{of_python}", f"sem.{of_joblib}"}
    process.kill()
    process.wait()
    # Python's own is removed by Python.
    for name in (segment, f"sem.{of_joblib}"):
        (SHARED_MEMORY / name).unlink(missing_ok=True)


def _resources_of(process: subprocess.Popen) -> EngineResources:
    return EngineResources.of_process_tree(psutil.Process())


@pytest.mark.parametrize("error", [ProcessLookupError, FileNotFoundError])
def test_a_process_that_ends_while_it_is_looked_at_is_passed_over(engine, monkeypatch, error):
    def gone(pid: int) -> set[str]:
        raise error(f"no process {pid}")

    monkeypatch.setattr("verl_ext.cluster.engine_resources._mapped_segments", gone)
    assert EngineResources.of_process_tree(psutil.Process()) == EngineResources()


def test_the_engines_processes_and_segments_are_found(engine):
    process, segment, semaphores = engine
    resources = _resources_of(process)
    assert process.pid in [entry.pid for entry in resources.processes]
    assert {segment, *semaphores} <= set(resources.segments)


def test_a_name_that_leads_nowhere_hides_no_process(engine):
    """As one that vanishes between the listing and a look at its file."""
    process, segment, _ = engine
    name = SHARED_MEMORY / f"verl_signal_test_{process.pid}"
    name.symlink_to("missing")
    try:
        resources = _resources_of(process)
    finally:
        name.unlink()
    assert process.pid in [entry.pid for entry in resources.processes]
    assert segment in resources.segments


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


def test_a_runs_engines_are_known_by_its_mark_and_nobody_elses_are_touched(engine):
    """On a shared cluster, engines descend from Ray, next to those of other runs; orphans have no parent."""
    process, segment, semaphores = engine
    found = EngineResources.of_run(RUN)
    assert [entry.pid for entry in found.processes] == [process.pid]
    assert set(found.segments) == {segment, *semaphores}
    # A mark that only begins like it belongs to another run.
    for other in (RUN[:-1], RUN + "4"):
        assert EngineResources.of_run(other) == EngineResources()
        assert release_run(other, []) == []
    assert process.poll() is None
    assert any(f"process {process.pid}" in name for name in release_run(RUN, []))
    assert process.wait(timeout=5) is not None
    assert not (SHARED_MEMORY / segment).exists()


def test_an_engine_is_released_when_its_server_has_ended():
    """A server complains if its engine is killed while it is running."""
    engine = f"[{sys.executable!r}, '-c', {HOLDER!r}, 'VLLM::Worker']"
    child = f"subprocess.Popen({engine}, stdout=subprocess.DEVNULL).wait()"
    server = subprocess.Popen(
        ["ray::Server", "-c", f"import subprocess; {child}"], executable=sys.executable, env={RUN_VARIABLE: "server"}
    )
    try:
        deadline = time.monotonic() + 20
        while len(EngineResources.of_run("server").segments) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        found = EngineResources.of_run("server")
        released: list[str] = []
        cleaning = threading.Thread(target=lambda: released.extend(release_run("server", [], patience_s=60)))
        cleaning.start()
        time.sleep(1)
        assert found.gone_processes() == released == []
        server.kill()
        server.wait()
        cleaning.join(timeout=20)
        assert any(found.segments[0] in name for name in released)
        assert found.gone_processes()
    finally:
        server.kill()
        server.wait()


def test_what_another_host_recorded_is_left_alone(engine, tmp_path: Path):
    """A run folder is on a file system that all nodes share; on another node, a process id means another process."""
    process, segment, _ = engine
    elsewhere = replace(_resources_of(process), host="elsewhere", node_id="1f", node="elsewhere (10.0.0.2)")
    write_ledger(tmp_path / "ledger.json", [elsewhere])
    assert read_ledger(tmp_path / "ledger.json") == [elsewhere]
    assert release_ledger(tmp_path / "ledger.json") == []
    assert process.poll() is None
    assert (SHARED_MEMORY / segment).exists()


def test_the_end_of_a_run_releases_what_an_engine_that_is_gone_has_left(
    engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its maps can no longer be read, but the ledger has the names."""
    process, segment, semaphores = engine
    folder = RunFolder(tmp_path)
    write_ledger(folder.engine_ledger, [_resources_of(process)])
    process.kill()
    process.wait(timeout=5)
    monkeypatch.setenv(RUN_VARIABLE, RUN)
    monkeypatch.setattr(cluster, "owns_cluster", lambda: True)
    launch._end(folder, None)
    assert not (SHARED_MEMORY / segment).exists()
    assert not [name for name in semaphores if (SHARED_MEMORY / name).exists()]
    assert not folder.engine_ledger.exists()
