"""SIGTERM ends a command with its reason, also while Ray waits for a result."""

import subprocess
import sys

import pytest

from verl_ext.launch.sigterm import ENDED, named_exit

PROGRAM = """
import os, signal, threading, time
import ray
from verl_ext.launch.sigterm import exit_on_sigterm, named_exit

exit_on_sigterm()
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
exit_on_sigterm()

@ray.remote
def wait():
    time.sleep(120)

threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    with named_exit():
        ray.get(wait.remote())
finally:
    print("cleaned up", flush=True)
"""


def test_a_wait_for_ray_ends_with_the_reason():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-1] == "cleaned up"
    assert ended.stderr.splitlines()[-1] == ENDED
    assert "SIGTERM received" not in ended.stdout + ended.stderr


def test_other_exits_keep_their_code():
    with pytest.raises(SystemExit, match="3"), named_exit():
        sys.exit(3)
