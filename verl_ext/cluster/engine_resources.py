"""What a rollout engine leaves behind when it is killed: processes and shared-memory segments, by name.

Engines and Python unlink them only on a clean exit. The names are read from the memory maps of the run's own processes,
so that nothing of another program is ever touched.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")
_SEGMENT_PREFIXES = ("psm_", "sem.mp-", "verl_weights_")

# What engines call their processes: VLLM::EngineCore, sglang::scheduler_TP0. Others may name one in an argument only.
_PROCESS_TITLES = ("VLLM::", "sglang::")

# What Ray calls a worker that waits for work.
_IDLE_TITLE = "ray::IDLE"

# In the environment of every process of a run, on every node; the value is the run's own.
RUN_VARIABLE = "VERL_SIGNAL_RUN"


@dataclass(frozen=True)
class EngineProcess:
    """A process, identified beyond the reuse of its id by when it was created (seconds since the epoch)."""

    pid: int
    name: str
    create_time: float

    def find(self) -> psutil.Process | None:
        """The live process, or None if it ended (a zombie has ended)."""
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.create_time) > 0.01 or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process


@dataclass(frozen=True)
class EngineResources:
    """Processes and shared-memory segments of the engines on one node.

    Args:
        processes: the engines' own.
        segments: names in /dev/shm.
        num_processes: that do something, of an engine or not, beside the one that looks.
        host: whose processes and shared memory these are; a run folder is often seen by several.
        node_id: Ray's.
        node: its name for people.
    """

    processes: list[EngineProcess] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    num_processes: int = 0
    host: str = field(default_factory=socket.gethostname)
    node_id: str = ""
    node: str = ""

    @classmethod
    def of_process_tree(cls, root: psutil.Process) -> "EngineResources":
        """The descendants of `root` that belong to an engine, and the segments that any descendant maps."""
        return cls._of(root.children(recursive=True))

    @classmethod
    def of_run(cls, run: str) -> "EngineResources":
        """The same of all processes on this host that carry the run's mark, orphans included."""
        return cls._of(psutil.process_iter(), run)

    @classmethod
    def of_raylet(cls, run: str) -> "EngineResources":
        """The same of the run's processes under the raylet that this process, a Ray worker, descends from."""
        raylet = psutil.Process().parent()
        return cls._of(raylet.children(recursive=True), run) if raylet is not None else cls()

    @classmethod
    def _of(cls, candidates: Iterable[psutil.Process], run: str | None = None) -> "EngineResources":
        processes, segments, count = [], set(), 0
        for process in candidates:
            # It may end at any moment: between opening and reading its maps, too, which is a ProcessLookupError.
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError):
                if run is not None and not _is_marked(process, run):
                    continue
                segments.update(_mapped_segments(process.pid))
                title = " ".join(process.cmdline()) or process.name()
                if any(engine in title for engine in _PROCESS_TITLES):
                    processes.append(EngineProcess(process.pid, title[:60], process.create_time()))
                count += process.pid != os.getpid() and not title.startswith(_IDLE_TITLE)
        return cls(processes, sorted(segments), count)

    def gone_processes(self) -> list[str]:
        """Descriptions of the processes that no longer run."""
        return [f"{process.name} (pid {process.pid})" for process in self.processes if process.find() is None]

    def release(self) -> list[str]:
        """Kill the processes and unlink the segments that are left.

        Returns:
            Names of what was left and is gone now.
        """
        released = []
        for recorded in self.processes:
            process = recorded.find()
            if process is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                    process.wait(timeout=10)
                released.append(f"process {recorded.pid} ({recorded.name})")
        for name in self.segments:
            path = SHARED_MEMORY / name
            if path.exists():
                path.unlink(missing_ok=True)
                released.append(f"shared memory {name}")
        return released


def _mapped_segments(pid: int) -> set[str]:
    # By inode: the C library makes a semaphore under a temporary name, which the map of its maker shows for ever.
    names = {path.stat().st_ino: path.name for path in SHARED_MEMORY.iterdir()}
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    inodes = {int(line.split()[4]) for line in maps if f" {SHARED_MEMORY}/" in line}
    return {names[inode] for inode in inodes & names.keys() if names[inode].startswith(_SEGMENT_PREFIXES)}


def _is_marked(process: psutil.Process, run: str) -> bool:
    # Of other users' processes nothing can be read.
    with contextlib.suppress(PermissionError):
        return f"{RUN_VARIABLE}={run}".encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return False


def write_ledger(path: Path, resources: list[EngineResources]) -> None:
    """Record the resources of a run, so that a later start can release them should this one be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(entry) for entry in resources], indent=1), encoding="utf-8")


def read_ledger(path: Path) -> list[EngineResources]:
    """What a ledger records; a missing one records nothing."""
    if not path.exists():
        return []
    entries = json.loads(path.read_text(encoding="utf-8"))
    for entry in entries:
        entry["processes"] = [EngineProcess(**process) for process in entry["processes"]]
    return [EngineResources(**entry) for entry in entries]


def release_recorded(recorded: Iterable[EngineResources]) -> list[str]:
    """Release what is recorded of this host: process ids and names in shared memory mean others elsewhere.

    Returns:
        Names of what was left behind.
    """
    host = socket.gethostname()
    return [name for entry in recorded if entry.host == host for name in entry.release()]


def release_ledger(path: Path) -> list[str]:
    """Release what a ledger records of this host, and remove it; a missing ledger means there is nothing to do.

    Returns:
        Names of what was left behind.
    """
    released = release_recorded(read_ledger(path))
    path.unlink(missing_ok=True)
    return released


def release_run(run: str, recorded: Iterable[EngineResources], patience_s: float = 15.0) -> list[str]:
    """Release what a run that is over has on this host, and what is recorded of it.

    Args:
        run: its mark.
        recorded: of all hosts.
        patience_s: seconds for its engines' servers to end, as they do with the trainer; an engine that ends before
            its server makes the server complain.

    Returns:
        Names of what was left behind.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and any(_has_server(entry) for entry in EngineResources.of_run(run).processes):
        time.sleep(0.2)
    return EngineResources.of_run(run).release() + release_recorded(recorded)


def _has_server(engine: EngineProcess) -> bool:
    process = engine.find()
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent() if process is not None else None
        return parent is not None and " ".join(parent.cmdline()).startswith("ray::")
    return False
