"""Finds and removes leftovers of killed rollout engines: processes and shared-memory segments, by name.

Engines and Python unlink them only on a clean exit. The names are read from the memory maps of the run's own processes,
so that other programs are never touched.
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
# Python's shared memory and semaphores; joblib's semaphores, which vLLM has where scikit-learn is installed; verl's.
_SEGMENT_PREFIXES = ("psm_", "sem.mp-", "sem.loky-", "verl_weights_")

# Names of engine processes: VLLM::EngineCore, sglang::scheduler_TP0. Other processes may contain such a name only in an
# argument.
_PROCESS_TITLES = ("VLLM::", "sglang::")

# Ray's name for an idle worker.
_IDLE_TITLE = "ray::IDLE"

# Environment variable of every process of a run, on every node; the value is unique to the run.
RUN_VARIABLE = "VERL_SIGNAL_RUN"


@dataclass(frozen=True)
class EngineProcess:
    """A process, identified by id and creation time (seconds since the epoch), because ids are reused."""

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
        processes: the engines' processes.
        segments: names in /dev/shm.
        num_processes: number of busy processes, of an engine or not, except the one that counts.
        host: the host they are on; several hosts may share a run folder.
        node_id: Ray's node id.
        node: display name of the node.
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
        """The same for all processes on this host with the run's mark, including orphans."""
        return cls._of(psutil.process_iter(), run)

    @classmethod
    def of_raylet(cls, run: str) -> "EngineResources":
        """The same for the run's processes under the raylet that this process, a Ray worker, descends from."""
        raylet = psutil.Process().parent()
        return cls._of(raylet.children(recursive=True), run) if raylet is not None else cls()

    @classmethod
    def _of(cls, candidates: Iterable[psutil.Process], run: str | None = None) -> "EngineResources":
        processes, segments, count = [], set(), 0
        for process in candidates:
            # The process may end at any moment; between opening and reading its maps this raises ProcessLookupError.
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
        """Kill the remaining processes and unlink the remaining segments.

        Returns:
            Names of the processes and segments removed.
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
    # By inode: the C library creates a semaphore under a temporary name, which the creator's memory map keeps showing.
    # A directory entry has the inode: asking the file would fail if it vanished meanwhile, and miss this process.
    with os.scandir(SHARED_MEMORY) as entries:
        names = {entry.inode(): entry.name for entry in entries}
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    inodes = {int(line.split()[4]) for line in maps if f" {SHARED_MEMORY}/" in line}
    return {names[inode] for inode in inodes & names.keys() if names[inode].startswith(_SEGMENT_PREFIXES)}


def _is_marked(process: psutil.Process, run: str) -> bool:
    # Other users' processes cannot be read.
    with contextlib.suppress(PermissionError):
        return f"{RUN_VARIABLE}={run}".encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return False


def write_ledger(path: Path, resources: list[EngineResources]) -> None:
    """Record the resources of a run, so that a later start can release them if this one is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(entry) for entry in resources], indent=1), encoding="utf-8")


def read_ledger(path: Path) -> list[EngineResources]:
    """The content of a ledger; empty if it is missing."""
    if not path.exists():
        return []
    entries = json.loads(path.read_text(encoding="utf-8"))
    for entry in entries:
        entry["processes"] = [EngineProcess(**process) for process in entry["processes"]]
    return [EngineResources(**entry) for entry in entries]


def release_recorded(recorded: Iterable[EngineResources]) -> list[str]:
    """Release the recorded resources of this host: process ids and shared-memory names are local to a host.

    Returns:
        Names of the leftovers.
    """
    host = socket.gethostname()
    return [name for entry in recorded if entry.host == host for name in entry.release()]


def release_ledger(path: Path) -> list[str]:
    """Release a ledger's resources of this host, and remove the ledger; without a ledger, do nothing.

    Returns:
        Names of the leftovers.
    """
    released = release_recorded(read_ledger(path))
    path.unlink(missing_ok=True)
    return released


def release_run(run: str, recorded: Iterable[EngineResources], patience_s: float = 15.0) -> list[str]:
    """Release the resources of a finished run on this host, both found and recorded.

    Args:
        run: its mark.
        recorded: recorded resources of all hosts.
        patience_s: seconds for its engines' servers to end, as they do with the trainer; a server whose engine ends
            first logs an error.

    Returns:
        Names of the leftovers.
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
