"""The trainer's handle of one fork server, used by one thread at a time."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from verl_ext.data.arc_tasks import Grid
from verl_ext.sandbox import protocol
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError, missing_layers
from verl_ext.sandbox.results import Execution, Status

_SERVER = Path(__file__).with_name("inside") / "server.py"
# Share of an execution's wall-clock limit after which the server ends the program, and minimum seconds (if not more
# than half) that it then has to report. A server that does not report within the limit counts as stuck.
_SERVER_SHARE = 0.9
_REPLY_SECONDS = 1.0
_PRINTED_BYTES = 2000
# One thread: a thread pool does not survive a fork, and its buffers would count as the program's memory.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "LC_ALL": "C.UTF-8",
    "HOME": "/",  # without it, expanduser queries the machine's user database through a socket
}


class ServerDiedError(Exception):
    """The server has ended or does not answer."""


class ForkServer:
    """Starts the server and talks to it.

    Args:
        policy: Limits and required isolation.
        numpy: The folder numpy is installed in; empty for a server without it, which forks faster.
        python: The interpreter.

    Raises:
        SandboxUnavailableError: If it does not start or cannot provide the isolation of `policy.require`.
    """

    def __init__(self, policy: SandboxPolicy, numpy: str = "", python: str = sys.executable) -> None:
        self._policy = policy
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        config = {
            "numpy": numpy,
            "leave_out": sorted(policy.leave_out),
            "cpu_seconds": policy.cpu_seconds,
            "wall_seconds": server_seconds(policy.wall_seconds),
            "memory_mib": policy.memory_mib,
            "output_bytes": policy.output_bytes,
        }
        command = [os.path.realpath(python), "-I", "-S", "-B", "-X", "utf8", str(_SERVER)]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_ENVIRONMENT,
                    cwd="/",
                )
            except OSError as error:
                self._control.close()
                raise SandboxUnavailableError(f"the sandbox's interpreter does not start: {error}") from error
        try:
            self.isolation = self._hello(config, command)
        except BaseException:
            self.close()
            raise

    def _hello(self, config: dict[str, Any], command: list[str]) -> dict[str, str]:
        self._control.settimeout(self._policy.start_seconds)
        try:
            self._control.send(json.dumps(config).encode())
            data = self._control.recv(65536)
        except OSError as error:
            raise SandboxUnavailableError(f"the sandbox did not start: {error}") from error
        hello: dict[str, Any] = json.loads(data) if data else {"error": "it ended without an error message"}
        if "error" in hello:
            raise SandboxUnavailableError(f"the sandbox cannot start ({hello['error']}): {' '.join(command)}")
        missing = missing_layers(hello["isolation"], self._policy.require)
        if missing:
            raise SandboxUnavailableError(
                f"sandbox.require={self._policy.require} cannot be met on this machine, so nothing runs. "
                f"Missing: {'; '.join(missing)}. Allow them, or lower sandbox.require if a weaker level is enough"
            )
        return hello["isolation"]

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, source: bytes, grid: bytes) -> Execution:
        """Run the program on one input (JSON) in a new process.

        Raises:
            ServerDiedError: If the server ended, or did not answer within `policy.wall_seconds`; kill it then.
        """
        nonce = secrets.token_bytes(protocol.NONCE_BYTES)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        output = os.memfd_create("sandbox-output", os.MFD_CLOEXEC)
        deadline = time.monotonic() + self._policy.wall_seconds
        try:
            with ours:
                ours.settimeout(self._policy.wall_seconds)
                with theirs:
                    # The child may end before it reads; the server reports the outcome.
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        ours.sendall(protocol.PAYLOAD.pack(nonce, len(source), len(grid)) + source + grid)
                    self._control.settimeout(max(deadline - time.monotonic(), 0.001))
                    socket.send_fds(self._control, [protocol.REQUEST], [theirs.fileno(), output])
                data = _receive(ours, deadline)
            self._control.settimeout(max(deadline - time.monotonic(), 0.001))
            reply = self._control.recv(protocol.REPLY.size)
            if len(reply) != protocol.REPLY.size:
                raise ServerDiedError("the fork server ended during an execution")
            printed = os.pread(output, _PRINTED_BYTES, 0).decode("utf-8", "replace")
        except OSError as error:
            raise ServerDiedError(f"the fork server does not answer: {error}") from error
        finally:
            os.close(output)
        code, timed_out, cpu_seconds, _ = protocol.REPLY.unpack(reply)
        status, grid_back, detail = classify(data, nonce, code, timed_out, cpu_seconds, self._policy)
        return Execution(status, grid_back, detail, printed, cpu_seconds, self.isolation)

    def hang_up(self) -> None:
        """End the server from another thread; the one that waits for it sees a ServerDiedError."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End the server and its programs immediately, even if it is stopped: they end with the supervisor."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Hang up, which ends the server and its programs, and wait for its end."""
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def server_seconds(wall_seconds: float) -> float:
    """Seconds after which the server ends a program, so that its answer arrives within `wall_seconds`.

    >>> server_seconds(30.0), server_seconds(5.0), server_seconds(1.0)
    (27.0, 4.0, 0.5)
    """
    return max(min(_SERVER_SHARE * wall_seconds, wall_seconds - _REPLY_SECONDS), wall_seconds / 2)


def _receive(stream: socket.socket, deadline: float) -> bytes:
    """Read until the other end closes, but not much more than the largest result."""
    data = b""
    while len(data) <= protocol.MAX_RESULT_BYTES:
        stream.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            more = stream.recv(protocol.MAX_RESULT_BYTES + 1)
        except ConnectionResetError:  # it ended without reading its payload
            break
        if not more:
            break
        data += more
    return data


def classify(
    data: bytes, nonce: bytes, code: int, timed_out: bool, cpu_seconds: float, policy: SandboxPolicy
) -> tuple[Status, Grid | None, str]:
    """Status, grid and detail of an execution, from its output and exit.

    Errors before the program's first line are the infrastructure's fault, those after it never are: a program must not
    be able to avoid being judged.
    """
    result = protocol.parse_result(data, nonce)
    if not result.started:
        return Status.INFRASTRUCTURE_ERROR, None, f"it ended before the program started, exit code {code}"
    limits = f"{policy.cpu_seconds:g} s of CPU time or {policy.wall_seconds:g} s of wall-clock time"
    if timed_out or code == -signal.SIGXCPU or (code == -signal.SIGKILL and cpu_seconds >= policy.cpu_seconds):
        return Status.TIMEOUT, None, f"more than {limits}"
    if len(data) > protocol.MAX_RESULT_BYTES:
        return Status.OUTPUT_LIMIT, None, "the result is longer than any grid"
    if code == -signal.SIGXFSZ:
        return Status.OUTPUT_LIMIT, None, f"more than {policy.output_bytes} bytes printed"
    if code == -signal.SIGSYS:
        return Status.FORBIDDEN, None, "a forbidden system call"
    if code < 0:
        return Status.KILLED, None, f"ended by signal {-code}"
    if code != 0 or not data[len(nonce) + 1 :]:
        return Status.RUNTIME_ERROR, None, f"it ended without a result, exit code {code}"
    if result.kind == protocol.GRID:
        grid = protocol.parse_grid(result.body)
        return (Status.INVALID_OUTPUT, None, "not a grid") if grid is None else (Status.OK, grid, "")
    detail = result.body.decode("utf-8", "replace")
    statuses = {
        protocol.INVALID: Status.INVALID_OUTPUT,
        protocol.SYNTAX: Status.SYNTAX_ERROR,
        protocol.RUNTIME: Status.RUNTIME_ERROR,
        protocol.MEMORY: Status.MEMORY,
        protocol.FORBIDDEN: Status.FORBIDDEN,
    }
    return statuses.get(result.kind, Status.INVALID_OUTPUT), None, detail or "not a result"
