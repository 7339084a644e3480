"""Resource limits of programs, and the isolation layers that must hold before any program runs.

The fork server also imports this module, so it uses only the standard library.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from verl_ext.core.errors import ConfigError, SignalError

LAYERS = {
    "namespaces": "mount, process, network, IPC and host name (and user, for an ordinary user) separate namespaces",
    "new_root": "a read-only root with only the standard library and, if requested, numpy",
    "no_privileges": "no capabilities, no new privileges, not dumpable, and user nobody if started by root",
    "landlock_files": "Landlock: reading the same library folders and no other file",
    "landlock_network": "Landlock: no TCP bind and connect (ABI 4)",
    "landlock_scopes": "Landlock: no signal to, no abstract Unix socket of, processes outside (ABI 6)",
    "rlimits": "limits of CPU time, memory, file size, descriptors and processes",
    "seccomp": "a list of allowed system calls and arguments: no new process or thread, socket, signal to another "
    "process, write access, tracing",
}

# At least one layer of each group must hold. If namespaces are blocked (containers, some distributions), seccomp blocks
# processes, sockets and signals, and Landlock the files: this pair stopped all attacks on a prototype, and so did
# namespaces with a new root.
LEVELS: dict[str, tuple[tuple[str, ...], ...]] = {
    "full": tuple((layer,) for layer in LAYERS),
    "minimum": (("no_privileges",), ("rlimits",), ("seccomp",), ("new_root", "landlock_files")),
}

OK = "ok"


class SandboxUnavailableError(SignalError):
    """The machine cannot provide the isolation of `require`, or the sandbox cannot start at all."""


@dataclass(frozen=True)
class SandboxPolicy:
    """Limits of one execution (one program on one input) and the isolation it must have.

    Attributes:
        cpu_seconds: CPU time, checked by the fork server and, rounded up, enforced by the kernel.
        wall_seconds: Wall-clock time that an execution may take. A waiting program is ended a tenth (at least a second)
            earlier, a server that does not answer is replaced then. Well above `cpu_seconds`, so that good programs do
            not time out on a busy machine.
        memory_mib: Address space in addition to that of the interpreter and its libraries before the program starts.
        output_bytes: Limit of printed output, enforced by the kernel.
        source_bytes: Maximum length of the program; a longer one is `forbidden` and does not run.
        start_seconds: Time for a fork server to start.
        require: A key of LEVELS: "minimum" or "full". Nothing runs with less.
        leave_out: Layers not to apply, for tests and for machines where one causes problems. They count as unavailable.
    """

    cpu_seconds: float = 2.0
    wall_seconds: float = 30.0
    memory_mib: int = 512
    output_bytes: int = 65536
    source_bytes: int = 65536
    start_seconds: float = 120.0
    require: str = "minimum"
    leave_out: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        limits = {
            "cpu_seconds": self.cpu_seconds,
            "wall_seconds": self.wall_seconds,
            "memory_mib": self.memory_mib,
            "output_bytes": self.output_bytes,
            "source_bytes": self.source_bytes,
            "start_seconds": self.start_seconds,
        }
        bad = {name: value for name, value in limits.items() if not (math.isfinite(value) and value > 0)}
        if bad:
            raise ConfigError(f"sandbox limits must be above 0 and finite, got {bad}")
        if self.source_bytes > 131072:  # source and input must fit into a socket's buffer, or the sender might block
            raise ConfigError(f"sandbox.source_bytes must be at most 131072, got {self.source_bytes}")
        if self.require not in LEVELS:
            raise ConfigError(f"sandbox.require must be one of {sorted(LEVELS)}, got {self.require!r}")
        unknown = set(self.leave_out) - set(LAYERS)
        if unknown:
            raise ConfigError(f"sandbox.leave_out names no layer: {sorted(unknown)}; the layers are {sorted(LAYERS)}")


def missing_layers(isolation: Mapping[str, str], require: str) -> list[str]:
    """Layers that `require` needs and `isolation` lacks, one sentence per group; empty if none is missing."""
    return [
        " or ".join(f"{layer} ({isolation.get(layer, 'not reported')})" for layer in group)
        for group in LEVELS[require]
        if not any(isolation.get(layer) == OK for layer in group)
    ]


def default_workers() -> int:
    """One execution per CPU that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
