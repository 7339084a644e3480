"""A run across two Ray nodes that loses one of them: it says so, cleans up, and resumes on a new one.

Last of the integration tests, because it starts its own Ray cluster. The nodes are two raylets of this machine
(`two_nodes.py`).
"""

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from lab import ROOT, TINY
from two_nodes import HEAD, RAY, WORKER, TwoNodes, wait_until_gone

from verl_ext.cluster.engine_resources import SHARED_MEMORY
from verl_ext.run.metrics_stream import STEP, read_metrics

# A driver on the cluster: a manifest made by all nodes, one damaged file, and nodes that do not see a file.
READ_BY_NODES = """
import sys
from pathlib import Path
import ray
from verl_ext.core.errors import CheckpointError
from verl_ext.run.manifest import find_damage, write_manifest
from verl_ext.trainer.checkpointing import by_nodes, changed_by_nodes, describe_by_nodes

ray.init(address=sys.argv[1], log_to_driver=False)
folder = Path(sys.argv[2])
write_manifest(folder)
alone = (folder / "manifest.json").read_text()
write_manifest(folder, describe_by_nodes)
assert (folder / "manifest.json").read_text() == alone
assert find_damage(folder, changed_by_nodes) is None
names = [f"{number}.distcp" for number in range(4)]
readers = by_nodes(lambda folder, names: (ray.get_runtime_context().get_node_id(), sorted(names)), folder, names)
assert len({node for node, _ in readers}) == 2, readers
assert sorted(name for _, own in readers for name in own) == names
(folder / "2.distcp").write_bytes(b"weighty")
assert find_damage(folder, changed_by_nodes) == "2.distcp has changed since it was written"
try:
    by_nodes(lambda folder, names: (folder / "elsewhere").read_bytes(), folder, names)
except CheckpointError as error:
    print(error)
"""

# Both runs are in the fixture, which counts towards the first test's time.
pytestmark = [pytest.mark.release, pytest.mark.timeout(2400)]

STEPS = 4
SETTINGS = [
    "trainer.nnodes=2",
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=1",
    "trainer.val_before_train=false",
    # Prompts that were fetched but not yet screened must also survive the loss.
    "curriculum.schedule=streaming",
    "watchdog.interval_s=2",
]


@dataclass(frozen=True)
class LostNode:
    """Observations of a run whose second node was killed, and of the same command on a new node."""

    run_dir: Path
    ledger: list[dict[str, Any]]  # of the run, before the loss
    status: int
    output: str
    seconds: float  # from the loss to the end of the command
    left: list[str]  # processes of the run, afterwards
    segments: list[str]  # names in shared memory, afterwards
    checkpoint: int  # newest step at the time of the loss
    resumed: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    try:
        nodes.start_head()
        nodes.start_worker()
        yield nodes
    finally:
        nodes.stop()


def _command(run_dir: Path) -> list[str]:
    return [sys.executable, "-m", "recipe.fast_dapo.main", *TINY, *SETTINGS, f"run_dir={run_dir}"]


def _python(cluster: TwoNodes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A short command in the environment of the cluster."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _wait_for_step(run_dir: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 1200
    while time.monotonic() < deadline:
        records = read_metrics(run_dir / "metrics.jsonl")
        if records and records[-1][STEP] >= step:
            return
        assert process.poll() is None, f"the run ended before step {step}: {process.communicate()[0][-3000:]}"
        time.sleep(0.1)
    pytest.fail(f"step {step} was not reached")


def _mark(run_dir: Path) -> str:
    """The run's mark, read from one of its engines."""
    entry = json.loads((run_dir / "engine_resources.json").read_text())[0]
    return psutil.Process(entry["processes"][0]["pid"]).environ()["VERL_SIGNAL_RUN"]


def _add_damaged_checkpoint(folder: Path, step: int) -> None:
    """Add a newer checkpoint of the same sizes with a flipped bit in a shard, which only reading it reveals."""
    newer = folder / f"global_step_{step + 1}"
    shutil.rmtree(newer, ignore_errors=True)
    shutil.copytree(folder / f"global_step_{step}", newer)
    shard = next((newer / "actor").glob("model_world_size_2_rank_1.pt"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step + 1))


@pytest.fixture(scope="module")
def lost_node(demo_assets: None, cluster: TwoNodes, tmp_path_factory: pytest.TempPathFactory) -> LostNode:
    run_dir = tmp_path_factory.mktemp("two_nodes") / "run"
    environment = cluster.environment | {"RAY_ADDRESS": cluster.address}
    process = subprocess.Popen(
        _command(run_dir), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        _wait_for_step(run_dir, 2, process)
        ledger = json.loads((run_dir / "engine_resources.json").read_text())
        mark = _mark(run_dir)
        cluster.kill_worker()
        began = time.monotonic()
        checkpoint = int((run_dir / "checkpoints/latest_checkpointed_iteration.txt").read_text())
        output = process.communicate(timeout=300)[0]
        seconds = time.monotonic() - began
    finally:
        process.kill()
    left = wait_until_gone(mark)
    segments = [name for entry in ledger for name in entry["segments"] if (SHARED_MEMORY / name).exists()]
    cluster.start_worker()
    _add_damaged_checkpoint(run_dir / "checkpoints", checkpoint)
    resumed = subprocess.run(
        _command(run_dir), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
    return LostNode(run_dir, ledger, process.returncode, output, seconds, left, segments, checkpoint, resumed)


def test_both_nodes_hold_an_engine_and_a_rank(lost_node: LostNode):
    nodes = {entry["node"]: entry for entry in lost_node.ledger}
    assert len(nodes) == 2
    assert [re.search(r"127\.0\.0\.\d", name)[0] for name in sorted(nodes)] == [HEAD, WORKER]
    for entry in nodes.values():
        assert any("VLLM::" in process["name"] for process in entry["processes"])
        assert entry["segments"]
    # A shard of the weights from each rank.
    folder = lost_node.run_dir / f"checkpoints/global_step_{STEPS}/actor"
    assert len(list(folder.glob("model_world_size_2_rank_*.pt"))) == 2


def test_the_run_ends_with_an_error_that_names_the_lost_node(lost_node: LostNode):
    assert lost_node.status == 1
    message = lost_node.output[lost_node.output.index("error: ") :]
    assert "lost the node" in message
    assert WORKER in message
    assert HEAD not in message
    assert f"resumes from the newest checkpoint in {lost_node.run_dir}" in message
    assert "Traceback" not in message


def test_it_ends_soon(lost_node: LostNode):
    """Collectives would wait ten minutes for the lost rank; Ray notices the loss within half a minute."""
    assert lost_node.seconds < 180


def test_nothing_of_it_stays_on_any_node(lost_node: LostNode):
    assert not lost_node.left
    assert not lost_node.segments
    assert not (lost_node.run_dir / "engine_resources.json").exists()


def test_the_same_command_goes_on_with_a_new_node(lost_node: LostNode):
    assert lost_node.resumed.returncode == 0, lost_node.resumed.stderr[-3000:]
    summary = json.loads((lost_node.run_dir / "summary.json").read_text())
    assert summary["global_steps"] == STEPS
    assert summary["rollouts_trained"] == STEPS * 8 * 16
    steps = [record[STEP] for record in read_metrics(lost_node.run_dir / "metrics.jsonl")]
    # A kill between a step's checkpoint and its record loses that one record, never a step.
    everything = list(range(1, STEPS + 1))
    assert steps in (everything, [step for step in everything if step != lost_node.checkpoint])
    assert lost_node.checkpoint >= 2


def test_the_nodes_find_the_checkpoint_that_was_damaged(lost_node: LostNode):
    damaged = f"global_step_{lost_node.checkpoint + 1}"
    said = f"warning: {damaged} is damaged (actor/model_world_size_2_rank_1.pt has changed since it was written)"
    assert said in lost_node.resumed.stderr
    assert f"warning: resuming from global_step_{lost_node.checkpoint}" in lost_node.resumed.stderr
    assert (lost_node.run_dir / f"checkpoints/{damaged}.damaged").is_dir()


def test_no_prompt_is_lost_or_trained_on_twice(lost_node: LostNode):
    lines = (lost_node.run_dir / "prompts.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    events = ("screening", "continuation", "trained")
    screened, continued, trained = (Counter(r["index"] for r in records if r["event"] == event) for event in events)
    qualified = Counter(r["index"] for r in records if r["event"] == "screening" and 0 < r["passes"] < 4)
    assert sum(trained.values()) == STEPS * 8
    assert all(trained[index] <= continued[index] <= qualified[index] for index in trained)
    assert max(screened.values()) == 1
    state = json.loads((lost_node.run_dir / f"checkpoints/global_step_{STEPS}/signal.json").read_text())
    controller = state["parts"]["recipe.fast_dapo.collector.Curriculum"]["controller"]
    waiting = len(controller["second"]) + len(controller["training"])
    expired = controller["counts"]["windows"]["total"]["expired"]
    assert sum(qualified.values()) == sum(trained.values()) + waiting + expired


def test_after_a_run_that_ends_well_the_cluster_is_as_before(lost_node: LostNode, cluster: TwoNodes):
    """The cluster belongs to others: it keeps running, without our engines."""
    assert not (lost_node.run_dir / "engine_resources.json").exists()
    deadline = time.monotonic() + 60
    status = ""
    while "0.0/2.0 GPU" not in status:  # the output of `ray status` is a few seconds old
        assert time.monotonic() < deadline, status
        status = subprocess.run(
            [RAY, "status", f"--address={cluster.address}"],
            env=cluster.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def test_the_nodes_read_a_share_of_the_files_each(cluster: TwoNodes, tmp_path: Path):
    """Files without their own checksum, such as Megatron's; torch's archives have one."""
    (tmp_path / "actor").mkdir()
    for number in range(4):
        (tmp_path / f"{number}.distcp").write_bytes(b"weights")
    result = _python(cluster, "-c", READ_BY_NODES, cluster.address, str(tmp_path))
    assert result.returncode == 0, result.stderr[-3000:]
    assert re.search(r"got: .*elsewhere.* file system that all nodes share", result.stdout)


def test_a_job_carries_the_package_to_the_cluster(demo_assets: None, cluster: TwoNodes, tmp_path: Path):
    """`ray job submit` of a dry run: the package is sent along, the plugin is loaded, the CPU backend is chosen."""
    run = [*TINY, "trainer.nnodes=2", f"run_dir={tmp_path}/job", "dry_run=true"]
    submit = ["-m", "verl_ext.submit", "ray", f"--address={cluster.dashboard}"]
    result = _python(cluster, *submit, "--", "-m", "recipe.fast_dapo.main", *run)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-2000:]
    assert "nothing was started: without dry_run=true the same command trains" in result.stdout
    assert "succeeded" in result.stdout


def test_a_cluster_that_is_too_small_or_away_is_an_error_for_people(
    demo_assets: None, cluster: TwoNodes, tmp_path: Path
):
    for address, nodes, message in (
        (cluster.address, 4, "expected 4 nodes (trainer.nnodes) with 1 GPUs each"),
        (f"{HEAD}:9", 1, f"expected a running Ray cluster at {HEAD}:9"),
    ):
        run = [*TINY, f"trainer.nnodes={nodes}", f"run_dir={tmp_path}/run", f"+ray_kwargs.ray_init.address={address}"]
        result = _python(cluster, "-m", "recipe.fast_dapo.main", *run)
        assert result.returncode == 1
        assert message in result.stderr, result.stderr[-3000:]
        assert "Traceback" not in result.stderr[result.stderr.index("error: ") :]
