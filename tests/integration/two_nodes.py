"""Two Ray nodes on this machine: a head and a worker, each with its own address, raylet and workers.

Loopback addresses stand for machines, and killing a raylet with all its descendants stands for the loss of one. Ports,
token and folders belong to this cluster, so that other Ray clusters here are neither seen nor stopped.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from verl_ext.cluster.engine_resources import RUN_VARIABLE

HEAD, WORKER = "127.0.0.2", "127.0.0.3"
RAY = Path(sys.executable).with_name("ray")


class TwoNodes:
    """A Ray cluster of two nodes with one logical GPU each."""

    def __init__(self) -> None:
        # Short: socket paths have at most 107 characters.
        self._folder = Path(tempfile.mkdtemp(prefix="rc", dir="/tmp"))
        self._ports = {name: _free_port() for name in ("gcs", "dashboard", "head_agent", "worker_agent")}
        self._raylets: dict[str, psutil.Process] = {}
        self.environment = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"} | {
            # Ray's own programs are found next to this Python.
            "PATH": f"{RAY.parent}{os.pathsep}{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "120",
        }

    @property
    def address(self) -> str:
        """Where drivers and nodes join."""
        return f"{HEAD}:{self._ports['gcs']}"

    @property
    def dashboard(self) -> str:
        """Where jobs are submitted."""
        return f"http://{HEAD}:{self._ports['dashboard']}"

    def start_head(self) -> None:
        self._start(
            HEAD,
            "--head",
            f"--port={self._ports['gcs']}",
            f"--temp-dir={self._folder}",
            f"--dashboard-host={HEAD}",
            f"--dashboard-port={self._ports['dashboard']}",
            f"--dashboard-agent-listen-port={self._ports['head_agent']}",
        )

    def start_worker(self) -> None:
        agent = f"--dashboard-agent-listen-port={self._ports['worker_agent']}"
        self._start(WORKER, f"--address={self.address}", agent)

    def _start(self, ip: str, *arguments: str) -> None:
        sizes = ["--num-cpus=32", "--num-gpus=1", "--object-store-memory=500000000"]
        # 0: any free port, so that two nodes on one machine do not clash.
        ports = ["--min-worker-port=0", "--max-worker-port=0"]
        command = [RAY, "start", f"--node-ip-address={ip}", *arguments, *sizes, *ports]
        started = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stdout + started.stderr
        raylets = self._processes("raylet")
        self._raylets[ip] = next(raylet for raylet in raylets if f"--node_ip_address={ip}" in raylet.cmdline())

    def _processes(self, name: str | None = None) -> list[psutil.Process]:
        """Processes of this cluster, recognized by its folder or its address."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess):
                line = " ".join(process.cmdline())
                if (str(self._folder) in line or f"--gcs-address={self.address}" in line) and (
                    name is None or process.name() == name
                ):
                    found.append(process)
        return found

    def kill_worker(self) -> None:
        """Kill the raylet and all its descendants at once, as if the machine lost power."""
        raylet = self._raylets.pop(WORKER)
        for process in [raylet, *raylet.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> None:
        """End every process of the cluster, and remove its folder."""
        trees = {child for raylet in self._raylets.values() for child in raylet.children(recursive=True)}
        for process in {*self._processes(), *trees}:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def marked(mark: str) -> list[str]:
    """Command lines of the processes that carry a run's mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(RUN_VARIABLE) == mark:
                found.append(" ".join(process.cmdline())[:100])
    return found


def wait_until_gone(mark: str, timeout_s: float = 30.0) -> list[str]:
    """Processes that still carry a run's mark after a while."""
    deadline = time.monotonic() + timeout_s
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HEAD, 0))
        return found.getsockname()[1]
