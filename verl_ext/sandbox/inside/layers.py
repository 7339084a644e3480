"""Applies the isolation layers in the required order, and reports each as "ok" or why it failed.

Nothing here decides whether that is enough: the trainer's process reads the report and refuses (`policy.LEVELS`).
"""

import os
import resource
import signal
from collections.abc import Callable

from verl_ext.sandbox.inside import kernel, landlock, namespaces, seccomp

_NOBODY = 65534
_MAX_FILES = 32


class Layers:
    """Applies layers to the calling process and records the report."""

    def __init__(self, leave_out: frozenset[str]) -> None:
        self.report: dict[str, str] = {}
        self._leave_out = leave_out

    def _wanted(self, layer: str) -> bool:
        if layer in self._leave_out:
            self.report[layer] = "unavailable: left out by the policy"
        return layer not in self._leave_out

    def _apply(self, layer: str, function: Callable[[], object]) -> None:
        if not self._wanted(layer):
            return
        try:
            function()
            self.report[layer] = "ok"
        except OSError as error:
            self.report[layer] = f"unavailable: {error.strerror or error}"

    def enter_namespaces(self) -> None:
        """Apply the layers that precede the fork whose child is the first process of its process namespace."""
        self._apply("namespaces", namespaces.enter)

    def lock_down(self, folders: list[str], hidden: list[str]) -> seccomp.Filter | None:
        """Apply all other layers, permanently; import everything from outside `folders` before.

        Returns:
            The filter that every child adds, None if seccomp is unavailable.
        """
        if self.report.get("namespaces") == "ok":
            self._apply("new_root", lambda: namespaces.new_root(folders, hidden))
        elif self._wanted("new_root"):
            self.report["new_root"] = "unavailable: needs namespaces"
        self._apply("no_privileges", drop_privileges)
        asked = [self._wanted(f"landlock_{part}") for part in ("files", "network", "scopes")]
        try:
            # Paths missing in the new root need no rule.
            there = [folder for folder in folders if os.path.isdir(folder)]
            self.report.update(landlock.restrict(there, hidden, *asked))
        except OSError as error:
            for part, wanted in zip(("files", "network", "scopes"), asked, strict=True):
                if wanted:
                    self.report[f"landlock_{part}"] = f"unavailable: {error.strerror or error}"
        self._apply("rlimits", limit_server)
        child_filter: list[seccomp.Filter] = []

        def lock_system_calls() -> None:
            server_filter, filter_of_child = seccomp.filters()
            server_filter.install()
            child_filter.append(filter_of_child)

        self._apply("seccomp", lock_system_calls)
        return child_filter[0] if self.report["seccomp"] == "ok" else None


def drop_privileges() -> None:
    """Drop all capabilities for good, and become user nobody if this is root. The process dies with its parent.

    Raises:
        OSError: If the kernel refuses, or if it is still root afterwards.
    """
    if os.geteuid() == 0 or _has_capabilities():
        for capability in range(64):
            try:
                kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
            except OSError:
                break  # unknown to the kernel, or not allowed: then the sets below decide
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    # Changing the user clears it.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.geteuid() == 0:
        raise OSError("still root")


def _has_capabilities() -> bool:
    try:
        with open("/proc/self/status") as status:
            return any(line.startswith("CapEff:") and int(line.split()[1], 16) for line in status)
    except OSError:
        return False


def limit_server() -> None:
    """Limits that server and child share: the kernel keeps a lowered hard limit lowered."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _MAX_FILES),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def limit_child(cpu_seconds: int, address_space: int, output_bytes: int) -> None:
    """Limits of one program. The soft CPU limit ends it with SIGXCPU, the hard one with SIGKILL."""
    _set(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    _set(resource.RLIMIT_AS, (address_space, address_space))
    _set(resource.RLIMIT_FSIZE, (output_bytes, output_bytes))
    _set(resource.RLIMIT_NPROC, (0, 0))


def _set(kind: int, limits: tuple[int, int]) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:  # the machine's own limit may be lower
        limits = (min(limits[0], hard), min(limits[1], hard))
    resource.setrlimit(kind, limits)
