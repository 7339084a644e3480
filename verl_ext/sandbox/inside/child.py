"""Runs one program on one input, in a separate process that ends with `_exit`."""

import builtins
import json
import os
import signal
import sys
import types
from dataclasses import dataclass

from verl_ext.sandbox import protocol
from verl_ext.sandbox.inside import kernel, layers, seccomp

_CONTROL_CALLS_FAILED = 70
# Bound now: the program may replace the contents of `os` and `sys`.
_write, _exit = os.write, os._exit
_DENIED = (1, 13, 30)  # EPERM, EACCES, EROFS


@dataclass(frozen=True)
class ChildLimits:
    """Settings of the child, set by `run`."""

    cpu_seconds: int
    address_space: int
    output_bytes: int
    rlimits: bool
    filter: seccomp.Filter | None


def run(result: int, output: int, limits: ChildLimits, server: int) -> None:
    """Lock this process down, read the payload from `result`, run it, write the result. Never returns.

    An error before the program starts leaves `STARTED` unsent, which the trainer treats as an infrastructure error.
    """
    try:
        # Descriptor 3 was the server's control socket: closed before the program is read.
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(result, 3)
        # Its own empty input: flags and locks of a shared one would be visible to the next program.
        os.dup2(os.pipe()[0], 0)
        os.closerange(4, 1 << 16)
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            _exit(_CONTROL_CALLS_FAILED)
        if limits.rlimits:
            layers.limit_child(limits.cpu_seconds, limits.address_space, limits.output_bytes)
        if limits.filter is not None:
            limits.filter.install()
        nonce, source_length, input_length = protocol.PAYLOAD.unpack(_read(protocol.PAYLOAD.size))
        source = _read(source_length)
        grid = json.loads(_read(input_length))
        _write(3, nonce + protocol.STARTED)
    except BaseException:
        _exit(_CONTROL_CALLS_FAILED)
    stdout, stderr = sys.stdout, sys.stderr
    try:
        kind, body = execute(source, grid)
        for stream in (stdout, stderr):
            stream.flush()
        _write(3, nonce + kind + body)
    except BaseException:  # the program broke the process; the trainer sees an exit without a result
        _exit(1)
    _exit(0)


def _read(length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = os.read(3, length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def execute(source: bytes, grid: object) -> tuple[bytes, bytes]:
    """Kind and body of the result."""
    problem, to_bytes = protocol.grid_problem, protocol.grid_bytes
    kinds = protocol.GRID, protocol.INVALID
    try:
        code = compile(source.decode("utf-8", "replace"), "<solution>", "exec", dont_inherit=True)
    except MemoryError:
        return protocol.MEMORY, b"MemoryError while compiling"
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        return protocol.SYNTAX, _describe(error)
    module = types.ModuleType("solution")
    module.__dict__["__builtins__"] = builtins
    # dataclasses and pickle look their module up.
    sys.modules["solution"] = module
    try:
        exec(code, module.__dict__)
        solve = module.__dict__.get("solve")
        if solve is None:
            return protocol.RUNTIME, b"the program defines no function solve(input_grid)"
        output = solve(grid)
        wrong = problem(output)
        return (kinds[1], wrong.encode()[: protocol.MAX_DETAIL_BYTES]) if wrong else (kinds[0], to_bytes(output))
    except MemoryError:
        return protocol.MEMORY, b"MemoryError"
    except BaseException as error:  # SystemExit and KeyboardInterrupt can also be the program's
        denied = isinstance(error, OSError) and error.errno in _DENIED
        return (protocol.FORBIDDEN if denied else protocol.RUNTIME), _describe(error)


def _describe(error: BaseException) -> bytes:
    """Type and message; the message is made by the program's code, which may fail."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        text = "an exception that cannot be printed"
    return text.encode("utf-8", "replace")[: protocol.MAX_DETAIL_BYTES]
