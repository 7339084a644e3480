"""What a program may use, and which layers of isolation must hold before any program runs.

The fork server reads this module too, so it imports nothing beyond the standard library.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from verl_ext.core.errors import ConfigError, SignalError

LAYERS = {
    "namespaces": "mount, process, network, IPC and host name (and user, for an ordinary user) namespaces of its own",
    "new_root": "a read-only root that holds the standard library and, where asked for, numpy; nothing else exists",
    "no_privileges": "no capabilities, no new privileges, not dumpable, and user nobody where it was started by root",
    "landlock_files": "Landlock: reading the same library folders and no other file",
    "landlock_network": "Landlock: no TCP bind and connect (ABI 4)",
    "landlock_scopes": "Landlock: no signal to, no abstract Unix socket of, processes outside (ABI 6)",
    "rlimits": "limits of processor time, memory, file size, descriptors and processes",
    "seccomp": "a list of allowed system calls and arguments: no new process or thread, socket, signal to another "
    "process, write access, tracing",
}

# Of each group at least one layer must hold. Where namespaces are blocked (containers, some distributions), seccomp
# keeps processes, sockets and signals away and Landlock the files: a prototype's attacks were all stopped by that
# pair alone, and by namespaces with a new root alone.
LEVELS: dict[str, tuple[tuple[str, ...], ...]] = {
    "full": tuple((layer,) for layer in LAYERS),
    "minimum": (("no_privileges",), ("rlimits",), ("seccomp",), ("new_root", "landlock_files")),
}

OK = "ok"


class SandboxUnavailableError(SignalError):
    """The machine cannot give the isolation that `require` promises, or the sandbox cannot start at all."""


@dataclass(frozen=True)
class SandboxPolicy:
    """Limits of one execution (one program on one input) and the isolation it must have.

    Attributes:
        cpu_seconds: Processor time, watched by the fork server and, rounded up, kept by the kernel.
        wall_seconds: Time on the clock that an execution may cost its caller. A program that waits is ended a tenth (at
            least a second) before, a server that does not answer is replaced then. Well above `cpu_seconds`, so that a
            crowded machine makes no good program a timeout.
        memory_mib: Address space beyond what the interpreter and its libraries use before the program starts.
        output_bytes: What the program may print. The kernel keeps it.
        source_bytes: Length of the program; a longer one is `forbidden` and does not run.
        start_seconds: Time for a fork server to start.
        require: A key of LEVELS: "minimum" or "full". Nothing runs with less.
        leave_out: Layers not to apply, for a machine where one does harm and for tests. They count as unavailable.
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
    """What `require` asks for and `isolation` lacks, one sentence a group; empty when the promise is kept."""
    return [
        " or ".join(f"{layer} ({isolation.get(layer, 'not reported')})" for layer in group)
        for group in LEVELS[require]
        if not any(isolation.get(layer) == OK for layer in group)
    ]


def default_workers() -> int:
    """One execution a processor that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
