"""What a vLLM engine leaves behind when it is killed: processes and shared-memory segments, by name.

vLLM and Python unlink them only on a clean exit. The names are read from the memory maps of the engine's own
processes, so that nothing of another program is ever touched.
"""

import contextlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")
_SEGMENT_PREFIXES = ("psm_", "sem.mp-")

# What vLLM calls its processes: VLLM::EngineCore, VLLM::Worker. Others in the tree may name vLLM in an argument only.
_PROCESS_TITLE = "VLLM::"


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
    """Processes and shared-memory segments of one engine."""

    processes: list[EngineProcess] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)

    @classmethod
    def of_process_tree(cls, root: psutil.Process) -> "EngineResources":
        """The descendants of `root` that belong to vLLM, and the segments that any descendant maps."""
        processes, segments = [], set()
        for process in root.children(recursive=True):
            # It may end at any moment: between opening and reading its maps, too, which is a ProcessLookupError.
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError):
                segments.update(_mapped_segments(process.pid))
                title = " ".join(process.cmdline()) or process.name()
                if _PROCESS_TITLE in title:
                    processes.append(EngineProcess(process.pid, title[:60], process.create_time()))
        return cls(processes, sorted(segments))

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


def write_ledger(path: Path, resources: list[EngineResources]) -> None:
    """Record the resources of a run, so that a later start can release them should this one be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(entry) for entry in resources], indent=1), encoding="utf-8")


def release_ledger(path: Path) -> list[str]:
    """Release everything that a ledger records and remove it; a missing ledger means there is nothing to do.

    Returns:
        Names of what was left behind.
    """
    if not path.exists():
        return []
    released = []
    for entry in json.loads(path.read_text(encoding="utf-8")):
        processes = [EngineProcess(**process) for process in entry["processes"]]
        released += EngineResources(processes, entry["segments"]).release()
    path.unlink()
    return released
