"""The fork server: a fresh interpreter that locks itself down and then forks one child per program and input.

    python -I -S -B -X utf8 server.py

`fork_server.py` starts it, with the control socket as standard input; the first message is the configuration. It is not
passed by arguments or environment, which every program can read. There are two processes: a supervisor, which ends both
when the trainer is gone, and the server proper, which is the first process of its process namespace, so that everything
it started ends with it. The server never reads a program, an input or an expected output: its memory, which every child
copies, contains no secrets.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import types
from typing import Any, NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))


def _use_own_package() -> None:
    """Make `verl_ext.sandbox` importable without its parent folder, which may contain a thousand other packages."""
    sandbox = os.path.dirname(_HERE)
    paths = {
        "verl_ext": os.path.dirname(sandbox),
        "verl_ext.sandbox": sandbox,
        "verl_ext.sandbox.inside": _HERE,
    }
    for name, path in paths.items():
        module = types.ModuleType(name)
        module.__path__ = [path]
        sys.modules[name] = module


if __name__ == "__main__":
    _use_own_package()

from verl_ext.sandbox import protocol  # noqa: E402
from verl_ext.sandbox.inside import child, kernel  # noqa: E402
from verl_ext.sandbox.inside.layers import Layers  # noqa: E402

# Common imports of solutions. The rest of the standard library is read from disk when imported.
_PRELOADED = (
    "abc, array, bisect, cmath, collections.abc, copy, dataclasses, decimal, enum, fractions, functools, heapq, "
    "itertools, json, math, numbers, operator, random, re, statistics, string, textwrap, time, types, typing, "
    "traceback, warnings"
)
# Their C libraries are outside the folders that programs can see. A Python may have been built without them.
_LINKED = "zlib, _bz2, _lzma, _sqlite3"
_NUMPY = "numpy.linalg, numpy.fft, numpy.ma, numpy.random, numpy.lib.stride_tricks"


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    config = json.loads(control.recv(protocol.MAX_CONFIG_BYTES) or b"null")
    if config is None:
        return  # the trainer ended
    sys.argv, sys.orig_argv = [""], [""]
    os.setsid()  # the trainer handles its Ctrl-C
    layers = Layers(frozenset(config["leave_out"]))
    layers.enter_namespaces()
    server = os.fork()
    if server == 0:
        _serve(control, layers, config)
    _supervise(control, server)


def _supervise(control: socket.socket, server: int) -> None:
    """Wait for the server's end; end it when the trainer ends or hangs up."""
    # The trainer's process id is read here and not before the fork, so no program has it in its memory.
    trainer = os.pidfd_open(os.getppid())
    maker_of_the_socket = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    if os.getppid() != maker_of_the_socket:  # the trainer ended before the first of these lines
        os.kill(server, signal.SIGKILL)
        return
    server_end = os.pidfd_open(server)
    poll = select.poll()
    poll.register(trainer, select.POLLIN)
    poll.register(server_end, select.POLLIN)
    poll.register(control, 0)  # hang-ups are always reported
    events = dict(poll.poll())
    if server_end not in events:
        # It also sees the hang-up and gets a moment to exit; a trainer's death may not hang up, because other processes
        # may have inherited the trainer's end.
        wait = select.poll()
        wait.register(server_end, select.POLLIN)
        if trainer in events or not wait.poll(1000):
            os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)


def _serve(control: socket.socket, layers: Layers, config: dict[str, Any]) -> NoReturn:
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        folders, hidden = _preload(config)
        _warm_up()
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        child_filter = layers.lock_down(folders, hidden)
        # Python ignores the first and turns the second into an exception, which a program could catch.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        limits = child.ChildLimits(
            int(-(-config["cpu_seconds"] // 1)),
            used + config["memory_mib"] * 2**20,
            config["output_bytes"],
            layers.report["rlimits"] == "ok",
            child_filter,
        )
        control.send(json.dumps({"isolation": layers.report}).encode())
    except BaseException as error:
        with contextlib.suppress(OSError):
            control.send(json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}).encode())
        os._exit(1)
    try:
        _answer(control, limits, config["cpu_seconds"], config["wall_seconds"])
    finally:
        os._exit(0)


def _preload(config: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Import the modules that programs use. Returns the folders to show them, and those to hide inside."""
    for name in _PRELOADED.split(", "):
        importlib.import_module(name)
    for name in _LINKED.split(", "):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    library = os.path.dirname(os.__file__)
    # lib-dynload lies elsewhere on some systems.
    folders = [library, *(path for path in sys.path if os.path.isdir(path) and not path.startswith(library))]
    hidden = [
        os.path.join(library, name) for name in ("site-packages", "dist-packages", "test", "ensurepip", "idlelib")
    ]
    if config["numpy"]:
        sys.path.append(config["numpy"])
        for name in _NUMPY.split(", "):
            importlib.import_module(name)
        sys.path.remove(config["numpy"])
        inside = (os.path.join(config["numpy"], name) for name in ("numpy", "numpy.libs"))
        folders += [path for path in inside if os.path.isdir(path)]
    return folders, hidden


_EXAMPLE = b"""
def solve(input_grid):
    result = [row[:] for row in input_grid]
    for y, row in enumerate(input_grid):
        for x in range(len(row)):
            if row[x] == max(set(row), key=row.count):
                result[y][x] = sorted({c for r in input_grid for c in r})[-1]
    return [list(row) for row in zip(*result)]
"""


def _warm_up() -> None:
    """Trigger the interpreter's lazy set-up of compiling, errors and printing once, not in every child."""
    for source in (_EXAMPLE, b"def (", b"def solve(grid): return grid[99]", b"import absent_module"):
        child.execute(source, json.loads(b"[[1,2],[3,4]]"))
    del sys.modules["solution"]


def _answer(control: socket.socket, limits: child.ChildLimits, cpu_seconds: float, wall_seconds: float) -> None:
    """Fork one child per request, until the trainer hangs up."""
    server = os.getpid()
    # Garbage collection would touch, and so copy, every page that a child shares with its parent.
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 2)
        if not message:
            return
        started = time.monotonic()
        process = os.fork()
        if process == 0:
            gc.enable()
            child.run(descriptors[0], descriptors[1], limits, server)
        for descriptor in descriptors:
            os.close(descriptor)
        timed_out = _watch(control, process, cpu_seconds, started + wall_seconds)
        _, status, usage = os.wait4(process, 0)
        used = usage.ru_utime + usage.ru_stime
        control.send(protocol.REPLY.pack(os.waitstatus_to_exitcode(status), timed_out, used, usage.ru_maxrss))


def _watch(control: socket.socket, process: int, cpu_seconds: float, deadline: float) -> bool:
    """Wait until the child ends; kill it at its limits. Returns whether this was necessary."""
    end = os.pidfd_open(process)
    poll = select.poll()
    poll.register(end, select.POLLIN)
    poll.register(control, 0)
    # The kernel's id of another process's CPU clock: clock_getcpuclockid(3).
    clock = (~process << 3) | 2
    patience, timed_out = cpu_seconds, False
    while True:
        events = dict(poll.poll(1000 * max(min(patience, deadline - time.monotonic()), 0.001)))
        if end in events:
            break
        with contextlib.suppress(OSError):
            patience = cpu_seconds - time.clock_gettime(clock)
        timed_out = patience <= 0 or time.monotonic() >= deadline
        if timed_out or events:
            # Kill its group, in case a lock failed to stop it from starting others.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(process, signal.SIGKILL)
            break
    os.close(end)
    return timed_out


if __name__ == "__main__":
    main()
