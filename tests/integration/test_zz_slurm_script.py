"""Runs the batch script: `ray symmetric-run` starts a head and a worker, runs the recipe once, and stops both.

Nodes are namespaces of this machine (slurm_here/run), so that other Ray clusters here are neither seen nor stopped.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import ROOT, TINY

pytestmark = pytest.mark.release

NAMESPACES = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
NODES = ROOT / "tests/integration/slurm_here/run"


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} (util-linux, iproute2) is not on this machine")
    if subprocess.run([*NAMESPACES, "ip", "link", "add", "x", "type", "bridge"], capture_output=True).returncode != 0:
        pytest.skip("this machine gives no network namespaces")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name: socket paths have at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="rc", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _submit(nodes: int, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """The rendered script, as sbatch would run it."""
    command = ["-m", "recipe.fast_dapo.main", *TINY, f"trainer.nnodes={nodes}", f"run_dir={folder}/run", *overrides]
    render = [sys.executable, "-m", "verl_ext.submit", "slurm", "--dry-run", "--", *command]
    printed = subprocess.run(render, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    script = folder / "slurm.sbatch"
    script.write_text(printed.split("\n", 1)[1].rsplit("\n# command\n", 1)[0], encoding="utf-8")
    environment = os.environ | {"RAY_TMPDIR": str(folder), "RAY_raylet_start_wait_time_s": "120"}
    # Neither is set on a user's node.
    environment = {name: value for name, value in environment.items() if name not in ("VERL_PLATFORM", "RAY_ADDRESS")}
    return subprocess.run(
        [*NAMESPACES, NODES, str(nodes), script],
        env=environment,
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )


def test_two_nodes_come_up_and_the_recipe_runs_on_the_head_alone(demo_assets: None, short_folder: Path):
    result = _submit(2, short_folder, "dry_run=true")
    assert result.returncode == 0, result.stdout[-3000:]
    for line in ("On head node. Starting Ray", "On worker node. Connecting to Ray cluster at 10.77.0.1:20017"):
        assert result.stdout.count(line) == 1
    assert result.stdout.count("nothing was started: without dry_run=true the same command trains") == 1


def test_the_recipes_failure_is_the_jobs(demo_assets: None, short_folder: Path):
    """Slurm gets the exit code; the message is in the job's output."""
    result = _submit(1, short_folder, "data.train_files=missing.parquet", "dry_run=true")
    assert result.returncode == 1
    assert "error: data.train_files" in result.stdout
